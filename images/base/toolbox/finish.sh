#!/bin/sh
# finish.sh ROOT: turns the extracted packages in ROOT into the toolbox, and removes the rest.
# /toolbox: bash and busybox, static, and bin/ with a relative link for every applet, right wherever it is mounted.
# Around it just enough for a container of this image to run iptables.
set -eu
root=$1
new=$root/.toolbox

find_one() { # a file of the packages, wherever their root keeps its folder (bin or usr/bin)
  find "$root" -xdev -path "$new" -prune -o -type f -path "*/$1" -print | head -n 1
}

mkdir -p "$new/toolbox/bin" "$new/usr/bin" "$new/usr/sbin" "$new/usr/lib" "$new/etc" "$new/run" "$new/tmp"
chmod 1777 "$new/tmp"

install -m 755 "$(find_one bin/bash-static)" "$new/toolbox/bash"
install -m 755 "$(find_one bin/busybox)" "$new/toolbox/busybox"
for applet in $("$new/toolbox/busybox" --list); do
  ln -s ../busybox "$new/toolbox/bin/$applet"
done
ln -sf ../bash "$new/toolbox/bin/bash"
ln -s /toolbox/busybox "$new/usr/bin/sh"
ln -s /toolbox/bash "$new/usr/bin/bash"

# Libraries, in one place whether or not the packages' root has /lib merged into /usr/lib.
for folder in lib lib64 usr/lib usr/lib64; do
  [ -d "$root/$folder" ] || continue
  name=${folder#usr/}
  mkdir -p "$new/usr/$name"
  cp -a "$root/$folder/." "$new/usr/$name/"
done
find "$new/usr/lib" "$new/usr/lib64" -mindepth 1 -maxdepth 1 ! -name '*-linux-gnu*' ! -name 'ld-linux*' -exec rm -rf {} +
for folder in "$new"/usr/lib/*-linux-gnu*; do
  find "$folder" -mindepth 1 -maxdepth 1 \
    ! -name 'ld-linux*' ! -name 'libc.so.*' ! -name 'libm.so.*' ! -name 'libdl.so.*' ! -name 'libpthread.so.*' \
    ! -name 'libip4tc.*' ! -name 'libip6tc.*' ! -name 'libmnl.*' ! -name 'libnetfilter_conntrack.*' \
    ! -name 'libnfnetlink.*' ! -name 'libnftnl.*' ! -name 'libxtables.*' ! -name xtables -exec rm -rf {} +
done
for name in bin sbin lib lib64; do
  if [ -d "$new/usr/$name" ]; then ln -s "usr/$name" "$new/$name"; fi
done

# iptables as its package installs it: nf_tables by default, the legacy kernel interface beside it.
for kind in nft legacy; do
  install -m 755 "$(find_one "sbin/xtables-$kind-multi")" "$new/usr/sbin/xtables-$kind-multi"
  for family in iptables ip6tables; do
    for action in '' -restore -save; do
      ln -s "xtables-$kind-multi" "$new/usr/sbin/$family-$kind$action"
    done
  done
done
for family in iptables ip6tables; do
  for action in '' -restore -save; do
    ln -s "$family-nft$action" "$new/usr/sbin/$family$action"
  done
done

for notice in "$root"/usr/share/doc/*/copyright; do
  package=$(basename "$(dirname "$notice")")
  install -D -m 644 "$notice" "$new/usr/share/doc/$package/copyright"
done
cp "$(find_one etc/protocols)" "$(find_one etc/services)" "$new/etc/"
echo 'root:x:0:0:root:/:/bin/sh' >"$new/etc/passwd"
echo 'root:x:0:' >"$new/etc/group"

# dev, proc and sys may be mount points of whoever runs this: they stay.
find "$root" -mindepth 1 -maxdepth 1 ! -path "$new" ! -name dev ! -name proc ! -name sys -exec rm -rf {} +
mkdir -p "$root/dev" "$root/proc" "$root/sys"
mv "$new"/* "$root/"
rmdir "$new"
