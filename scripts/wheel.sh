#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Builds the Python package as a wheel, with kernels for GPUs where there is a CUDA toolkit; it simulates, too. Then
# installs it into a fresh environment and tries it on simulated GPUs. Prints what the build took.
#
#   scripts/wheel.sh [--out=FOLDER] [--architectures=LIST] [--python=PYTHON] [--no-install]
#
# --out=            where the wheel goes; default build/wheel
# --architectures=  as CMake writes them, such as "90-real;100-real"; default: of the GPUs here, without any all that
#                   the toolkit has of those that the library knows
# --python=         whose version the wheel is for; default python3
# --no-install      only say which packages are missing
# MSCCLPP_USE_CUDA=OFF leaves CUDA alone even where it is installed; JOBS=N limits the build to N processes. What was
# built stays under build/wheel, so that a build that was broken off goes on from there.

# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

out=build/wheel
architectures=
python=python3
while [ $# -gt 0 ]; do
  case "$1" in
    --out=*) out=${1#*=} ;;
    --architectures=*) architectures=${1#*=} ;;
    --python=*) python=${1#*=} ;;
    --no-install) may_install=no ;;
    -h | --help) usage; exit 0 ;;
    *) die "unknown argument $1; see scripts/wheel.sh --help" ;;
  esac
  shift
done

require_packages g++ cmake ninja-build libfmt-dev libboost-context-dev python3 python3-dev python3-venv
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || die "--python=$python: Python from 3.10 on is needed"

settings=()
if have_cuda_toolkit; then
  [ -n "$architectures" ] || [ "$(gpu_count)" -eq 0 ] || architectures=$(gpu_architectures)
  say "with kernels for GPUs: ${architectures:-all that the toolkit has}"
  settings+=(-Ccmake.define.MSCCLPP_USE_CUDA=ON)
  [ -z "$architectures" ] || settings+=("-Ccmake.define.MSCCLPP_CUDA_ARCHITECTURES=$architectures")
  kind=cuda
else
  say "without a CUDA toolkit: it will simulate only"
  settings+=(-Ccmake.define.MSCCLPP_USE_CUDA=OFF)
  kind=sim
fi

mkdir -p "$out"
work=$root/build/wheel
[ -x "$work/venv/bin/python" ] || "$python" -m venv "$work/venv"
say "getting what builds it"
"$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check "scikit-build-core>=0.10" "nanobind>=2.4"
say "building, $jobs processes"
begin=$SECONDS
rm -f "$work"/made/*.whl
CMAKE_BUILD_PARALLEL_LEVEL=$jobs "$work/venv/bin/python" -m pip wheel --quiet --disable-pip-version-check --no-deps \
  --no-build-isolation "-Cbuild-dir=$work/cmake-$kind" "${settings[@]}" --wheel-dir "$work/made" .
say "built in $((SECONDS - begin)) s"
wheel=$(echo "$work"/made/*.whl)
mv "$wheel" "$out/"
wheel=$out/$(basename "$wheel")
say "trying it"
"$python" -B test/packaging/wheel.py "--wheel=$wheel" "--work=$work/try" "--kind=$kind"
say "$wheel, $(($(stat -c %s "$wheel") >> 20)) MiB"
