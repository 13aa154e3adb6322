#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Writes over software RDMA devices in a QEMU guest: this library beside perftest's ib_write_bw, in turn. Emulation
# takes two processors of its own: where others use them, the figures vary by a factor of three and compare nothing.
#
#   scripts/softroce_bandwidth.sh BUILD_FOLDER
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:?usage: scripts/softroce_bandwidth.sh BUILD_FOLDER}
perftest=$(command -v ib_write_bw) || { echo "no ib_write_bw here; on Debian install perftest" >&2; exit 77; }
peer=$build/test/net/mscclpp_test_peer
[ -x "$peer" ] || { echo "no $peer; build the target mscclpp_test_peer" >&2; exit 2; }
exec "$root/test/softroce/run.sh" "--cache=$build/softroce" "--script=$root/test/softroce/bandwidth.sh" --timeout=500 \
  "$(cd "$(dirname "$peer")" && pwd)/$(basename "$peer")" "$perftest"
