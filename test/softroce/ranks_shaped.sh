# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# In each of two guests: two ranks of every collective, by TCP over a cable that loses, delays and reorders packets.
# shellcheck source=/dev/null
. "$2"
real-tc qdisc add dev eth0 root netem loss 1% delay 5ms 5ms || exit 1
# The guests have RDMA devices as well.
export MSCCLPP_TRANSPORT=tcp
ranks "$1" tcp
real-tc -s qdisc show dev eth0
# Of some 5000 packets; where none is lost, nothing has been shown.
real-tc -s qdisc show dev eth0 | grep -q "dropped [1-9]" || { echo "no packet was lost"; exit 1; }
