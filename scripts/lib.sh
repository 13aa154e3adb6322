# shellcheck shell=bash disable=SC2034
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Shared by the scripts of this folder; sourced, not run. Finds and installs what is missing, and finds GPUs.

set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

jobs=${JOBS:-$(nproc)}
may_install=yes

say() { printf '== %s\n' "$*"; }
warn() { printf 'warning: %s\n' "$*" >&2; }
die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# The comment at the head of the calling script is its help.
usage() { sed -n '1,3d; /^#/!q; s/^# \{0,1\}//; p' "$0"; }

# Number of GPUs that the driver offers, of those that CUDA_VISIBLE_DEVICES leaves where it is set; 0 where there is none.
gpu_count() {
  local list
  list=$(nvidia-smi -L 2>/dev/null) || list=
  if [ -n "$list" ] && [ -n "${CUDA_VISIBLE_DEVICES+set}" ]; then list=$(sed 's/^/GPU /; s/,/\nGPU /g' <<<"$CUDA_VISIBLE_DEVICES"); fi
  grep -c '^GPU .' <<<"$list" || true
}

# Architectures of the GPUs here, as CMake writes them: 90-real.
gpu_architectures() {
  nvidia-smi --query-gpu=compute_cap --format=csv,noheader | tr -d ' .' | sort -u | sed 's/$/-real/' | paste -sd ';'
}

# "NVIDIA H200" as part of a file's name: h200
slug_of() {
  printf '%s' "$1" | tr '[:upper:]' '[:lower:]' | sed 's/nvidia *//; s/ [0-9]*gb.*//; s/[^a-z0-9]\{1,\}/-/g; s/^-//; s/-$//'
}

# Where and with what figures are measured, as a Markdown table. MSCCLPP_COMMIT names the commit where there is no git.
measured_on() {
  local query=(nvidia-smi "--format=csv,noheader") gpu driver nvcc commit
  gpu=$("${query[@]}" --query-gpu=name 2>/dev/null | sed -n 1p) || gpu=
  driver=$("${query[@]}" --query-gpu=driver_version 2>/dev/null | sed -n 1p) || driver=
  nvcc=$("$(nvcc_path)" --version 2>/dev/null | sed -n 's/.*release.*, V\(.*\)/\1/p') || nvcc=
  commit=${MSCCLPP_COMMIT:-$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)}
  if [ -z "${MSCCLPP_COMMIT:-}" ] && [ -n "$(git status --porcelain --untracked-files=no 2>/dev/null)" ]; then
    commit="$commit with uncommitted changes"
  fi
  printf '| | |\n| --- | --- |\n'
  printf '| date | %s |\n' "$(date -u +%Y-%m-%d)"
  printf '| commit | %s |\n' "$commit"
  printf '| GPUs | %s x %s |\n' "$(gpu_count)" "${gpu:-none}"
  printf '| processor | %s, %s cores |\n' "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | sed -n 1p)" "$(nproc)"
  printf '| system | %s, kernel %s |\n' "$(. /etc/os-release && printf '%s' "$PRETTY_NAME")" "$(uname -r)"
  printf '| driver, CUDA | %s, nvcc %s |\n' "${driver:-none}" "${nvcc:-none}"
  printf '| compiler | %s |\n' "$("${CXX:-g++}" --version | sed -n 1p)"
  printf '| switch multicast | off, also in NCCL (NCCL_NVLS_ENABLE=0) |\n'
}

nvcc_path() { command -v nvcc || printf '%s\n' "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc"; }

# Whether a CUDA toolkit may be used: there, and not hidden by MSCCLPP_USE_CUDA.
have_cuda_toolkit() {
  case "${MSCCLPP_USE_CUDA:-AUTO}" in
    OFF | off | 0 | NO | no | FALSE | false | N | n) return 1 ;;
  esac
  [ -x "$(nvcc_path)" ]
}

# Whether nvcc of that toolkit has an option.
nvcc_knows() { [[ $("$(nvcc_path)" --help) == *"$1"* ]]; }

have_command() { command -v "$1" >/dev/null; }

# Whether a C++ compiler finds a header, in the system or in MSCCLPP_DEPS_DIR.
have_header() {
  have_command "${CXX:-g++}" || return 1
  local flags=()
  [ -z "${MSCCLPP_DEPS_DIR:-}" ] || flags+=("-I$MSCCLPP_DEPS_DIR/include")
  printf '#include <%s>\n' "$1" | "${CXX:-g++}" -std=c++20 ${flags[@]+"${flags[@]}"} -E -x c++ - >/dev/null 2>&1
}

# Debian package -> what shows that it, or another build of the same thing, is there.
present() {
  case "$1" in
    g++) have_command "${CXX:-g++}" ;;
    cmake) have_command cmake ;;
    ninja-build) have_command ninja ;;
    python3) have_command python3 ;;
    python3-dev) python3 -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null ;;
    python3-venv) python3 -c 'import ensurepip, venv' 2>/dev/null ;;
    openmpi-bin) have_command mpirun ;;
    slurm-wlm) have_command slurmctld || [ -x /usr/sbin/slurmctld ] ;;
    libfmt-dev) have_header fmt/core.h ;;
    libboost-context-dev) have_header boost/context/fiber.hpp ;;
    libbenchmark-dev) have_header benchmark/benchmark.h ;;
    libcli11-dev) have_header CLI/CLI.hpp ;;
    nlohmann-json3-dev) have_header nlohmann/json.hpp ;;
    libibverbs-dev) have_header infiniband/verbs.h ;;
    ibverbs-providers) [ -f /etc/libibverbs.d/rxe.driver ] ;;
    iproute2) have_command tc || [ -x /usr/sbin/tc ] || [ -x /sbin/tc ] ;;
    qemu-system-x86) have_command qemu-system-x86_64 ;;
    busybox-static) have_command busybox ;;
    cpio) have_command cpio ;;
    clang-format-14 | clang-tidy-14) have_command "$1" || [[ $("${1%-14}" --version 2>/dev/null) == *" version 14."* ]] ;;
    shellcheck | chromium) have_command "$1" ;;
    chromium-driver) have_command chromedriver ;;
    clang-16) have_command clang++-16 ;;
    ccache | valgrind) have_command "$1" ;;
    lld) have_command ld.lld ;;
    doctest-dev) have_header doctest/doctest.h || have_header doctest.h ;;
    *)
      warn "scripts/lib.sh does not know how to look for package $1"
      return 2
      ;;
  esac
}

# require_packages PACKAGE...: installs those that are missing, or refuses and says how.
require_packages() {
  local package missing=()
  for package in "$@"; do
    present "$package" || missing+=("$package")
  done
  if [ ${#missing[@]} -gt 0 ]; then
    local install=(apt-get install -y --no-install-recommends "${missing[@]}")
    if [ "$may_install" = no ]; then
      die "missing: ${missing[*]}. Install them with: sudo ${install[*]}"
    fi
    have_command apt-get || die "missing: ${missing[*]} (names of Debian packages). There is no apt-get here: install them
       with this system's package manager and run again with --no-install."
    local sudo=()
    if [ "$(id -u)" -ne 0 ]; then
      have_command sudo || die "missing: ${missing[*]}, and neither root nor sudo to install them. As root: ${install[*]}"
      sudo=(sudo)
    fi
    say "installing: ${missing[*]}"
    # A fresh machine has no package lists; an old one has stale ones.
    sudo+=(env DEBIAN_FRONTEND=noninteractive)
    if ! apt-cache show "${missing[@]}" >/dev/null 2>&1 || ! "${sudo[@]}" "${install[@]}"; then
      "${sudo[@]}" apt-get update
      "${sudo[@]}" "${install[@]}"
    fi
    for package in "${missing[@]}"; do
      present "$package" || die "$package was installed but is still not found"
    done
  fi
  local version
  version=$(cmake --version | sed -n '1s/[^0-9]*\([0-9]*\.[0-9]*\).*/\1/p')
  if [ "$(printf '3.25\n%s\n' "$version" | sort -V | sed -n 1p)" != 3.25 ]; then
    die "cmake is $version, 3.25 or newer is needed: pip install cmake, or https://apt.kitware.com"
  fi
}

# want_packages PACKAGE...: installs those that are missing and this system has; what then lacks is skipped with a reason.
want_packages() {
  local package missing=() sudo=()
  for package in "$@"; do
    present "$package" || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] && [ "$may_install" = yes ] && have_command apt-get || return 0
  [ "$(id -u)" -eq 0 ] || sudo=(sudo -n)
  say "installing, if this system has them: ${missing[*]}"
  for package in "${missing[@]}"; do
    ${sudo[@]+"${sudo[@]}"} env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$package" \
      >/dev/null 2>&1 || warn "no $package here; what needs it is skipped"
  done
}

# CMake arguments of every script's configure step.
cmake_common=(-G Ninja -S "$root")

# start_mps FOLDER: from now on ranks that share a GPU run side by side; false where the daemon does not start. The folder's
# name has to be short. stop_mps ends it. A daemon of the caller's stays in use, and goes on.
mps=no
start_mps() {
  [ "$mps" = no ] && [ -z "${CUDA_MPS_PIPE_DIRECTORY:-}" ] || return 0
  mkdir -p "$1/mps/pipe" "$1/mps/log"
  export CUDA_MPS_PIPE_DIRECTORY=$1/mps/pipe CUDA_MPS_LOG_DIRECTORY=$1/mps/log
  timeout 20 nvidia-cuda-mps-control -d && mps=yes
}
stop_mps() { [ "$mps" = no ] || echo quit | timeout 20 nvidia-cuda-mps-control >/dev/null || true; }

# use_ccache: compiles through ccache where it is. Sources keep their full names, by which tests find files, so what one
# build folder compiled is right for another.
use_ccache() {
  have_command ccache || return 0
  export CCACHE_BASEDIR='' CCACHE_NOHASHDIR=1 CMAKE_CXX_COMPILER_LAUNCHER=ccache CMAKE_CUDA_COMPILER_LAUNCHER=ccache
  # Tests run with a locale of their own.
  export CCACHE_SLOPPINESS=locale
}
use_ccache

# use_deps FOLDER: looks for third-party libraries in that prefix first.
use_deps() {
  MSCCLPP_DEPS_DIR=$(cd "$1" && pwd) || die "MSCCLPP_DEPS_DIR=$1 is no folder"
  export MSCCLPP_DEPS_DIR
  cmake_common+=("-DMSCCLPP_DEPS_DIR=$MSCCLPP_DEPS_DIR")
}
[ -z "${MSCCLPP_DEPS_DIR:-}" ] || use_deps "$MSCCLPP_DEPS_DIR"
