# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# In the guest: the tests of the verbs transport over two devices that a cable joins, without and with loss.
export MSCCLPP_TEST_VERBS=1 MSCCLPP_TEST_VERBS_DEVICES="rxe0;rxe1"
"$1" || exit 1
for end in 0 1; do real-tc qdisc add dev veth$end root netem loss 4% || exit 1; done
echo "with 4 % of the packets lost"
MSCCLPP_TEST_VERBS_LARGEST=2000000 "$1" --test-case="*whole*,*immediate*,*stay in order*" || exit 1
# Something was lost, or the second run has shown nothing.
real-tc -s qdisc show dev veth0 | grep -q "dropped [1-9]" || { echo "no packet was lost"; exit 1; }
