#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The fault campaign: jobs of 2 to 8 processes on the simulated machine, to each of which something happens at random. Every
# rank must end in time, with right results or with errors that name the culprit. Ends with a table; exit status 1 where a
# rank hangs, crashes, has a wrong result or is told of the wrong one.
#
#   scripts/faults.sh [--build=FOLDER] [--trials=N] [--seconds=N] [--seed=S] [--kind=NAME] [--plant=NAME] [--jobs=N] [--show]
#   scripts/faults.sh [--build=FOLDER] --self-test
#
# --build=      default build/faults, configured where it is not there
# --trials=     default 1000; --seconds= at most, default 3600
# --seed=       of the first trial, default 1; the others have those that follow. --seed=S --trials=1 repeats one
# --kind=       none, kill, stop, pause, delay, refuse, fork, mismatch, strangers or abort; default all
# --jobs=       at once, default three for each processor
# --show        what every rank tells, also where nothing is wrong
# --plant=      a defect of the ranks that the campaign has to find: stale, misname, hang, crash, ignore or leave
# --self-test   plants one after the other, and fails where one is not found

# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

build=build/faults
arguments=()
while [ $# -gt 0 ]; do
  case "$1" in
    --build=*) build=${1#*=} ;;
    -h | --help) usage; exit 0 ;;
    *) arguments+=("$1") ;;
  esac
  shift
done

if [ ! -f "$build/CMakeCache.txt" ]; then
  require_packages g++ cmake ninja-build python3 libfmt-dev libboost-context-dev doctest-dev nlohmann-json3-dev
  cmake "${cmake_common[@]}" -B "$build" -DMSCCLPP_USE_CUDA=OFF "-DMSCCLPP_TEST_OPTIONS=-Og -g1"
fi
cmake --build "$build" --parallel "$jobs" --target test_faults_campaign
exec "$build/test/faults/test_faults_campaign" ${arguments[@]+"${arguments[@]}"}
