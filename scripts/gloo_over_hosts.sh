#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# torch.distributed on tensors of the CPU over hosts made of network namespaces: the backend mscclpp, whose GPUs are
# simulated, beside gloo, in turn and with every result checked. Writes Markdown. Needs root.
#
#   scripts/gloo_over_hosts.sh --python=PROGRAM --package=FOLDER [--out=FILE.md] [--hosts=2] [--ranks=2]
#                              [--largest=BYTES] [--round-bytes=BYTES]
#
# --python=      one that has PyTorch
# --package=     the folder of the Python package: <build>/python/package, by the target python_package
# --out=         default bench/results/gloo_<hosts>x<ranks>.md
# --round-bytes= MSCCLPP_ROUND_BYTES; default 4 MiB, as on GPUs

# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

python=
package=
out=
hosts=2
ranks=2
largest=16777216
round=4194304
while [ $# -gt 0 ]; do
  case "$1" in
    --python=*) python=${1#*=} ;;
    --package=*) package=${1#*=} ;;
    --out=*) out=${1#*=} ;;
    --hosts=*) hosts=${1#*=} ;;
    --ranks=*) ranks=${1#*=} ;;
    --largest=*) largest=${1#*=} ;;
    --round-bytes=*) round=${1#*=} ;;
    -h | --help) usage; exit 0 ;;
    *) die "unknown argument $1; see scripts/gloo_over_hosts.sh --help" ;;
  esac
  shift
done
if [ -z "$python" ] || [ -z "$package" ]; then die "--python= and --package= are needed; see scripts/gloo_over_hosts.sh --help"; fi
[ -d "$package/mscclpp" ] || die "--package=$package: no mscclpp in there; build the target python_package"
out=${out:-bench/results/gloo_${hosts}x${ranks}.md}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Compiled before any rank waits for it.
PYTHONPATH=$package MSCCLPP_DEVICE=sim "$python" -B -c "import mscclpp.torch; mscclpp.torch.build()"
load=$(cut -d' ' -f1 /proc/loadavg)
python3 -B - "$python" "$package" "$hosts" "$ranks" "$largest" "$round" "$work/results.json" <<'PYTHON'
import sys

sys.path.insert(0, "test/net")
import namespaces

python, package, hosts, each, largest, round_bytes, file = sys.argv[1:]
reason = namespaces.why_not()
if reason:
    sys.exit(f"error: {reason}")
each, count = int(each), int(hosts) * int(each)
hosts = namespaces.Hosts(int(hosts))
try:
    started = [hosts.start(rank // each, python, "-B", "bench/torch/over_hosts.py", file, f"--largest={largest}",
                           PYTHONPATH=package, MSCCLPP_DEVICE="sim", OMP_NUM_THREADS="1", MSCCLPP_ROUND_BYTES=round_bytes,
                           MSCCLPP_TIMEOUT="300", RANK=str(rank), WORLD_SIZE=str(count), LOCAL_RANK=str(rank % each),
                           MASTER_ADDR=hosts.addresses[0], MASTER_PORT="29500", GLOO_SOCKET_IFNAME="eth0")
               for rank in range(count)]
    try:
        for line in started[0].stdout:
            print(line, end="", flush=True)
        for rank, process in enumerate(started):
            text = process.communicate(timeout=60)[0]
            if process.returncode != 0:
                sys.exit(f"error: rank {rank} ended with {process.returncode}: {text}")
    finally:
        for process in started:
            process.kill()
finally:
    hosts.close()
PYTHON

{
  printf '# torch.distributed over %s hosts: mscclpp beside gloo\n\n' "$hosts"
  measured_on | grep -v '^| switch multicast'
  printf '| load of others | %s processes (the average of a minute before) |\n' "$load"
  python3 - "$work/results.json" "$hosts" "$ranks" "$round" <<'PYTHON'
import json
import sys

file, hosts, ranks, round_bytes = sys.argv[1:]
with open(file, encoding="utf-8") as opened:
    found = json.load(opened)


def size(count):
    return f"{count >> 20} MiB" if count >= 1 << 20 else f"{count >> 10} KiB"


print(f"""| PyTorch | {found['torch']} |

Calls of `torch.distributed` on float32 tensors of the CPU, {ranks} ranks on each of {hosts} hosts, which are network namespaces
of this one machine, over TCP. **The GPUs of mscclpp are simulated: its kernels run on the same processors as the ranks. The
table says nothing about GPUs.** NCCL's sockets between the same hosts cannot be run without GPUs.

Milliseconds; the slowest rank's median and p99 of single calls, which below 100 calls is the maximum. The same processes call
both backends in turn, a fifth of the calls at a time, and compare every element of every result. Sizes are of the larger
buffer; mscclpp's rounds are of {size(int(round_bytes))} (`MSCCLPP_ROUND_BYTES`). By `scripts/gloo_over_hosts.sh`.

| collective | size | calls | mscclpp | p99 | gloo | p99 | mscclpp / gloo | wrong |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |""")
for row in found["results"]:
    ours, theirs = row["mscclpp"], row["gloo"]
    print(f"| {row['collective']} | {size(row['bytes'])} | {ours['calls']} | {1e3 * ours['median']:.2f} | "
          f"{1e3 * ours['p99']:.2f} | {1e3 * theirs['median']:.2f} | {1e3 * theirs['p99']:.2f} | "
          f"{ours['median'] / theirs['median']:.2f} | {ours['wrong'] + theirs['wrong']} |")
sys.exit(any(row[name]["wrong"] for row in found["results"] for name in ("mscclpp", "gloo")))
PYTHON
} >"$work/table.md" || die "results are wrong: $(cat "$work/table.md")"
mv "$work/table.md" "$out"
say "$out"
