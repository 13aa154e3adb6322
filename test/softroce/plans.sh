# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# In each of two guests: two ranks of plans whose ports go over verbs between them.
export MSCCLPP_TIMEOUT=100 MSCCLPP_WORLD_SIZE=4 MSCCLPP_MASTER_ADDR=10.7.0.1
command=$1
port=5000
shift
for plan in "$@"; do
  port=$((port + 1))
  for local in 0 1; do
    MSCCLPP_MASTER_PORT=$port MSCCLPP_LOCAL_RANK=$local MSCCLPP_RANK=$((2 * GUEST + local)) \
      "$command" run "$plan" --device=sim --size=8K --iterations=3 >/tmp/out$local 2>&1 &
    eval process$local=$!
  done
  wait $process0 && wait $process1 || { cat /tmp/out0 /tmp/out1; exit 1; }
  cat /tmp/out0
  [ $GUEST = 1 ] || grep -q "right: " /tmp/out0 || { echo "$plan is not right"; exit 1; }
done
sent=$(cat /sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts)
echo "$sent packets over verbs"
[ "$sent" -gt 0 ] || { echo "verbs were not chosen"; exit 1; }
