#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# A job for Open MPI's mpirun: a rank for each slot of the hosts in a file, one 'HOST slots=8' a line.
#
#   openmpi.sh HOSTFILE PROGRAM ARGUMENTS...
#
# mpirun tells no rank where rank 0 is; it is on the file's first host.
set -euo pipefail

hostfile=$1
shift
MSCCLPP_MASTER_ADDR=$(sed -n '/^[^#]/ { s/[[:space:]].*//; p; q }' "$hostfile")
MSCCLPP_MASTER_PORT=${MSCCLPP_MASTER_PORT:-29720}
# Whoever does not know this is refused by rank 0.
MSCCLPP_SECRET=$(od -An -N16 -tx8 /dev/urandom | tr -d ' ')
export MSCCLPP_MASTER_ADDR MSCCLPP_MASTER_PORT MSCCLPP_SECRET

exec mpirun --hostfile "$hostfile" --map-by slot --bind-to none -x MSCCLPP_MASTER_ADDR -x MSCCLPP_MASTER_PORT \
  -x MSCCLPP_SECRET "$@"
