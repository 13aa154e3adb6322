# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# In the guest: what ib_write_bw and this library get between rxe0 and rxe1, in turn, in MiB a second.
peer=$1 perftest=$2
gid() { for i in 0 1 2 3; do grep -q ":ffff:" /sys/class/infiniband/$1/ports/1/gids/$i 2>/dev/null && echo $i && return; done; }
ours() {
  MSCCLPP_IB_HCA=rxe1 $peer --rank=1 --address=127.0.0.1:$1 --action=stream --bytes=$2 >/dev/null &
  MSCCLPP_IB_HCA=rxe0 $peer --rank=0 --address=127.0.0.1:$1 --action=stream --bytes=$2 --seconds=4 | sed -n 's/^ib \([0-9]*\) .*/\1/p' | awk '{print $1 / 1048576}'
  wait
}
theirs() {
  $perftest -d rxe1 -x $(gid rxe1) -s $2 -n $((100000000 / $2)) -t $(($2 > 100000 ? 16 : 64)) -Q 1 -m 4096 -p $1 -F >/dev/null 2>&1 &
  sleep 1
  $perftest -d rxe0 -x $(gid rxe0) -s $2 -n $((100000000 / $2)) -t $(($2 > 100000 ? 16 : 64)) -Q 1 -m 4096 -p $1 -F 127.0.0.1 2>/dev/null | awk -v s=$2 '$1 == s {print $4}'
  wait
}
export MSCCLPP_TRANSPORT=ib MSCCLPP_TIMEOUT=60
port=6000
for bytes in 65536 1048576; do
  : >/tmp/ours
  : >/tmp/theirs
  for turn in 1 2 3 4 5; do
    port=$((port + 2))
    a=$(theirs $port $bytes)
    b=$(ours $((port + 1)) $bytes)
    echo "$bytes bytes: ib_write_bw $a MiB/s, this library $b MiB/s"
    echo "$a" >>/tmp/theirs
    echo "$b" >>/tmp/ours
  done
  a=$(sort -n /tmp/theirs | sed -n 3p)
  b=$(sort -n /tmp/ours | sed -n 3p)
  echo "$bytes bytes, medians: ib_write_bw $a MiB/s, this library $b MiB/s, $(awk -v a="$a" -v b="$b" 'BEGIN {print (a > 0 ? b / a : "?")}') of it"
done
