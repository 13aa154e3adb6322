#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What programs that speak NCCL, and PyTorch, take on this library beside NCCL, on a machine with GPUs: nccl-tests, eager and
# in graphs; PyTorch's collectives; training steps and decode steps of a transformer, on NCCL, with this library preloaded,
# by its backend, and by its operators. Takes what scripts/gpu.sh or cmake has built (targets mscclpp_nccl and
# python_package) and writes bench/results/nccl/<gpu>x<n>_programs.md.
#
#   scripts/nccl_programs.sh [--sources=FOLDER] [--nccl=FILE] [--build=FOLDER] [--out=FILE.md] [--parts=LIST]
#
# --sources=  of nccl-tests (scripts/nccl_tests.sh)
# --nccl=     NVIDIA's libnccl.so.2; default: what the system's loader knows
# --build=    default build/gpu
# --parts=    of tests, collectives, training, decode; default all
# A process for each GPU. What fails is named in the file, and the exit status is 1. NVLink multicast is kept off in all.

# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

sources=
nccl=
build=build/gpu
out=
parts=tests,collectives,training,decode
while [ $# -gt 0 ]; do
  case "$1" in
    --sources=*) sources=${1#*=} ;;
    --nccl=*) nccl=${1#*=} ;;
    --build=*) build=${1#*=} ;;
    --out=*) out=${1#*=} ;;
    --parts=*) parts=${1#*=} ;;
    -h | --help) usage; exit 0 ;;
    *) die "unknown argument $1; see scripts/nccl_programs.sh --help" ;;
  esac
  shift
done
for part in ${parts//,/ }; do
  case "$part" in
    tests | collectives | training | decode) ;;
    *) die "--parts=$parts: there is no part '$part'; see scripts/nccl_programs.sh --help" ;;
  esac
done
wanted() { [[ ,$parts, == *,$1,* ]]; }

export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
gpus=$(gpu_count)
[ "$gpus" -ge 2 ] || die "there are $gpus GPUs here, and programs need 2"
preload=$(cd "$build/apps/nccl" && pwd)/libnccl.so.2
[ -e "$preload" ] || die "--build=$build has no apps/nccl/libnccl.so.2; build the target mscclpp_nccl"
nccl=${nccl:-$(ldconfig -p | sed -n 's/.*libnccl\.so\.2 .*=> //p' | head -n 1)}
! wanted tests || [ -e "$nccl" ] || die "there is no libnccl.so.2 of NVIDIA's; name it by --nccl="
gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader | sed -n 1p)
out=${out:-bench/results/nccl/$(slug_of "$gpu")x${gpus}_programs.md}
work=$build/nccl-programs
mkdir -p "$work" "$(dirname "$out")"
status=0
failed() {
  warn "$1"
  printf '\n**%s**\n' "$1" >>"$out"
  status=1
}
{
  printf '# Programs that speak NCCL, and PyTorch, on %s x %s\n\n' "$gpus" "$gpu"
  measured_on
  printf '\nA process for each GPU; multicast off in all. %s\n' "$(python3 -c 'import torch; print("PyTorch", torch.__version__, "with NCCL", ".".join(map(str, torch.cuda.nccl.version())))' 2>/dev/null || true)"
} >"$out"

if wanted tests; then
  say "nccl-tests"
  printf '\n## nccl-tests\n\nNCCL is %s; -G 20 is a graph of 20 calls.\n\n' "$(basename "$(readlink -f "$nccl")")" >>"$out"
  rm -f "$work/tests/compared.md"
  NCCL_TESTS_LIMIT=60 bash scripts/nccl_tests.sh "--sources=$sources" "--library=$build/apps/nccl" "--build=$work/tests" --processes \
    '--variants=-G 20' "--beside=$nccl" -- -b 8 -e 1G -f 8 -n 20 -w 5 -c 1 | tee "$work/tests.txt" ||
    failed "nccl-tests were not all right, or not all there: $(tail -n 1 "$work/tests.txt")"
  [ ! -s "$work/tests/compared.md" ] || cat "$work/tests/compared.md" >>"$out"
fi

package=$build/python/package
export PYTHONPATH=$package${PYTHONPATH:+:$PYTHONPATH}
if wanted collectives; then
  say "PyTorch's collectives"
  printf '\n## PyTorch: collectives\n\n' >>"$out"
  rm -f "$work/collectives.md"
  timeout --kill-after=10 150 python3 -m mscclpp.bench "--ranks=$gpus" --modes=eager,graph --max-bytes=64M --samples=20 \
    "--output=$work/collectives" >"$work/collectives.txt" 2>&1 || failed "python -m mscclpp.bench did not end well: $(tail -n 1 "$work/collectives.txt")"
  [ ! -s "$work/collectives.md" ] || cat "$work/collectives.md" >>"$out"
fi

# transformer WAY BACKEND PRELOADED ARGUMENTS
transformer() {
  local file=$work/$1.json way=$1 backend=$2 preloaded=$3
  shift 3
  rm -f "$file"
  timeout --kill-after=10 200 python3 -m torch.distributed.run --standalone "--nproc-per-node=$gpus" --no-python \
    env ${preloaded:+"LD_PRELOAD=$preloaded"} python3 bench/torch/transformer.py "--backend=$backend" "--way=$way" \
    "--output=$file" "$@" >"$work/$way.txt" 2>&1 || failed "a transformer on '$way' did not end well: $(tail -n 1 "$work/$way.txt")"
  [ ! -s "$file" ] || measured+=("$file")
}
if wanted training || wanted decode; then
  say "a transformer"
  printf '\n## PyTorch: a transformer\n\n' >>"$out"
  measured=()
  arguments=()
  ! wanted training || arguments+=("--train=ddp,fsdp2,tensor")
  ! wanted decode || arguments+=(--decode "--batches=1,4,16,64")
  transformer NCCL nccl '' "${arguments[@]}"
  transformer preloaded nccl "$preload" "${arguments[@]}"
  transformer backend mscclpp '' "${arguments[@]}"
  ! wanted decode || transformer fused mscclpp "" --decode --fused "--batches=1,4,16,64"
  [ ${#measured[@]} -eq 0 ] || python3 bench/torch/transformer_table.py "${measured[@]}" >>"$out" ||
    failed "a part of the transformer was not measured, or results differ between the ways"
fi
say "wrote $out"
exit "$status"
