#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Runs NVIDIA's nccl-tests, unmodified, on this library's libmscclpp_nccl.so, and fails where one finds a wrong result.
#
#   scripts/nccl_tests.sh --sources=FOLDER [--library=FOLDER] [--include=FOLDER] [--build=FOLDER] [--ranks=N]
#                         [--programs=LIST] [--device=N] [--processes] [--variants[=LIST]] [--beside=FILE]
#                         [-- ARGUMENTS OF THE PROGRAMS]
#
# --sources=    of nccl-tests, which this repository does not hold (https://github.com/NVIDIA/nccl-tests)
# --library=    where libmscclpp_nccl.so is; default build/gpu/apps/nccl
# --include=    where NVIDIA's nccl.h is; default /usr/include
# --build=      of the programs; default build/nccl-tests
# --ranks=      default: one for each GPU, as threads of one process. More than there are GPUs: processes that share the
#               first one, under MPS where its control daemon is here, with Open MPI
# --programs=   separated by commas; default all ten
# --device=     the GPU that shared ranks have; default 0
# --processes   a process for each rank, by Open MPI, also where each has a GPU
# --variants    the arguments, then sums with each of: graphs, several collectives at once, registered buffers, symmetric
#               windows, unaligned buffers, a wait after each call, communicators made in parallel; or those of the list,
#               separated by commas
# --beside=     NVIDIA's libnccl.so.2: each program runs on it, too, one after the other, and the times of both are written
#               to compared.md in the folder of --build
# Without further arguments: 8 bytes to 64 MiB, every result checked, all types and operations.
# First, an all-reduce that leaves out the last element has to be found wrong.
# One line a program, and the last line is 'N passed, N failed'. An MPS daemon that runs already is used.

# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

sources=
library=build/gpu/apps/nccl
include=/usr/include
build=build/nccl-tests
ranks=
device=0
processes=no
beside=
variants=('')
programs=all_reduce,all_gather,broadcast,reduce_scatter,reduce,alltoall,scatter,gather,sendrecv,hypercube
arguments=()
while [ $# -gt 0 ]; do
  case "$1" in
    --sources=*) sources=${1#*=} ;;
    --library=*) library=${1#*=} ;;
    --include=*) include=${1#*=} ;;
    --build=*) build=${1#*=} ;;
    --ranks=*) ranks=${1#*=} ;;
    --programs=*) programs=${1#*=} ;;
    --device=*) device=${1#*=} ;;
    --processes) processes=yes ;;
    --beside=*) beside=${1#*=} ;;
    --variants=*) variants=('') && while IFS= read -r each; do variants+=("$each"); done < <(tr , '\n' <<<"${1#*=}") ;;
    --variants) variants=('' '-G 2' '-m 4' '-R 1' '-R 2' '-u 1' '-z 1' '-p 1') ;;
    -h | --help) usage; exit 0 ;;
    --) shift; arguments=("$@"); break ;;
    *) die "unknown argument $1; see scripts/nccl_tests.sh --help" ;;
  esac
  shift
done
[ ${#arguments[@]} -gt 0 ] || arguments=(-b 8 -e 64M -f 4 -c 1 -n 5 -w 1 -d all -o all)

[ -f "$sources/src/common.cu" ] || die "--sources=$sources holds no nccl-tests"
[ -f "$include/nccl.h" ] || die "--include=$include holds no nccl.h; NVIDIA's package nvidia-nccl-cu13 has one"
[ -e "$library/libnccl.so.2" ] || die "--library=$library holds no libnccl.so.2; build the target mscclpp_nccl"
gpus=$(gpu_count)
[ "$gpus" -gt 0 ] || die "there is no GPU here"
ranks=${ranks:-$gpus}
mpi=0
[ "$ranks" -le "$gpus" ] && [ "$processes" = no ] || mpi=1
[ -z "$beside" ] || [ -e "$beside" ] || die "--beside=$beside is no file"

mkdir -p "$build/home/include" "$build/home/lib"
build=$(cd "$build" && pwd)
library=$(cd "$library" && pwd)
for header in "$include"/nccl.h "$include"/nccl_device.h "$include"/nccl_device; do
  [ ! -e "$header" ] || ln -sfn "$(cd "$(dirname "$header")" && pwd)/$(basename "$header")" "$build/home/include/"
done
ln -sfn "$library/libnccl.so.2" "$build/home/lib/libnccl.so"

say "building nccl-tests, MPI=$mpi"
cuda_home=$(dirname "$(dirname "$(nvcc_path)")")
make=(make -C "$sources/src" -j "$jobs" "BUILDDIR=$build/mpi$mpi" "MPI=$mpi" "CUDA_HOME=$cuda_home"
  "NCCL_HOME=$build/home" "NVCC_GENCODE=-gencode=arch=compute_90,code=sm_90")
[ "$mpi" -eq 0 ] || make+=("MPI_HOME=${MPI_HOME:-/usr/lib/x86_64-linux-gnu/openmpi}")
"${make[@]}" >"$build/make.txt" 2>&1 || { tail -n 20 "$build/make.txt" >&2; die "nccl-tests could not be built"; }

# Never through the switch's multicast, which may be forbidden where this runs.
export NCCL_NVLS_ENABLE=0 LD_LIBRARY_PATH="$library${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
launch=()
if [ "$mpi" -eq 1 ]; then
  launch=(mpirun --allow-run-as-root --oversubscribe -np "$ranks")
  if [ "$ranks" -gt "$gpus" ]; then
    export NCCL_TESTS_DEVICE=$device
    work=$(mktemp -d)
    finish() {
      stop_mps
      rm -rf "$work"
    }
    trap finish EXIT
    ! have_command nvidia-cuda-mps-control || start_mps "$work" || die "nvidia-cuda-mps-control does not start"
  fi
else
  arguments+=(-g "$ranks")
fi

cat >"$build/planted.c" <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <nccl.h>
ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
  __typeof__(&ncclAllReduce) const right = (__typeof__(&ncclAllReduce))dlsym(RTLD_NEXT, "ncclAllReduce");
  return right(in, out, count > 1 ? count - 1 : count, type, op, comm, stream);
}
END
"${CC:-cc}" -shared -fPIC -o "$build/planted.so" "$build/planted.c" "-I$build/home/include" "-I$cuda_home/include" -ldl ||
  die "the planted fault does not compile"

passed=0
failed=0
# of PROGRAM VARIANT [NAME]: NAME is that of what is preloaded.
log_of() { printf '%s\n' "$build/$1_$ranks${2:+_${2//[- ]/}}${3:+_$3}.txt"; }
run() {
  local log start=$SECONDS status=0 verdict=right rows
  log=$(log_of "$@")
  local given=("${arguments[@]}")
  # shellcheck disable=SC2206  # words of the table above
  [ -z "$2" ] || given+=($2 -o sum)
  timeout --kill-after=10 "${NCCL_TESTS_LIMIT:-300}" ${launch[@]+"${launch[@]}"} env "LD_PRELOAD=$preload" \
    "$build/mpi$mpi/$1_perf" "${given[@]}" >"$log" 2>&1 || status=$?
  # 'Out of bounds values : 0 OK' is printed where every element of every row was right.
  if [ "$status" -eq 0 ] && grep -q '# Out of bounds values : 0 OK' "$log"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    verdict="WRONG (status $status, see $log)"
  fi
  rows=$(grep -cE '^ +[0-9]+ +[0-9]+ ' "$log" || true)
  printf '%-16s %-5s %d ranks, %4d rows, %3d s: %s%s\n' "$1" "$2" "$ranks" "$rows" $((SECONDS - start)) "$verdict" "${3:+ on $3}"
}
preload=$build/planted.so
run all_reduce '' >/dev/null
grep -q '# Out of bounds values : [1-9][0-9]* FAILED' "$build/all_reduce_$ranks.txt" ||
  die "all_reduce does not find the planted fault, see $build/all_reduce_$ranks.txt"
preload='' passed=0 failed=0
tables=()
for variant in "${variants[@]}"; do
  for program in ${programs//,/ }; do
    run "$program" "$variant"
    [ -n "$beside" ] || continue
    preload=$beside
    run "$program" "$variant" nccl
    preload=''
    tables+=("$program${variant:+ $variant}" "$(log_of "$program" "$variant")" "$(log_of "$program" "$variant" nccl)")
  done
done
[ -z "$beside" ] || python3 scripts/nccl_table.py "${tables[@]}" >"$build/compared.md" || failed=$((failed + 1))
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
