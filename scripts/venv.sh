#!/bin/sh
# venv.sh [GROUP...]: makes .venv and installs the project into it, editable, with these dependency groups.
# PYTHON names the interpreter; otherwise the first that is new enough is taken. As root, on a system with apt, what is missing
# is installed.
set -eu
cd "$(dirname "$0")/.."

new_enough() {
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
  for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
    if new_enough "$candidate"; then
      echo "$candidate"
      return
    fi
  done
}

fail() {
  echo "venv: $1" >&2
  exit 1
}

apt_install() {
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    fail "missing: $*. Install it (Debian, Ubuntu: sudo apt-get install $*), then run this again"
  fi
  echo "venv: installing $* with apt"
  export DEBIAN_FRONTEND=noninteractive
  apt-get -qq update </dev/null || true # one unreachable source fails it; the others may do
  said=$(apt-get -qq install -y --no-install-recommends "$@" </dev/null 2>&1) || fail "apt-get could not install $*: $said"
}

command -v git >/dev/null || apt_install git
[ -n "$(find_python)" ] || [ -n "${PYTHON:-}" ] || apt_install python3 python3-venv
python=$(find_python)
[ -n "$python" ] || fail "Python 3.11 or newer is needed, ${PYTHON:-python3} isn't. Install one and name it: make PYTHON=python3.12 …"

if ! new_enough .venv/bin/python || ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
  "$python" -c 'import ensurepip, venv' 2>/dev/null ||
    apt_install "python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv"
  rm -rf .venv
  "$python" -m venv .venv
fi

groups=
for group in "$@"; do groups="$groups --group $group"; done
echo "venv: installing into .venv ($("$python" --version)${*:+, $*})"
# Errors only: a machine's own pip settings can warn about every package.
pip_install() {
  .venv/bin/python -m pip --quiet --quiet --disable-pip-version-check install "$@" </dev/null
}
pip_install --upgrade 'pip>=25.1' # the first with --group
# shellcheck disable=SC2086 # one word for each option
pip_install --editable . $groups
