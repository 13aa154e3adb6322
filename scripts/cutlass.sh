#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Compiles examples/cutlass, CUTLASS's kernels with the parts of mscclpp/cutlass.hpp, and looks at what ptxas says of
# them: a kernel of CUTLASS must not spill registers, nor have its wgmma serialised (C7510) or its setmaxnreg ignored
# (C7507), as calls inside it make it. Then the same as an arm of mscclpp-bench-parallel, and mscclpp-bench-hooks. Takes minutes and 4 GB, so no test does it. No kernel is run; test/cutlass/parts.cu
# is, which looks on the host what the parts refuse.
#
#   scripts/cutlass.sh [--no-install]
#
# CUTLASS's headers are those of the folder MSCCLPP_CUTLASS; else of nvidia-cutlass 4.2.0 from PyPI, unpacked into
# build/cutlass.

# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

while [ $# -gt 0 ]; do
  case "$1" in
    --no-install) may_install=no ;;
    -h | --help) usage; exit 0 ;;
    *) die "unknown argument $1; see scripts/cutlass.sh --help" ;;
  esac
  shift
done

have_cuda_toolkit || die "no CUDA toolkit"
build=build/cutlass
mkdir -p "$build"
headers=${MSCCLPP_CUTLASS:-$build/package/cutlass_library/source/include}
if [ ! -e "$headers/cutlass/cutlass.h" ]; then
  [ "$may_install" = yes ] || die "no CUTLASS in $headers; set MSCCLPP_CUTLASS"
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$build" nvidia-cutlass==4.2.0
  python3 -m zipfile -e "$build"/nvidia_cutlass-4.2.0*.whl "$build/package"
fi

say "compiling examples/cutlass"
log=$build/ptxas.log
start=$SECONDS
options=(-std=c++20 --expt-relaxed-constexpr -DNDEBUG -DMSCCLPP_HAS_CUDA=1 -Iinclude -isystem "$headers"
  -gencode "arch=compute_90a,code=sm_90a")
if ! "$(nvcc_path)" "${options[@]}" -O3 -Xptxas -v -c -o "$build/tensor_parallel.o" examples/cutlass/tensor_parallel.cu >"$log" 2>&1; then
  cat "$log"
  die "examples/cutlass does not compile"
fi
say "compiled in $((SECONDS - start)) s"

# Of each kernel of CUTLASS: what it is, its stack and spills, its registers.
awk '
  /C7507|C7510/ { print; bad = 1 }
  /Compiling entry function/ {
    ours = /device_kernel/
    parts = ""
    if (/5Gated/) parts = parts " Gated"
    if (/12PeerEpilogue/) parts = parts " PeerEpilogue"
    what = "GemmUniversal with" parts
  }
  ours && /bytes stack frame/ && !/ 0 bytes spill stores, 0 bytes spill loads/ { print what ":" $0; bad = 1 }
  ours && /Used [0-9]+ registers/ { print what ": " $5 " registers"; kernels++ }
  END { exit bad || kernels != 2 }
' "$log" || die "not as it should be; all that ptxas says is in $log"

say "compiling what is measured"
for source in parallel/cutlass_arm product/hooks_main; do
  "$(nvcc_path)" "${options[@]}" -Ibench -I. -c -o "$build/${source##*/}.o" "bench/$source.cu"
done

say "what the parts refuse"
"$(nvcc_path)" "${options[@]}" -o "$build/parts" test/cutlass/parts.cu
"$build/parts"
