#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#   over_hosts.py FILE [--largest=BYTES]       one rank, started with what torchrun sets
#
# Calls of torch.distributed on tensors of the CPU by the backend mscclpp and by gloo, in turn. Rank 0 writes FILE: for each
# collective, size and backend the slowest rank's median and p99 of single calls, and how many elements were wrong.
"""A rank that times torch.distributed's backends mscclpp and gloo."""

import argparse
import json
import math
import statistics
import time
from datetime import timedelta

import torch
import torch.distributed as dist

import mscclpp.torch

TURNS = 5
# A p99 of fewer than 100 calls is their maximum.
CALLS = ((64 << 10, 100), (1 << 20, 40), (16 << 20, 20))  # up to so many bytes, so many in all


def ramp(count, rank):
    """Small whole numbers, whose sums are the same in any order; they differ by rank."""
    return ((torch.arange(count) * 7 + rank * 3) % 11 + 1).to(torch.float32)


class Collective:
    """Of so many bytes, the larger buffer's."""

    def __init__(self, name, size):
        rank, ranks = dist.get_rank(), dist.get_world_size()
        count = size // 4
        self.name, self.size, self.rank = name, size, rank
        part = slice(rank * count // ranks, (rank + 1) * count // ranks)
        if name == "all_gather":
            whole = torch.cat([ramp(count // ranks, each) for each in range(ranks)])
            self.input, self.expected = whole[part].clone(), whole
        else:
            total = sum(ramp(count, each) for each in range(ranks))
            self.input = ramp(count, rank)
            self.expected = {"all_reduce": total, "reduce_scatter": total[part], "broadcast": ramp(count, 0)}[name]
        self.output = torch.empty_like(self.expected)

    def call(self, group):
        """Seconds, and how many elements came out wrong."""
        if self.name in ("all_reduce", "broadcast"):
            self.output.copy_(self.input)
        else:
            self.output.fill_(-1)
        begin = time.perf_counter()
        if self.name == "all_reduce":
            dist.all_reduce(self.output, group=group)
        elif self.name == "broadcast":
            dist.broadcast(self.output, 0, group=group)
        elif self.name == "all_gather":
            dist.all_gather_into_tensor(self.output, self.input, group=group)
        else:
            dist.reduce_scatter_tensor(self.output, self.input, group=group)
        taken = time.perf_counter() - begin
        return taken, int((self.output != self.expected).sum())


def measure(collective, groups):
    """By backend."""
    calls = next(count for most, count in CALLS if collective.size <= most)
    times, wrong = {name: [] for name in groups}, dict.fromkeys(groups, 0)
    for turn in range(TURNS + 1):  # the first one makes connections
        for name, group in groups.items():
            for _ in range(calls // TURNS if turn else 2):
                taken, bad = collective.call(group)
                wrong[name] += bad
                if turn:
                    times[name].append(taken)
    found = {}
    for name in groups:
        ordered = sorted(times[name])
        own = (statistics.median(ordered), ordered[math.ceil(0.99 * len(ordered)) - 1], wrong[name])
        of_ranks = [None] * dist.get_world_size()
        dist.all_gather_object(of_ranks, own)
        medians, highest, wrongs = zip(*of_ranks)
        found[name] = {"median": max(medians), "p99": max(highest), "calls": len(ordered), "wrong": sum(wrongs)}
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--largest", type=int, default=16 << 20)
    options = parser.parse_args()
    torch.set_num_threads(1)
    mscclpp.torch.register()
    dist.init_process_group("mscclpp", timeout=timedelta(seconds=300))
    groups = {"mscclpp": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
    results = []
    for name in ("all_reduce", "all_gather", "reduce_scatter", "broadcast"):
        size = 1 << 10
        while size <= options.largest:
            found = measure(Collective(name, size), groups)
            results.append({"collective": name, "bytes": size, **found})
            if dist.get_rank() == 0:
                print(name, size, found, flush=True)
            size *= 4
    if dist.get_rank() == 0:
        with open(options.file, "w", encoding="utf-8") as file:
            json.dump({"torch": torch.__version__, "results": results}, file)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
