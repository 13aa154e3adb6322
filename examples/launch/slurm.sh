#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# A job for SLURM: two nodes of eight GPUs, a rank for each GPU.
#
#   sbatch [OPTIONS OF sbatch, which go before those below] slurm.sh PROGRAM ARGUMENTS...
#
# Every rank sees all GPUs of its node (no --gpus-per-task) and takes the one of its local rank, so that ranks of a node
# reach each other's memory. A rank has two threads of its own beside the program's: a proxy's, and a receiver's.
#
#SBATCH --job-name=mscclpp
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=4
#SBATCH --time=00:10:00
#SBATCH --output=%x-%j.out
set -euo pipefail

# Rank 0 listens on the job's first node: whoever does not know this is refused there.
MSCCLPP_SECRET=$(od -An -N16 -tx8 /dev/urandom | tr -d ' ')
export MSCCLPP_SECRET
# srun does not take it over from the job by itself.
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK

exec srun --kill-on-bad-exit=1 "$@"
