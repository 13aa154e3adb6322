#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Builds the library, its commands and, where there is a CUDA toolkit, kernels for GPUs and NCCL's interface, and packs
# them: a tarball, which works wherever it is unpacked, and on Debian and Ubuntu a .deb for the release that it was built
# on. Prints their names.
#
#   scripts/package.sh [--out=FOLDER] [--architectures=LIST] [--no-install]
#
# --out=            where the packages go; default build/package
# --architectures=  as CMake writes them, such as "90-real;100-real"; default: of the GPUs here, without any all that
#                   the library knows
# --no-install      only say which packages are missing
# MSCCLPP_USE_CUDA=OFF leaves CUDA alone even where it is installed; JOBS=N limits the build to N processes. What was
# built stays under build/package, so that a build that was broken off goes on from there.

# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

out=build/package
architectures=
while [ $# -gt 0 ]; do
  case "$1" in
    --out=*) out=${1#*=} ;;
    --architectures=*) architectures=${1#*=} ;;
    --no-install) may_install=no ;;
    -h | --help) usage; exit 0 ;;
    *) die "unknown argument $1; see scripts/package.sh --help" ;;
  esac
  shift
done

require_packages g++ cmake ninja-build libfmt-dev libboost-context-dev libbenchmark-dev libcli11-dev nlohmann-json3-dev
have_command cpack || die "cpack is missing, which comes with CMake"

# The benchmark is what mscclpp-plan and mscclpp-tune are built with.
configure=(-DCMAKE_BUILD_TYPE=Release -DMSCCLPP_BUILD_TESTS=OFF -DMSCCLPP_BUILD_EXAMPLES=OFF -DMSCCLPP_BUILD_BENCH=ON)
if have_cuda_toolkit; then
  [ -n "$architectures" ] || [ "$(gpu_count)" -eq 0 ] || architectures=$(gpu_architectures)
  say "with kernels for GPUs: ${architectures:-all that the library knows}"
  configure+=(-DMSCCLPP_USE_CUDA=ON)
  [ -z "$architectures" ] || configure+=("-DMSCCLPP_CUDA_ARCHITECTURES=$architectures")
  kind=cuda
else
  say "without a CUDA toolkit: it will simulate only"
  configure+=(-DMSCCLPP_USE_CUDA=OFF)
  kind=sim
fi

work=build/package/cmake-$kind
cmake "${cmake_common[@]}" -B "$work" "${configure[@]}"
say "building, $jobs processes"
begin=$SECONDS
cmake --build "$work" --parallel "$jobs" --target mscclpp_installed
say "built in $((SECONDS - begin)) s"
rm -rf "$work/packed"
cpack --config "$work/CPackConfig.cmake" -B "$work/packed" >"$work/cpack.log" || die "cpack failed: $(cat "$work/cpack.log")"
mkdir -p "$out"
for file in "$work"/packed/*.tar.gz "$work"/packed/*.deb; do
  [ -f "$file" ] || continue
  mv "$file" "$out/"
  say "$out/$(basename "$file"), $(($(stat -c %s "$out/$(basename "$file")") >> 20)) MiB"
done
