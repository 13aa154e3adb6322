#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# A job for torchrun: started on every host, a rank for each of its GPUs, or RANKS_PER_HOST of them.
#
#   MSCCLPP_SECRET=TEXT torchrun.sh HOSTS NUMBER FIRST PROGRAM ARGUMENTS...
#
# HOSTS: how many; NUMBER: of this one, from 0; FIRST: the name or address of host 0. Its ports MASTER_PORT (29500), for
# torchrun itself, and MASTER_PORT + 117, for rank 0, must be free. TEXT, such as 'openssl rand -hex 16' prints, is the
# same on all hosts: whoever does not know it is refused. A Python program is 'python train.py'.
set -euo pipefail

hosts=$1 number=$2 first=$3
shift 3
exec torchrun --nnodes="$hosts" --node-rank="$number" --nproc-per-node="${RANKS_PER_HOST:-gpu}" \
  --master-addr="$first" --master-port="${MASTER_PORT:-29500}" --no-python "$@"
