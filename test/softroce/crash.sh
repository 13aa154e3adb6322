# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# In the guest: its kernel crashes at the first attempt. That must end the guest, be told, and be tried again.
[ "$ATTEMPT" = 1 ] && echo c >/proc/sysrq-trigger
[ "$ATTEMPT" = 2 ] && echo "the second attempt"
