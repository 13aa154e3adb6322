# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# In each of two guests: one rank of a job over verbs between them, which must choose them by itself, and one over TCP.
export MSCCLPP_TIMEOUT=60
"$1" --rank=$GUEST --address=10.7.0.1:5000 --rounds=10 --bytes=64K >/tmp/out 2>&1 || { cat /tmp/out; exit 1; }
cat /tmp/out
grep -q "uses ib" /tmp/out || { echo "verbs were not chosen"; exit 1; }
MSCCLPP_TRANSPORT=tcp "$1" --rank=$GUEST --address=10.7.0.1:5001 --rounds=10 --bytes=1M >/tmp/out 2>&1 || { cat /tmp/out; exit 1; }
cat /tmp/out
grep -q "uses tcp" /tmp/out || { echo "TCP was not used"; exit 1; }
