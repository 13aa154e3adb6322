#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What a call of the library takes of the processor's time, beside a launch of an empty kernel and NCCL's call, with a
# process for each rank; and what the device takes for a call of one rank, in place and out of place. Takes a built
# mscclpp-bench and writes Markdown. Ranks beyond the GPUs share them under MPS, which this starts and ends.
#
#   scripts/host_path.sh [--bench=PROGRAM] [--out=FILE.md] [--ranks="1 2 4 8"] [--max-bytes=1M] [--device=cuda|sim]
#
# --bench=   default build/gpu/bench/mscclpp-bench
# --out=     default bench/results/<gpu>x<n>_host.md
# --device=  sim: try this script where there is no GPU; the figures mean nothing
# NVLink multicast is kept off, here and in NCCL.

# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

bench=build/gpu/bench/mscclpp-bench
out=
ranks="1 2 4 8"
most=1M
device=cuda
while [ $# -gt 0 ]; do
  case "$1" in
    --bench=*) bench=${1#*=} ;;
    --out=*) out=${1#*=} ;;
    --ranks=*) ranks=${1#*=} ;;
    --max-bytes=*) most=${1#*=} ;;
    --device=*) device=${1#*=} ;;
    -h | --help) usage; exit 0 ;;
    *) die "unknown argument $1; see scripts/host_path.sh --help" ;;
  esac
  shift
done

export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
limit=40   # seconds that a command may take

[ -x "$bench" ] || die "--bench=$bench: there is no such program; build the target mscclpp-bench"
gpus=$(gpu_count)
if [ "$device" = cuda ]; then
  [ "$gpus" -gt 0 ] || die "nvidia-smi finds no GPU here; --device=sim tries this script without one"
  slug=$(slug_of "$(nvidia-smi --query-gpu=name --format=csv,noheader | sed -n 1p)")
else
  slug=$device
fi
out=${out:-bench/results/${slug}x${gpus}_host.md}

work=$(mktemp -d)
finish() {
  stop_mps
  rm -rf "$work"
}
trap finish EXIT

# measure NAME RANKS ARGUMENTS...: a process for each rank; rank 0 writes $work/NAME.json.
measure() {
  local name=$1 count=$2 rank pids=() status=0
  shift 2
  say "$name"
  for ((rank = 0; rank < count; ++rank)); do
    # All on this host: they meet by the name of the job.
    env "RANK=$rank" "WORLD_SIZE=$count" "LOCAL_RANK=$rank" "LOCAL_WORLD_SIZE=$count" MASTER_ADDR=127.0.0.1 \
      MASTER_PORT=29500 "TORCHELASTIC_RUN_ID=host_path $$ $name" timeout --kill-after=5 "$limit" "$bench" "--device=$device" "--ranks=$count" "$@" "--output=$work/$name.json" \
      >"$work/$name.$rank.txt" 2>&1 &
    pids+=("$!")
  done
  for rank in "${!pids[@]}"; do wait "${pids[$rank]}" || status=$?; done
  [ "$status" -eq 0 ] && return
  warn "not measured: $name (exit status $status)"
  tail -n 3 "$work/$name".*.txt >&2
  rm -f "$work/$name.json"
  failed=yes
}

peers=()
if [ "$device" = cuda ] && python3 -c 'import ctypes; ctypes.CDLL("libnccl.so.2")' 2>/dev/null; then
  peers=(--peers=nccl)
else
  warn "without NCCL: libnccl.so.2 cannot be loaded"
fi
failed=no

# Each case in a process of its own: after a few graphs of copies in one process each copy of the next takes 0.2 us longer,
# whose graph it is.
if [[ " $ranks " == *" 1 "* ]]; then
  for bytes in 1K 32K 1M; do
    for form in out-of-place in-place; do
      arguments=("--min-bytes=$bytes" "--max-bytes=$bytes")
      [ "$form" = out-of-place ] || arguments+=(--in-place)
      measure "graph-$form-$bytes" 1 "${arguments[@]}"
    done
    [ ${#peers[@]} -eq 0 ] || measure "graph-nccl-$bytes" 1 "--min-bytes=$bytes" "--max-bytes=$bytes" "${peers[@]}" --benchmark_filter=/nccl/
  done
fi
for count in $ranks; do
  arguments=(--launch=host "--collective=allreduce,alltoall" --min-bytes=1K "--max-bytes=$most" --factor=4)
  if [ "$device" = cuda ] && [ "$count" -gt "$gpus" ]; then
    if ! start_mps "$work"; then
      warn "not measured: $count ranks on $gpus GPU(s), since nvidia-cuda-mps-control does not start"
      failed=yes
      continue
    fi
  else
    arguments+=(${peers[@]+"${peers[@]}"})
  fi
  measure "host-$count" "$count" "${arguments[@]}"
done

{
  printf '# The path through the host\n\n'
  measured_on
  python3 - "$work" <<'PYTHON'
import json
import pathlib
import sys

results = {path.stem: json.loads(path.read_text()) for path in sorted(pathlib.Path(sys.argv[1]).glob("*.json"))}
nccl = {result["context"].get("NCCL") for result in results.values()} - {None}
print(f"| NCCL | {', '.join(sorted(nccl)) or 'not measured'} |")


def size(count):
    return f"{count >> 20} MiB" if count >= 1 << 20 else f"{count >> 10} KiB" if count >= 1 << 10 else str(count)


def time(row, key):
    return f"{row[key]:.2f}" if row and key in row else "-"


def rows_of(name):
    return [row for row in results[name]["rows"] if "error" not in row] if name in results else []


def compared(names, peer_names):
    """Each of our rows of each name, and NCCL's of the same case, of the name beside it."""
    for name, peer_name in zip(names, peer_names):
        for row in rows_of(name):
            if "peer" not in row:
                yield name, row, next((peer for peer in rows_of(peer_name) if "peer" in peer and all(
                    peer[key] == row[key] for key in ("collective", "bytes", "dtype", "op"))), None)


print("""
## Processor's time of one call

Microseconds; the slowest rank's median and p99 over all calls, in batches of at most 100 between synchronisations. Bare: the
same for a launch of an empty kernel of the same shape with 512 bytes of parameters, before and after; with programmatic
dependent launch where the library has it, which ranks that share a GPU have not. A process for each rank; where ranks
share a GPU it runs them side by side (MPS).

| collective | size | ranks | algorithm | call | p99 | bare | p99 | call / bare | NCCL | p99 | wrong |
| --- | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |""")
hosts = sorted((name for name in results if name.startswith("host-")), key=lambda name: int(name.split("-")[1]))
for _, row, peer in sorted(compared(hosts, hosts), key=lambda entry: (entry[1]["collective"], entry[1]["bytes"], entry[1]["ranks"])):
    over = f"{row['time_us'] / row['bare_us']:.2f}" if "bare_us" in row else "-"
    ranks = f"{row['ranks']}{', shared' if row['shared'] else ''}"
    print(f"| {row['collective']} | {size(row['bytes'])} | {ranks} | `{row['algorithm']}` | {time(row, 'time_us')} "
          f"| {time(row, 'p99_us')} | {time(row, 'bare_us')} | {time(row, 'bare_p99_us')} | {over} | {time(peer, 'time_us')} "
          f"| {time(peer, 'p99_us')} | {row.get('wrong', '-')} |")

print("""
## Device's time of an all-reduce of one rank

Microseconds of one of a chain in a CUDA graph, median and p99, each row and NCCL in a process of its own; NCCL's is out of
place.

| size | form | algorithm | time | p99 | NCCL | p99 | wrong |
| ---: | --- | --- | ---: | ---: | ---: | ---: | ---: |""")
graphs = [name for name in results if name.startswith("graph-") and "nccl" not in name]
for name, row, peer in sorted(compared(graphs, ("graph-nccl-" + name.rsplit("-", 1)[1] for name in graphs)),
                              key=lambda entry: (entry[1]["bytes"], entry[0].startswith("graph-in"))):
    form = name.removeprefix("graph-").rsplit("-", 1)[0].replace("-", " ")
    print(f"| {size(row['bytes'])} | {form} | `{row['algorithm']}` "
          f"| {time(row, 'time_us')} | {time(row, 'p99_us')} | {time(peer, 'time_us')} | {time(peer, 'p99_us')} "
          f"| {row.get('wrong', '-')} |")
PYTHON
} >"$work/page.md"
mkdir -p "$(dirname "$out")"
cp "$work/page.md" "$out"
say "wrote $out"
[ "$failed" = no ]
