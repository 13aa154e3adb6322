#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Runs programs over real verbs without an InfiniBand card: in a QEMU machine whose kernel is the distribution's, with
# software RDMA devices (rdma_rxe), from an initramfs made on the spot. No disk image, no rights needed.
#
#   run.sh --cache=FOLDER [--memory=MIB] [--timeout=SECONDS] [--guests=N [--each=N] [--types=PARTS[,COUNT]]] --script=FILE PROGRAM...
#
# The script runs in the guest with sh and has the PROGRAMs as arguments; its exit status is this one's. The PROGRAMs
# are there under their own paths, with the libraries that they need. Before it, rxe0 on veth0 and rxe1 on veth1, the
# two ends of a cable, are up, 10.7.0.1 and 10.7.0.2. With several guests, of GUESTS, each has rxe0 on an Ethernet card of
# its own instead, all of them on one hub, 10.7.0.1 and on, and GUEST (0 and on) says which one it is; all must succeed.
# EACH and TYPES are what --each and --types say, for the script (ranks.sh).
# 77: QEMU, a tool, or the kernel's package is missing here, which is said.
#
# A kernel that locks up or crashes is no fault of a program in it: that attempt (ATTEMPT in the script) is printed with
# the kernel's own account and made again, three in all. rdma_rxe of Linux 6.1 was seen to lock up on a busy machine.
set -euo pipefail

cache="" memory=512 limit=100 guests=1 each="" types="" script=""
programs=()
for argument in "$@"; do
  case "$argument" in
    --cache=*) cache=${argument#*=} ;;
    --memory=*) memory=${argument#*=} ;;
    --timeout=*) limit=${argument#*=} ;;
    --guests=*) guests=${argument#*=} ;;
    --each=*) each=${argument#*=} ;;
    --types=*) types=${argument#*=} ;;
    --script=*) script=${argument#*=} ;;
    -*) echo "run.sh: unknown argument $argument" >&2; exit 2 ;;
    *) programs+=("$argument") ;;
  esac
done
if [ -z "$cache" ] || [ -z "$script" ]; then echo "run.sh: --cache and --script are needed" >&2; exit 2; fi

skip() { echo "skipped: $*"; exit 77; }

PATH=$PATH:/usr/sbin:/sbin
for tool in qemu-system-x86_64 busybox cpio gzip ip tc rdma ldd; do
  command -v "$tool" >/dev/null ||
    skip "no $tool here; on Debian install: qemu-system-x86 busybox-static iproute2 cpio ibverbs-providers"
done
driver=$(ls /usr/lib/*/libibverbs/librxe-rdmav*.so 2>/dev/null | head -n 1 || true)
if [ -z "$driver" ] || [ ! -f /etc/libibverbs.d/rxe.driver ]; then
  skip "no user-space driver of rxe here; on Debian install ibverbs-providers"
fi
[ "$(uname -m)" = x86_64 ] || skip "the guest is made for x86_64, this is $(uname -m)"

# ---- kernel ----

mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
# crc32_generic is needed and is not among rdma_rxe's dependencies; the order is that of loading.
modules="crypto/crc32_generic net/ipv4/udp_tunnel net/ipv6/ip6_udp_tunnel drivers/infiniband/core/ib_core
  drivers/infiniband/core/ib_uverbs drivers/infiniband/sw/rxe/rdma_rxe drivers/net/veth net/sched/sch_netem
  drivers/net/ethernet/intel/e1000/e1000"

fetch_kernel() (
  exec 9>"$cache/lock"
  flock 9
  [ ! -f "$cache/kernel/complete" ] || return 0
  command -v apt-get >/dev/null || return 1
  package=$(apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/.*Depends: \(linux-image-[0-9][^ ]*\)$/\1/p' | head -n 1)
  if [ -z "$package" ]; then
    apt-get update >/dev/null 2>&1 || true
    package=$(apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/.*Depends: \(linux-image-[0-9][^ ]*\)$/\1/p' | head -n 1)
  fi
  [ -n "$package" ] || return 1
  rm -rf "$cache/kernel"
  mkdir "$cache/kernel"
  cd "$cache/kernel"
  apt-get download -o APT::Sandbox::User=root "$package" >/dev/null 2>&1 ||
    { apt-get update >/dev/null 2>&1 && apt-get download -o APT::Sandbox::User=root "$package" >/dev/null 2>&1; } || return 1
  version=${package#linux-image-}
  wanted=()
  for module in $modules; do wanted+=("./lib/modules/$version/kernel/$module.ko"); done
  dpkg-deb --fsys-tarfile ./*.deb | tar x "./boot/vmlinuz-$version" "${wanted[@]}" || return 1
  rm -f ./*.deb
  mv "boot/vmlinuz-$version" vmlinuz
  mv "lib/modules/$version/kernel" modules
  touch complete
)
fetch_kernel || skip "the package of the kernel (linux-image-amd64) cannot be downloaded here, which needs apt-get and a mirror"

# ---- guest ----

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$root"/{bin,proc,sys,dev,tmp,run,etc,modules}

# A file under its own path, and the libraries it names.
add() {
  local file
  for file in "$1" $(ldd "$1" 2>/dev/null | sed -n 's/.*=> \(\/[^ ]*\).*/\1/p; s/^\t\(\/[^ ]*\) (.*/\1/p'); do
    [ ! -e "$root$file" ] || continue
    mkdir -p "$root$(dirname "$file")"
    cp -L "$file" "$root$file"
    # Emulated processors unpack all of it before anything runs; nothing but a program can be stripped.
    strip --strip-debug "$root$file" 2>/dev/null || true
  done
}
cp -L "$(command -v busybox)" "$root/bin/busybox"
for tool in ip tc rdma; do
  add "$(command -v $tool)"
  ln -sf "$(command -v $tool)" "$root/bin/real-$tool"
done
add "$driver"
for library in /usr/lib/*/libibverbs.so.1; do add "$library"; done
mkdir -p "$root/etc/libibverbs.d"
cp /etc/libibverbs.d/rxe.driver "$root/etc/libibverbs.d/"
for program in ${programs[@]+"${programs[@]}"}; do add "$program"; done
cp "$script" "$root/script"
for module in $modules; do cp "$cache/kernel/modules/$module.ko" "$root/modules/"; done

cat >"$root/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin:/usr/bin:/usr/sbin:/sbin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm
mount -t tmpfs shm /dev/shm
echo 1 >/proc/sys/kernel/panic_on_rcu_stall
# QEMU's exit status becomes twice this, plus one.
finish() { printf "\\$(printf %o "$1")" | dd of=/dev/port bs=1 seek=244 count=1 2>/dev/null; sleep 5; }
given() { sed -n "s/.* $1=\([0-9]*\).*/\1/p" /proc/cmdline; }
export GUESTS=$(given guests) GUEST=$(given guest) ATTEMPT=$(given attempt) EACH=$(given each) TYPES=$(given types)
prepare() {
  for module in MODULES; do insmod /modules/$module.ko || return; done
  real-ip link set lo up || return
  if [ "$GUESTS" -gt 1 ]; then
    real-ip addr add 10.7.0.$((GUEST + 1))/24 dev eth0 || return
    real-ip link set eth0 mtu 1500 up || return
    real-rdma link add rxe0 type rxe netdev eth0 || return
  else
    real-ip link add veth0 type veth peer name veth1 || return
    for end in 0 1; do
      # 4096 bytes of payload in a packet.
      real-ip link set veth$end mtu 5000 up || return
      real-ip addr add 10.7.0.$((end + 1))/24 dev veth$end || return
      echo 1 >/proc/sys/net/ipv4/conf/veth$end/accept_local || return
      real-rdma link add rxe$end type rxe netdev veth$end || return
    done
  fi
  ulimit -l unlimited
}
if prepare; then
  sh /script PROGRAMS
  finish $?
else
  echo "the guest could not be prepared"
  finish 1
fi
INIT
names=
for module in $modules; do names+=" ${module##*/}"; done
sed -i "s/MODULES/$names/; s|PROGRAMS|${programs[*]-}|" "$root/init"
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet) | gzip -1 >"$work/initrd.gz"

# Pinned to emulation: a /dev/kvm that is there may still not run such a guest. The log level lets the account of a crash
# through; a lock-up is one, some 25 s after it began, and ends the guest.
start() {
  local guest=$1
  shift
  timeout "$limit" qemu-system-x86_64 -accel tcg,thread=multi -M pc -cpu qemu64 -smp 2 -m "$memory" -nodefaults \
    -no-user-config -display none -no-reboot -serial stdio -device isa-debug-exit,iobase=0xf4,iosize=1 \
    -kernel "$cache/kernel/vmlinuz" -initrd "$work/initrd.gz" \
    -append "console=ttyS0 loglevel=5 oops=panic softlockup_panic=1 panic=-1 nokaslr mitigations=off random.trust_cpu=on \
guests=$guests guest=$guest attempt=$attempt each=$each types=$types" "$@" </dev/null
}
status_of() {
  case "$1" in
    1) return 0 ;;
    124) echo "the guest did not end within $limit s" >&2; return 124 ;;
    *) return $(($1 >> 1 > 0 ? $1 >> 1 : 1)) ;;
  esac
}
crashed() { grep -q "Kernel panic - not syncing" "$work"/guest*.log; }
run() {
  local result=0
  if [ "$guests" = 1 ]; then
    start 0 2>&1 | tee "$work/guest0.log" || result=$?
    status_of "$result"
    return
  fi
  # The first guest's machine has the hub, to which each of the others has a socket.
  local port=$((20000 + RANDOM % 20000)) guest processes=() ended
  local hub=(-netdev "hubport,id=net,hubid=0")
  for ((guest = 1; guest < guests; ++guest)); do
    hub+=(-netdev "socket,id=to$guest,listen=127.0.0.1:$((port + guest))"
      -netdev "hubport,id=port$guest,hubid=0,netdev=to$guest")
  done
  for ((guest = 0; guest < guests; ++guest)); do
    [ "$guest" = 0 ] || hub=(-netdev "socket,id=net,connect=127.0.0.1:$((port + guest))")
    (start "$guest" "${hub[@]}" -device "e1000,netdev=net,mac=52:54:00:00:00:0$((guest + 1))" 2>&1 |
      tee "$work/guest$guest.log" | sed -u "s/^/guest $guest: /") &
    processes+=($!)
    [ "$guest" != 0 ] || sleep 1
  done
  for ((guest = 0; guest < guests; ++guest)); do
    ended=0
    wait "${processes[guest]}" || ended=$?
    [ "$result" != 0 ] || status_of "$ended" || result=$?
  done
  return "$result"
}
for attempt in 1 2 3; do
  result=0
  run || result=$?
  if [ "$result" = 0 ] || ! crashed; then break; fi
  echo "attempt $attempt ended with the guest's kernel, as told above"
done
exit "$result"
