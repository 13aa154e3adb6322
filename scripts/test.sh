#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Builds everything and runs the tests: the simulator with g++ and, where there is a CUDA toolkit, every CUDA source with
# nvcc. Where no GPU is there to run it, all headers and the tests of PTX are compiled for every generation of GPUs, the
# rest for one, with fewer optimisations, and of tests and examples only the device's half. The last line printed is
# 'N passed, N failed'.
#
#   scripts/test.sh [--no-install] [--torch] [-- ARGUMENTS OF ctest]
#
# --no-install   only say which packages are missing
# --torch        with PyTorch, from PyPI (5.3 GB), for the tests that import it
#
# What the Python package and its tests need comes from PyPI into build/python; without it they are left out.
# MSCCLPP_USE_CUDA=OFF leaves CUDA alone; MSCCLPP_WERROR=ON makes warnings errors; JOBS=N limits the processes.

# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

ctest_arguments=()
torch=no
while [ $# -gt 0 ]; do
  case "$1" in
    --no-install) may_install=no ;;
    --torch) torch=yes ;;
    -h | --help) usage; exit 0 ;;
    --) shift; ctest_arguments=("$@"); break ;;
    *) die "unknown argument $1; see scripts/test.sh --help" ;;
  esac
  shift
done

finish() {
  printf '%d passed, %d failed\n' "$1" "$2"
  [ "$1" -gt 0 ] && [ "$2" -eq 0 ]
  exit
}

require_packages g++ cmake ninja-build python3 libfmt-dev libboost-context-dev doctest-dev libbenchmark-dev libcli11-dev \
  nlohmann-json3-dev openmpi-bin libibverbs-dev python3-dev python3-venv
# For jobs over several hosts; where they are foreign to this machine, their tests are skipped.
if [ "$(uname -m)" = x86_64 ]; then
  require_packages iproute2 qemu-system-x86 busybox-static cpio ibverbs-providers
fi

# For the tests of format, of what clang-tidy and other compilers say, and of these scripts; without them those are skipped.
want_packages clang-format-14 clang-tidy-14 clang-16 shellcheck
# The site is looked at in a browser.
want_packages chromium chromium-driver
# What headers cost to compile is counted in instructions.
want_packages valgrind
# An example job is run by a controller and nodes of SLURM's own.
want_packages slurm-wlm
# The tests that take this library into another project need not compile it again: the library is cached, for which the
# programs would only pay. Some 200 of them are linked.
want_packages ccache lld
use_ccache

build=build/test
# Most programs run for seconds: -O2 takes them three times as long to compile, -O1 one and a half, and at -O1 they run no
# faster.
configure=("-DMSCCLPP_WERROR=${MSCCLPP_WERROR:-OFF}" "-DMSCCLPP_TEST_OPTIONS=-Og -g1")
configure+=(-DMSCCLPP_CACHE_TESTS=OFF "-DMSCCLPP_JOIN_SOURCES=$root/build/joined")
! have_command ld.lld || configure+=(-DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=lld)
if have_cuda_toolkit; then
  configure+=(-DMSCCLPP_USE_CUDA=ON)
  # Without a GPU it shows that it compiles, no more: the host half without optimisations, the device half with few and to
  # PTX only, which takes half the time. The tests of PTX and of the kernels' cost optimise fully and assemble, and g++ does
  # the same sources for the simulator.
  if [ "$(gpu_count)" -eq 0 ]; then
    configure+=(-DMSCCLPP_CUDA_ARCHITECTURES=90-virtual -DMSCCLPP_FIXED_RANKS=OFF -DCMAKE_CUDA_FLAGS_RELWITHDEBINFO=-DNDEBUG)
    ! nvcc_knows --Ofast-compile || configure+=(-DCMAKE_CUDA_FLAGS=-Ofc=max)
  fi
else
  say "without CUDA"
  build=build/test-sim
  configure+=(-DMSCCLPP_USE_CUDA=OFF)
fi

# python_packages NAME...: has them in build/python, or says that they are not there.
python_packages() {
  [ "$may_install" = yes ] || return 1
  [ -x build/python/bin/python ] || python3 -m venv build/python || return 1
  build/python/bin/python -m pip install --quiet --disable-pip-version-check "$@"
}
say "Python"
python=$root/build/python/bin/python
if python_packages nanobind scikit-build-core numpy pybind11 || "$python" -c 'import nanobind, numpy' 2>/dev/null; then
  configure+=(-DMSCCLPP_BUILD_PYTHON=ON "-DPython_EXECUTABLE=$python")
else
  warn "no nanobind or numpy in build/python; the Python package and its tests are left out"
  configure+=(-DMSCCLPP_BUILD_PYTHON=OFF)
fi
python_packages --requirement scripts/site/requirements.txt selenium ||
  warn "no MkDocs or Selenium in build/python; the site's test is skipped"
python_packages kubernetes-validate || warn "no kubernetes-validate in build/python; the test of its example job is skipped"
# PyTorch is large, and only tests need it, so it comes while the rest is compiled.
torch_install=
if [ "$torch" = yes ]; then
  configure+=("-DMSCCLPP_TORCH_PYTHON=$python")
  python_packages torch==2.11.0 expecttest &
  torch_install=$!
fi

say "configuring $build"
cmake "${cmake_common[@]}" -B "$build" "${configure[@]}" || finish 0 1

say "building"
start=$SECONDS
build_failed=0
# One broken source must not hide what the others' tests say.
cmake --build "$build" --parallel "$jobs" -- -k 0 || build_failed=1
say "built in $((SECONDS - start)) s"
[ "$build_failed" -eq 0 ] || warn "the build failed; tests whose program is missing fail below"

if [ -n "$torch_install" ] && ! wait "$torch_install"; then
  warn "PyTorch could not be installed; the tests that import it are skipped"
  cmake -B "$build" -DMSCCLPP_TORCH_PYTHON= >/dev/null || finish 0 1
fi

say "testing"
start=$SECONDS
log=$build/ctest.log
ctest --test-dir "$build" --output-on-failure --no-tests=error --parallel "$jobs" \
  ${ctest_arguments[@]+"${ctest_arguments[@]}"} | tee "$log" && ctest_failed=0 || ctest_failed=1
say "tested in $((SECONDS - start)) s"

# ctest: '97% tests passed, 2 tests failed out of 64'
summary=$(sed -n 's/^[0-9]*% tests passed, \([0-9]*\) tests\{0,1\} failed out of \([0-9]*\)$/\1 \2/p' "$log" | tail -n 1)
if [ -z "$summary" ]; then
  warn "ctest ran no test"
  finish 0 1
fi
read -r failed total <<<"$summary"
passed=$((total - failed))
# A failed build, and whatever ctest complains of beyond the tests it counts, are failures as well.
[ "$build_failed" -eq 0 ] || failed=$((failed + 1))
[ "$ctest_failed" -eq 0 ] || [ "$failed" -gt 0 ] || failed=1
finish "$passed" "$failed"
