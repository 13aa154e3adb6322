#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Times what PyTorch's symmetric memory offers in the way that mscclpp-bench times: dependent operations in a CUDA graph,
# events inside of it behind two lead operations, the slowest rank of each replay, median and p99 over replays.
#
#   torchrun --nproc_per_node=4 bench/peers/torch_symmetric_memory.py [--collective=LIST|all] [--backend=cuda|nvshmem]
#     [--min-bytes=1K] [--max-bytes=64M] [--factor=4] [--output=FILE.json]
#
# The sizes and the chains are those of docs/benchmark.md; the JSON is like that of mscclpp-bench --output, so that
# scripts/bench_results.py puts both into one table. What this PyTorch lacks, or cannot put into a graph, gets a line that
# says so. all-to-all and broadcast exist for the NVSHMEM backend only. Multicast must stay off; the script refuses to run
# without the variables that keep it off.
"""A peer of mscclpp-bench: PyTorch symmetric memory."""

import argparse
import json
import math
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

PEER = "torch-symmetric-memory"
COLLECTIVES = ("allreduce", "allgather", "reducescatter", "alltoall", "broadcast")
LEAD = 2   # operations ahead of the timed ones
MEBI = 1 << 20
MULTICAST_SWITCHES = ("TORCH_SYMM_MEM_DISABLE_MULTICAST=1", "NVSHMEM_DISABLE_NVLS=1", "NCCL_NVLS_ENABLE=0")


def parse_bytes(text):
    """65536 for "64K"."""
    units = {"K": 10, "M": 20, "G": 30}
    shift = units.get(text[-1:].upper(), 0)
    digits = text[:-1] if shift else text
    if not digits.isdecimal() or int(digits) == 0:
        raise argparse.ArgumentTypeError(f"{text}: allowed is a whole number of bytes, or one followed by K, M or G")
    return int(digits) << shift


def collective_list(text):
    """["allreduce", ...] for a list or "all"."""
    if text == "all":
        return list(COLLECTIVES)
    for name in text.split(","):
        if name not in COLLECTIVES:
            raise argparse.ArgumentTypeError(f"{name}: allowed is all, or a list of {', '.join(COLLECTIVES)}")
    return text.split(",")


def format_bytes(count):
    """"64K" for 65536, for messages."""
    for shift, unit in ((30, "G"), (20, "M"), (10, "K")):
        if count % (1 << shift) == 0:
            return f"{count >> shift}{unit}"
    return str(count)


def quantile(ordered, part):
    """Of a sorted list: the least value that so large a part of it is not above."""
    return ordered[math.ceil(len(ordered) * part) - 1]


def graph_times(stream, operate, operations, replays, lead, restore=lambda: None):
    """Microseconds per operation of each replay of a graph, the slowest rank's, sorted. operate(i) puts the i-th operation
    into the stream; `lead` of them go ahead of the clock. restore() brings back what they read."""
    begin = torch.cuda.Event(enable_timing=True, external=True)
    end = torch.cuda.Event(enable_timing=True, external=True)
    with torch.cuda.stream(stream):
        restore()
        for i in range(2 * lead):
            operate(i)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            for i in range(lead):
                operate(i)
            begin.record(stream)
            for i in range(lead, lead + operations):
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


class Case:
    """One collective and algorithm at one size: what an operation does to the two buffers, and what must come out."""

    def __init__(self, world, collective, algorithm, size, operate, result, in_place=False, per_graph=None):
        self.world, self.collective, self.algorithm, self.size = world, collective, algorithm, size
        self.operate, self.result, self.in_place = operate, result, in_place
        most = 100 if size <= MEBI else 20 if size <= 64 * MEBI else 5
        self.operations = min(most, per_graph or most)
        self.replays = 50 if size <= MEBI else 20 if size <= 64 * MEBI else 10


class World:
    """This rank, its symmetric buffers, and the data."""

    def __init__(self, options):
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl", device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"])))
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.group = dist.group.WORLD.group_name
        self.nvshmem = options.backend == "nvshmem"
        if self.nvshmem:
            symm_mem.set_backend("NVSHMEM")
        count = options.max_bytes // 2
        self.buffers = [symm_mem.empty(count, dtype=torch.bfloat16, device="cuda") for _ in range(2)]
        for buffer in self.buffers:
            symm_mem.rendezvous(buffer, group=self.group)
        self.stream = torch.cuda.Stream()

    def source(self, size):
        """This rank's data for that size, from -8 to 8, new in every run."""
        generator = torch.Generator(device="cuda")
        generator.manual_seed(self.seed + 1000 * size + self.rank)
        return (torch.rand(size // 2, device="cuda", generator=generator) * 16 - 8).to(torch.bfloat16)

    def agree_on_seed(self):
        """A seed that changes with the run."""
        seed = torch.tensor([int.from_bytes(os.urandom(4), "little")], device="cuda")
        dist.broadcast(seed, 0)
        self.seed = int(seed.item())

    def cases(self, collective, size):
        """What there is for that collective."""
        ops, group, ranks, rank = torch.ops.symm_mem, self.group, self.ranks, self.rank
        a, b = (buffer[: size // 2] for buffer in self.buffers)
        part = size // 2 // ranks
        following = (rank + 1) % ranks

        def pair(i):
            return (a, b) if i % 2 == 0 else (b, a)

        def slot(buffer, index):
            return buffer[index * part:(index + 1) * part]

        if collective == "allreduce" and not self.nvshmem:
            def one_shot(i):
                first, second = pair(i)
                ops.one_shot_all_reduce_out(first, "sum", group, second)

            def two_shot(_):
                ops.two_shot_all_reduce_(a, "sum", group)

            def two_shot_out(i):
                first, second = pair(i)
                ops.two_shot_all_reduce_out(first, "sum", group, second)

            # Where one-shot moves ranks times the data it is of no use any more.
            if size <= 4 * MEBI:
                yield Case(self, collective, "one-shot", size, one_shot, b)
            yield Case(self, collective, "two-shot", size, two_shot, a, in_place=True)
            yield Case(self, collective, "two-shot-out", size, two_shot_out, b)
        if collective == "reducescatter" and not self.nvshmem:
            def reduce_scatter(i):
                first, second = pair(i)
                ops.reduce_scatter_out(first, group, False, slot(second, following))

            yield Case(self, collective, "reduce-scatter", size, reduce_scatter, slot(b, following))

            def low_contention_rs(i):
                first, second = pair(i)
                result = ops._low_contention_reduce_scatter(first, "sum", group)
                slot(second, following).copy_(torch.ops._c10d_functional.wait_tensor(result))

            yield Case(self, collective, "low-contention", size, low_contention_rs, slot(b, following))
        if collective == "allgather" and not self.nvshmem:
            state = {}

            # It returns new memory: the chain goes on in that, without a copy.
            def low_contention_ag(i):
                whole = a if i == 0 else state["whole"]
                gathered = ops._low_contention_all_gather(slot(whole, following), group)
                state["whole"] = torch.ops._c10d_functional.wait_tensor(gathered)
                return state["whole"]

            yield Case(self, collective, "low-contention", size, low_contention_ag, None)
        if collective == "alltoall" and self.nvshmem:
            def all_to_all(i):
                first, second = pair(i)
                ops.nvshmem_all_to_all(first, second, group)

            yield Case(self, collective, "nvshmem", size, all_to_all, b)
        if collective == "broadcast" and self.nvshmem:
            def broadcast(i):
                ops.nvshmem_broadcast(a, i % ranks, group)

            yield Case(self, collective, "nvshmem", size, broadcast, a, in_place=True)

    def expected(self, case, source):
        """(what must come out of the first operation, allowed difference or None)."""
        part = source.numel() // self.ranks
        if case.collective in ("allreduce", "reducescatter"):
            total, magnitude = source.float(), source.float().abs()
            dist.all_reduce(total)
            dist.all_reduce(magnitude)
            # Each of the ranks' partial sums may be rounded to bfloat16, in any order.
            slack = self.ranks * 2.0**-8 * magnitude
            if case.collective == "reducescatter":
                own = slice(self.rank * part, (self.rank + 1) * part)
                return total[own], slack[own]
            return total, slack
        everything = [torch.empty_like(source) for _ in range(self.ranks)]
        dist.all_gather(everything, source)
        if case.collective == "allgather":
            slots = [(rank + 1) % self.ranks for rank in range(self.ranks)]
            return torch.cat([data[s * part:(s + 1) * part] for data, s in zip(everything, slots)]), None
        if case.collective == "alltoall":
            return torch.cat([data[self.rank * part:(self.rank + 1) * part] for data in everything]), None
        return everything[0], None

    def restore(self, size, data):
        """Both buffers hold it."""
        for buffer in self.buffers:
            buffer[: size // 2].copy_(data)

    def check(self, case, source):
        """Elements of the first operation's result that are wrong, on all ranks."""
        self.restore(case.size, source)
        if not case.in_place:
            self.buffers[1][: case.size // 2].fill_(float("nan"))
        torch.cuda.synchronize()
        dist.barrier()
        returned = case.operate(0)
        torch.cuda.synchronize()
        result = returned if case.result is None else case.result
        wanted, slack = self.expected(case, source)
        if slack is None:
            wrong = (result.view(torch.int16) != wanted.view(torch.int16)).sum()
        else:
            wrong = (~((result.float() - wanted).abs() <= slack)).sum()
        dist.all_reduce(wrong)
        return int(wrong.item())

    def measure(self, case, data):
        """Microseconds per operation of each replay, the slowest rank's, sorted."""
        return graph_times(self.stream, case.operate, case.operations, case.replays, lead=LEAD,
                           restore=lambda: self.restore(case.size, data))

    def run(self, case):
        """The row of the case."""
        parts = case.collective in ("allgather", "reducescatter", "alltoall")
        op = "sum" if case.collective in ("allreduce", "reducescatter") else "none"
        row = {"name": f"{case.collective}/{PEER}:{case.algorithm}/bfloat16/{op}/{case.size}",
               "collective": case.collective, "algorithm": case.algorithm, "peer": PEER, "dtype": "bfloat16", "op": op,
               "bytes": case.size, "count": case.size // 2 // (self.ranks if parts else 1), "ranks": self.ranks,
               "in_place": case.in_place, "ops_per_graph": case.operations, "replays": case.replays}
        source = self.source(case.size)
        try:
            wrong = self.check(case, source)
            times = self.measure(case, source * 2.0**-100 if op == "sum" else source)
        except (RuntimeError, AttributeError, NotImplementedError, TypeError, ValueError) as error:
            row["error"] = str(error).strip().splitlines()[0]
            return row
        others = (self.ranks - 1) / self.ranks
        factor = 2 * others if case.collective == "allreduce" else others if parts else 1
        time = quantile(times, 0.5)
        bandwidth = case.size / time * 1e-3
        row.update({"time_us": time, "p99_us": quantile(times, 0.99), "algbw_gbps": bandwidth,
                    "busbw_gbps": bandwidth * factor, "wrong": wrong})
        return row


def refuse_multicast():
    """Ends the program where multicast could be used."""
    for switch in MULTICAST_SWITCHES:
        name, value = switch.split("=")
        if os.environ.get(name) != value:
            sys.exit(f"set {switch}: multicast is not to be used here")


def boot():
    """Names one boot of one machine, as mscclpp-bench does: figures of another are not comparable."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read()[:8]
    except OSError:
        return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--collective", type=collective_list, default=list(COLLECTIVES))
    parser.add_argument("--backend", choices=("cuda", "nvshmem"), default="cuda")
    parser.add_argument("--min-bytes", type=parse_bytes, default=1 << 10)
    parser.add_argument("--max-bytes", type=parse_bytes, default=64 * MEBI)
    parser.add_argument("--factor", type=int, default=4)
    parser.add_argument("--output", help="a .json file")
    options = parser.parse_args()
    if options.factor < 2 or options.min_bytes > options.max_bytes:
        sys.exit("--factor must be 2 or more, and --min-bytes not more than --max-bytes")
    refuse_multicast()

    world = World(options)
    world.agree_on_seed()
    lead = world.rank == 0
    report = {"context": {"peer": PEER, "version": f"PyTorch {torch.__version__}, {options.backend} backend",
                          "device": torch.cuda.get_device_name(), "boot": boot(), "seed": str(world.seed)}, "rows": []}
    if lead:
        print(f"PyTorch {torch.__version__} symmetric memory, {world.ranks} x {torch.cuda.get_device_name()}, bfloat16")
        print(f"{'size':>8}  {'collective':<14} {'algorithm':<16} {'time us':>10} {'p99 us':>10} {'busbw GB/s':>10} {'wrong':>6}")
    for collective in options.collective:
        size, failed = options.min_bytes, set()
        while size <= options.max_bytes:
            # Whole 16-byte units for each rank, which is what these operations ask for.
            for case in world.cases(collective, size) if size % (16 * world.ranks) == 0 else ():
                if case.algorithm in failed:
                    continue
                row = world.run(case)
                report["rows"].append(row)
                head = f"{format_bytes(size):>8}  {collective:<14} {case.algorithm:<16}"
                if "error" in row:
                    failed.add(case.algorithm)
                    if lead:
                        print(f"{head} not measured: {row['error']}", flush=True)
                elif lead:
                    print(f"{head} {row['time_us']:>10.2f} {row['p99_us']:>10.2f} {row['busbw_gbps']:>10.2f} {row['wrong']:>6}",
                          flush=True)
            size *= options.factor
    if lead and options.output:
        with open(options.output, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=2)
            file.write("\n")
    dist.destroy_process_group()
    sys.exit(1 if any(row.get("wrong") for row in report["rows"]) else 0)


if __name__ == "__main__":
    main()
