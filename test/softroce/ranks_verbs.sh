# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# In each of several guests: ranks of every collective, by verbs between the guests, which they must choose by themselves.
# shellcheck source=/dev/null
. "$2"
ranks "$1" ib
sent=$(cat /sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts)
echo "$sent packets over verbs"
[ "$sent" -gt 0 ] || { echo "nothing went over verbs"; exit 1; }
