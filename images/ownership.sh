# Run while an image is made (see git.py), with /bin/sh of that image.
#   mend WORKDIR HOME USER... -- REPOSITORY...   as root: sets safe.directory where owner and user differ
#   verify WORKDIR USER REPOSITORY...            as that user: runs git in each repository
newline='
'
mended=

say() { echo "harness-git: $*"; }

fail() {
  say "error: $*"
  exit 1
}

# The repository that a path lies in: the nearest folder upwards with .git, or a bare repository. Empty: none.
repository_of() {
  (
    cd "$1" 2>/dev/null || exit 0
    folder=$(pwd -P)
    if [ -f "$folder/HEAD" ] && [ -d "$folder/objects" ] && [ -d "$folder/refs" ]; then
      echo "$folder"
      exit 0
    fi
    while :; do
      if [ -e "${folder%/}/.git" ]; then
        echo "$folder"
        exit 0
      fi
      [ "$folder" != / ] || exit 0
      folder=${folder%/*}
      folder=${folder:-/}
    done
  )
}

# Sets uid, gid and home of a user: a name, a uid, or uid:gid.
look_up() {
  name=${1%%:*}
  uid=
  gid=
  home=/
  case $1 in *:*) gid=${1#*:} ;; esac
  case $name in '' | *[!0-9]*) ;; *) uid=$name ;; esac
  if [ -r /etc/passwd ]; then
    while IFS=: read -r entry_name _ entry_uid entry_gid _ entry_home _; do
      if [ "$entry_name" = "$name" ] || [ "$entry_uid" = "$name" ]; then
        uid=$entry_uid
        gid=${gid:-$entry_gid}
        home=${entry_home:-/}
        break
      fi
    done </etc/passwd
  fi
  [ -n "$uid" ] || fail "the image has no user '$name'"
  [ -z "$fixed_home" ] || home=$fixed_home
}

# Whether git would refuse the repository $1 to the uid $2.
refused() {
  for place in "$1" "$1/.git"; do
    [ -e "$place" ] || continue
    [ "$(stat -c %u "$place" 2>/dev/null)" = "$2" ] || return 0
  done
  # A file leads to a folder elsewhere, whose owner counts too.
  [ -f "$1/.git" ]
}

mend_for() {
  config=${home%/}/.gitconfig
  known=$(git config --file "$config" --get-all safe.directory 2>/dev/null)
  case "$newline$known$newline" in *"$newline$1$newline"*) return ;; esac
  if [ ! -d "$home" ]; then
    mkdir -p "$home" && chown "$uid${gid:+:$gid}" "$home"
  fi
  git config --file "$config" --add safe.directory "$1" && chown "$uid${gid:+:$gid}" "$config" ||
    fail "$config can't be written"
  say "$1 is safe for $2"
  mended=1
}

mend() {
  workdir=$1
  fixed_home=$2
  shift 2
  users=
  while [ "$1" != -- ]; do
    users="$users $1"
    shift
  done
  shift
  for path in "$workdir" "$@"; do
    found=$(repository_of "$path")
    [ -n "$found" ] || continue
    for user in $users; do
      look_up "$user"
      if refused "$found" "$uid"; then mend_for "$found" "$user"; fi
    done
  done
  [ -n "$mended" ] || say "nothing to mend"
}

# Git's own words when it can't use the repository $1; nothing when it can.
trouble() {
  bare=$(git -C "$1" rev-parse --is-bare-repository 2>&1) || {
    echo "$bare"
    return
  }
  [ "$bare" != true ] || return
  words=$(GIT_OPTIONAL_LOCKS=0 git -C "$1" status --porcelain --untracked-files=no 2>&1 >/dev/null) ||
    echo "${words:-git status failed}"
}

verify() {
  workdir=$1
  user=$2
  shift 2
  for path in "$@"; do
    found=$(repository_of "$path")
    [ -n "$found" ] || fail "there is no git repository at $path that user $user can read"
    words=$(trouble "$found")
    [ -z "$words" ] || fail "git as user $user in $path: $words"
  done
  found=$(repository_of "$workdir")
  if [ -n "$found" ]; then
    words=$(trouble "$found")
    [ -z "$words" ] || say "warning: git as user $user in $found: $words"
  fi
}

action=$1
shift
if ! command -v git >/dev/null 2>&1; then
  if [ "$action" = mend ]; then say "nothing to mend"; fi
  say "no git in the image"
  exit 0
fi
"$action" "$@"
