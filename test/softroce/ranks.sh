# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What ranks_verbs.sh and ranks_shaped.sh share: ranks of several guests, which call every collective, in place and apart,
# and check what comes out. Each guest has EACH ranks; where nothing is said two of two guests, and one of more. With TYPES
# they call every collective by every operation and type, of which a run takes the first part of so many, of COUNT
# elements where that is said; with many ranks for two emulated processors, a call may then wait for minutes.
each=${EACH:-$((GUESTS > 2 ? 1 : 2))}
what= calls=54 seconds=60
[ -z "$TYPES" ] || { what=types=1/$TYPES calls='[1-9][0-9]*' seconds=300; }
export MSCCLPP_ROUND_BYTES=$((each * GUESTS * 16384))  # a round costs many ranks a second
export MSCCLPP_TIMEOUT=$seconds MSCCLPP_WORLD_SIZE=$((each * GUESTS)) MSCCLPP_MASTER_ADDR=10.7.0.1
# shellcheck disable=SC3040
set -o pipefail
rank() {  # the program, and which of this guest's ranks
  # shellcheck disable=SC2086
  MSCCLPP_LOCAL_RANK=$2 MSCCLPP_RANK=$((each * GUEST + $2)) "$1" $what 2>&1 | tee "/tmp/out$2"
}
ranks() {  # the program, and how its ranks must reach those of other guests
  failed=
  others=
  number=1
  while [ $number -lt "$each" ]; do
    rank "$1" $number & others="$others $!"
    number=$((number + 1))
  done
  rank "$1" 0 || failed=yes
  for other in $others; do wait "$other" || failed=yes; done
  [ -z "$failed" ] || exit 1
  for out in /tmp/out*; do
    [ -n "$what" ] || grep -q "reaches other hosts by $2" "$out" || { echo "$2 was not used"; exit 1; }
    grep -q "of $GUESTS nodes: $calls calls, 0 wrong" "$out" || { echo "not all calls were made"; exit 1; }
  done
}
