#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# From an empty checkout to a checked allreduce: over every GPU of this machine, or over 4 simulated GPUs where there is
# none (or no CUDA toolkit). Prints a table and ends non-zero if any element is wrong.
#
#   scripts/quickstart.sh [--no-install] [-- SETTINGS OF mscclpp-bench, AS --NAME=VALUE]
#
# --no-install   only say which packages are missing
# MSCCLPP_USE_CUDA=OFF leaves CUDA alone even where it is installed; JOBS=N limits the build to N processes.

# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

bench=()
while [ $# -gt 0 ]; do
  case "$1" in
    --no-install) may_install=no ;;
    -h | --help) usage; exit 0 ;;
    --) shift; bench=("$@"); break ;;
    *) die "unknown argument $1; see scripts/quickstart.sh --help" ;;
  esac
  shift
done

require_packages g++ cmake ninja-build libfmt-dev libboost-context-dev libbenchmark-dev libcli11-dev nlohmann-json3-dev

gpus=$(gpu_count)
build=build/quickstart
configure=(-DMSCCLPP_BUILD_TESTS=OFF -DMSCCLPP_BUILD_EXAMPLES=OFF -DMSCCLPP_BUILD_TOOLS=OFF -DCMAKE_BUILD_TYPE=Release)
if [ "$gpus" -gt 0 ] && have_cuda_toolkit; then
  say "$gpus GPU(s)"
  configure+=(-DMSCCLPP_USE_CUDA=ON "-DMSCCLPP_CUDA_ARCHITECTURES=$(gpu_architectures)" "-DCMAKE_CXX_FLAGS_RELEASE=-O3 -DNDEBUG")
  run=(--device=cuda "--ranks=$gpus" --max-bytes=64M)
else
  [ "$gpus" -eq 0 ] || say "$gpus GPU(s), but no CUDA toolkit to compile for them"
  say "using 4 simulated GPUs"
  # A simulated machine's times say nothing, and -O3 takes twice as long to compile.
  configure+=(-DMSCCLPP_USE_CUDA=OFF "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG")
  run=(--device=sim --ranks=4 --max-bytes=1M)
fi

say "configuring $build"
cmake "${cmake_common[@]}" -B "$build" "${configure[@]}"
say "building"
cmake --build "$build" --target mscclpp-bench --parallel "$jobs"
say "running"
# What the caller gives takes the place of the setting of that name.
for setting in "${run[@]}" --collective=allreduce --min-bytes=1K; do
  case " ${bench[*]-} " in
    *" ${setting%%=*}"[=\ ]*) ;;
    *) bench+=("$setting") ;;
  esac
done
exec "$build/bench/mscclpp-bench" "${bench[@]}"
