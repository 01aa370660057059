#!/bin/sh
# finish.sh ROOT CERTIFICATES: what both ways of making the image do last.
# ROOT: the root file system ("/" within a build). CERTIFICATES: a folder with one PEM certificate a file, maybe empty.
set -eu
root=${1%/}
own=$root/usr/local/share/ca-certificates/harness
for certificate in "$2"/*.crt; do
  [ -e "$certificate" ] || break
  mkdir -p "$own"
  install -m 644 "$certificate" "$own/"
done
if [ -d "$own" ]; then
  chroot "${root:-/}" update-ca-certificates >/dev/null
fi
rm -rf "$root/var/cache/debconf/"*-old "$root/var/lib/dpkg/"*-old "$root/var/log/"*.log "$root/var/log/apt" \
  "$root/usr/share/gitweb" "$root/usr/share/lintian"
