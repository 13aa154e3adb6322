#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Times PyTorch's symmetric-memory all-reduce in the way that mscclpp-bench times: dependent operations in a CUDA graph,
# events inside of it behind two lead operations, the slowest rank of each replay, median and p99 over replays.
#
#   torchrun --nproc_per_node=4 bench/peers/torch_symmetric_memory.py [--min-bytes N] [--max-bytes N] [--factor N]
#
# One-shot runs out of place between two symmetric buffers, two-shot in place, which is all it offers. Multicast stays off:
# export TORCH_SYMM_MEM_DISABLE_MULTICAST=1 first.
"""A peer of mscclpp-bench: PyTorch symmetric memory."""

import argparse
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem


def measure(operate, restore, operations, replays):
    """Microseconds per operation of each replay, the slowest rank's."""
    begin = torch.cuda.Event(enable_timing=True, external=True)
    end = torch.cuda.Event(enable_timing=True, external=True)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        restore()
        for i in range(4):
            operate(i)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            for i in range(2):
                operate(i)
            begin.record(stream)
            for i in range(operations):
                operate(i)
            end.record(stream)
        times = []
        for replay in range(-2, replays):
            restore()
            stream.synchronize()
            dist.barrier()
            torch.cuda.synchronize()
            graph.replay()
            stream.synchronize()
            if replay >= 0:
                times.append(begin.elapsed_time(end) * 1e3 / operations)
    slowest = torch.tensor(times, device="cuda")
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return sorted(slowest.tolist())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--min-bytes", type=int, default=1 << 10)
    parser.add_argument("--max-bytes", type=int, default=64 << 20)
    parser.add_argument("--factor", type=int, default=4)
    options = parser.parse_args()
    if os.environ.get("TORCH_SYMM_MEM_DISABLE_MULTICAST") != "1":
        sys.exit("set TORCH_SYMM_MEM_DISABLE_MULTICAST=1: multicast is not to be used here")

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank, ranks, group = dist.get_rank(), dist.get_world_size(), dist.group.WORLD.group_name
    count = options.max_bytes // 2
    buffers = [symm_mem.empty(count, dtype=torch.bfloat16, device="cuda") for _ in range(2)]
    for buffer in buffers:
        symm_mem.rendezvous(buffer, group=group)
    if rank == 0:
        print(f"PyTorch {torch.__version__} symmetric memory, {ranks} x {torch.cuda.get_device_name()}, bfloat16 sum")
        print(f"{'bytes':>12} {'algorithm':>10} {'time us':>10} {'p99 us':>10} {'wrong':>6}")

    size = options.min_bytes
    while size <= options.max_bytes:
        a, b = (buffer[: size // 2] for buffer in buffers)
        torch.manual_seed(size + rank)
        source = torch.randn(size // 2, device="cuda").to(torch.bfloat16)
        total, magnitude = source.float(), source.float().abs()
        dist.all_reduce(total)
        dist.all_reduce(magnitude)
        operations, replays = (100, 50) if size <= 1 << 20 else (20, 20)
        scaled = source * 2.0**-100

        def one_shot(i):
            first, second = (a, b) if i % 2 == 0 else (b, a)
            torch.ops.symm_mem.one_shot_all_reduce_out(first, "sum", group, second)

        def two_shot(_):
            torch.ops.symm_mem.two_shot_all_reduce_(a, "sum", group)

        for name, operate, result in (("one-shot", one_shot, b), ("two-shot", two_shot, a)):
            if name == "one-shot" and size > 4 << 20:
                continue
            a.copy_(source)
            torch.cuda.synchronize()
            dist.barrier()
            operate(0)
            torch.cuda.synchronize()
            # Each of the ranks' partial sums may be rounded to bfloat16, in any order.
            wrong = int(((result.float() - total).abs() > ranks * 2.0**-8 * magnitude).sum())
            times = measure(operate, lambda: a.copy_(scaled), operations, replays)
            if rank == 0:
                p99 = times[min(len(times) - 1, int(0.99 * len(times)))]
                print(f"{size:>12} {name:>10} {times[len(times) // 2]:>10.2f} {p99:>10.2f} {wrong:>6}", flush=True)
        size *= options.factor
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
