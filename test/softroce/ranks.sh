# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What ranks_verbs.sh and ranks_shaped.sh share: in each of two guests two ranks, which call every collective, in place and
# apart, and check what comes out.
export MSCCLPP_TIMEOUT=60 MSCCLPP_WORLD_SIZE=4 MSCCLPP_MASTER_ADDR=10.7.0.1
rank() {  # the program, and which of this guest's ranks
  MSCCLPP_LOCAL_RANK=$2 MSCCLPP_RANK=$((2 * GUEST + $2)) "$1" >"/tmp/out$2" 2>&1
}
ranks() {  # the program, and how its ranks must reach those of the other guest
  failed=
  rank "$1" 1 &
  rank "$1" 0 || failed=yes
  wait $! || failed=yes
  cat /tmp/out0 /tmp/out1
  [ -z "$failed" ] || exit 1
  for out in /tmp/out0 /tmp/out1; do
    grep -q "reaches other hosts by $2" $out || { echo "$2 was not used"; exit 1; }
    grep -q "of 2 nodes: 54 calls, 0 wrong" $out || { echo "not all calls were made"; exit 1; }
  done
}
