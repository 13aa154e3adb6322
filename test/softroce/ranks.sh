# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What ranks_verbs.sh and ranks_shaped.sh share: ranks of several guests, which call every collective, in place and apart,
# and check what comes out. Each of two guests has two ranks, each of more has one.
each=$((GUESTS > 2 ? 1 : 2))
export MSCCLPP_TIMEOUT=60 MSCCLPP_WORLD_SIZE=$((each * GUESTS)) MSCCLPP_MASTER_ADDR=10.7.0.1
rank() {  # the program, and which of this guest's ranks
  MSCCLPP_LOCAL_RANK=$2 MSCCLPP_RANK=$((each * GUEST + $2)) "$1" >"/tmp/out$2" 2>&1
}
ranks() {  # the program, and how its ranks must reach those of other guests
  failed=
  other=
  [ $each = 1 ] || { rank "$1" 1 & other=$!; }
  rank "$1" 0 || failed=yes
  [ -z "$other" ] || wait "$other" || failed=yes
  cat /tmp/out*
  [ -z "$failed" ] || exit 1
  for out in /tmp/out*; do
    grep -q "reaches other hosts by $2" $out || { echo "$2 was not used"; exit 1; }
    grep -q "of $GUESTS nodes: 54 calls, 0 wrong" $out || { echo "not all calls were made"; exit 1; }
  done
}
