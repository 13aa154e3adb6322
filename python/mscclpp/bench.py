# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""python -m mscclpp.bench: what PyTorch's collectives take, eager, compiled and captured, and a call of the host's time.

The operators of mscclpp.ops and the backend mscclpp, beside NCCL and symmetric memory where there are GPUs, and gloo
where there are none. Started by torchrun, or else starts its own ranks. A sample is the mean of some calls, on its
slowest rank; shown are the median and the 99th percentile of samples. Every result is compared.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import socket
import subprocess
import sys
import time
from typing import Any, Callable, Optional

import torch
import torch.distributed as dist

COLLECTIVES = ("allreduce", "allgather", "reducescatter", "alltoall")
MODES = ("eager", "compiled", "graph")
OP = "mscclpp op"
BACKEND = "mscclpp backend"
SYMMETRIC = "symmetric memory"
NOTHING = "a backend that does nothing"


def _bytes(text: str) -> int:
    shift = {"K": 10, "M": 20, "G": 30}.get(text[-1:].upper(), 0)
    digits = text[:-1] if shift else text
    if not digits.isdecimal() or int(digits) == 0:
        raise argparse.ArgumentTypeError(f"{text}: allowed is a whole number of bytes, or one followed by K, M or G")
    return int(digits) << shift


def _listed(allowed: tuple) -> Callable[[str], list]:
    def parse(text: str) -> list:
        for name in text.split(","):
            if name not in allowed:
                raise argparse.ArgumentTypeError(f"{name}: allowed is a list of {', '.join(allowed)}")
        return text.split(",")

    return parse


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: allowed is a number from 1 on")
    return int(text)


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m mscclpp.bench", description=__doc__)
    parser.add_argument("--ranks", type=_positive, help="without torchrun; default: one for each GPU, at least 2")
    parser.add_argument("--device", choices=("cuda", "cpu"), help="default: cuda where there are GPUs")
    parser.add_argument("--collectives", type=_listed(COLLECTIVES), default=list(COLLECTIVES))
    parser.add_argument("--modes", type=_listed(MODES), default=list(MODES), help="graph: CUDA graphs, on GPUs only")
    parser.add_argument("--min-bytes", type=_bytes, default=1 << 10, help="of the larger buffer")
    parser.add_argument("--max-bytes", type=_bytes, help="default: 64M; on the CPU 64K")
    parser.add_argument("--factor", type=_positive, default=8)
    parser.add_argument("--dtype", choices=("bfloat16", "float16", "float32"), help="default: bfloat16, CPU: float32")
    parser.add_argument("--calls", type=_positive, help="in a sample; default 20, on the CPU 5")
    parser.add_argument("--samples", type=_positive, help="default 50, on the CPU 10")
    parser.add_argument("--output", metavar="PREFIX", help="writes PREFIX.md, PREFIX-MODE.json, and plots")
    return parser


class Case:
    """A collective at one size: this rank's data, and what must come out."""

    def __init__(self, collective: str, size: int, rank: int, ranks: int, dtype: torch.dtype, device: str):
        self.collective, self.size = collective, size
        parts = 1 if collective == "allreduce" else ranks
        whole = max(size // dtype.itemsize // ranks, 1) * ranks
        self.count = whole if collective != "allgather" else whole // parts
        self.ranks = ranks

        # Small whole numbers, of which sums are exact.
        def of(source: int) -> torch.Tensor:
            return ((torch.arange(self.count, device=device) * 3 + source * 5) % 7).to(dtype)

        self.source = of(rank)
        everyone = [of(source) for source in range(ranks)]
        if collective == "allreduce":
            self.expected = torch.stack(everyone).sum(0)
        elif collective == "allgather":
            self.expected = torch.cat(everyone)
        elif collective == "reducescatter":
            self.expected = torch.stack(everyone).sum(0).chunk(ranks)[rank]
        else:
            self.expected = torch.cat([each.chunk(ranks)[rank] for each in everyone])
        self.expected = self.expected.to(dtype)

    def bus_factor(self) -> float:
        """Of the bytes, that cross a link."""
        others = (self.ranks - 1) / self.ranks
        return 2 * others if self.collective == "allreduce" else others


class Way:
    """One of what is compared, by its name: collectives from a tensor to a new one, and into one that is there."""

    def __init__(self, name: str, group: Any = None):
        self.name, self.group = name, group

    def into(self, collective: str, x: torch.Tensor, out: torch.Tensor) -> Callable[[], Any]:
        """A call that leaves what x becomes in `out`, or returns it. Of all-reduce x and `out` are one."""
        group = self.group
        if collective == "allreduce":
            return lambda: dist.all_reduce(out, group=group)
        if collective == "allgather":
            return lambda: dist.all_gather_into_tensor(out, x, group=group)
        if collective == "reducescatter":
            return lambda: dist.reduce_scatter_tensor(out, x, group=group)
        return lambda: dist.all_to_all_single(out, x, group=group)

    def functional(self, collective: str) -> Callable[[torch.Tensor], torch.Tensor]:
        """For torch.compile."""
        import torch.distributed._functional_collectives as functional  # pylint: disable=import-outside-toplevel

        group = self.group
        if collective == "allreduce":
            return lambda x: functional.wait_tensor(functional.all_reduce(x, "sum", group))
        if collective == "allgather":
            return lambda x: functional.wait_tensor(functional.all_gather_tensor(x, 0, group))
        if collective == "reducescatter":
            return lambda x: functional.wait_tensor(functional.reduce_scatter_tensor(x, "sum", 0, group))
        return lambda x: functional.wait_tensor(functional.all_to_all_single(x, None, None, group))


class Operators(Way):
    """mscclpp.ops."""

    def into(self, collective: str, x: torch.Tensor, out: torch.Tensor) -> Callable[[], Any]:
        from . import ops  # pylint: disable=import-outside-toplevel

        name = self.group.group_name
        if collective == "allreduce":
            return lambda: ops.all_reduce_(out, "sum", name)
        call = self.functional(collective)
        return lambda: call(x)

    def functional(self, collective: str) -> Callable[[torch.Tensor], torch.Tensor]:
        from . import ops  # pylint: disable=import-outside-toplevel

        name = self.group.group_name
        if collective == "allreduce":
            return lambda x: ops.all_reduce(x, "sum", name)
        if collective == "allgather":
            return lambda x: ops.all_gather(x, name)
        if collective == "reducescatter":
            return lambda x: ops.reduce_scatter(x, "sum", name)
        return lambda x: ops.all_to_all(x, name)


class SymmetricMemory(Way):
    """PyTorch's all-reduces in symmetric memory, whichever is for the size. bench/peers has all that there are."""

    most_to_all = 256 << 10
    buffer: torch.Tensor

    def into(self, collective: str, x: torch.Tensor, out: torch.Tensor) -> Callable[[], Any]:
        import torch.distributed._symmetric_memory as symmetric  # pylint: disable=import-outside-toplevel

        if collective != "allreduce":
            raise NotImplementedError("there is no such collective in symmetric memory here")
        name = self.group.group_name
        buffer = symmetric.empty(out.numel(), dtype=out.dtype, device=out.device)
        symmetric.rendezvous(buffer, group=name)
        self.buffer = buffer
        if out.numel() * out.element_size() <= self.most_to_all:
            return lambda: torch.ops.symm_mem.one_shot_all_reduce(buffer, "sum", name)
        return lambda: torch.ops.symm_mem.two_shot_all_reduce_(buffer, "sum", name)

    def functional(self, collective: str) -> Callable[[torch.Tensor], torch.Tensor]:
        raise NotImplementedError("measured by itself only")


class Bench:
    """This rank."""

    def __init__(self, options: argparse.Namespace):
        self.cuda = options.device == "cuda"
        local = int(os.environ.get("LOCAL_RANK", os.environ["RANK"]))
        if self.cuda:
            torch.cuda.set_device(local % torch.cuda.device_count())
        from . import ops  # noqa: F401  pylint: disable=import-outside-toplevel,unused-import
        from . import torch as backend  # pylint: disable=import-outside-toplevel

        backend.register()
        dist.init_process_group("mscclpp")
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.meeting = dist.new_group(backend="gloo")
        self.device = "cuda" if self.cuda else "cpu"
        self.options = options
        self.dtype = getattr(torch, options.dtype or ("bfloat16" if self.cuda else "float32"))
        self.calls = options.calls or (20 if self.cuda else 5)
        self.samples = options.samples or (50 if self.cuda else 10)
        self.ways: list[Way] = [Operators(OP, dist.group.WORLD), Way(BACKEND, dist.group.WORLD)]
        if not self.cuda:
            self.ways.append(Way("gloo", self.meeting))
        elif dist.is_nccl_available() and torch.cuda.device_count() >= self.ranks:
            nccl = dist.new_group(backend="nccl")
            self.ways += [Way("NCCL", nccl), SymmetricMemory(SYMMETRIC, nccl)]

    def synchronize(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()

    def prepare(
        self, way: Way, case: Case, mode: str, calls: int
    ) -> tuple[Callable[[], Any], Callable[[], torch.Tensor]]:
        """So many calls, and what makes them of the case's data and returns the result of the last."""
        x = case.source.clone()
        if mode == "compiled":
            torch._dynamo.reset()
            compiled = torch.compile(way.functional(case.collective), fullgraph=True, dynamic=False)
            return lambda: [compiled(x) for _ in range(calls)], lambda: compiled(x)
        out = x if case.collective == "allreduce" else torch.empty_like(case.expected)
        one = way.into(case.collective, x, out)
        data = way.buffer if isinstance(way, SymmetricMemory) else x

        def fill() -> None:
            data.copy_(case.source)

        def several() -> list:
            return [one() for _ in range(calls)]

        def result_of(returned: list) -> torch.Tensor:
            return returned[-1] if isinstance(returned[-1], torch.Tensor) else out

        fill()
        if mode == "eager":

            def eager() -> torch.Tensor:
                fill()
                return result_of(several())

            return several, eager
        spare = torch.cuda.Stream()
        spare.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(spare):
            one()
        torch.cuda.current_stream().wait_stream(spare)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            held = several()

        def replayed() -> torch.Tensor:
            fill()
            graph.replay()
            return result_of(held)

        return graph.replay, replayed

    def wrong(self, case: Case, result: torch.Tensor) -> int:
        """Elements that are not what they must be, on all ranks."""
        self.synchronize()
        count = torch.tensor([(result.reshape(-1) != case.expected).sum().item()])
        dist.all_reduce(count, group=self.meeting)
        return int(count.item())

    def sample(self, call: Callable[[], Any], sync: bool = True) -> list[float]:
        """Microseconds until it has returned, or is done: of the slowest rank, sorted."""
        times = []
        for number in range(-2, self.samples):
            self.synchronize()
            dist.barrier(group=self.meeting)
            begin = time.perf_counter()
            call()
            if sync:
                self.synchronize()
            taken = time.perf_counter() - begin
            if number >= 0:
                times.append(taken * 1e6)
        slowest = torch.tensor(times, dtype=torch.float64)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX, group=self.meeting)
        return sorted(slowest.tolist())

    def measure(self, way: Way, collective: str, size: int, mode: str) -> dict:
        """The row of a case, in the form of mscclpp-bench."""
        case = Case(collective, size, self.rank, self.ranks, self.dtype, self.device)
        name = str(self.dtype).rpartition(".")[2]
        op = "sum" if collective in ("allreduce", "reducescatter") else "none"
        row = {"name": f"{collective}/{way.name}:{mode}/{name}/{op}/{size}", "collective": collective,
               "algorithm": mode, "dtype": name, "op": op, "bytes": size, "count": case.count,
               "ranks": self.ranks, "samples": self.samples, "calls": self.calls}  # fmt: skip
        if way.name != OP:
            row["peer"] = way.name
        try:
            _, result = self.prepare(way, case, mode, 1)
            row["wrong"] = self.wrong(case, result())
            # What is summed in place, again and again, is of zeros.
            case.source.zero_()
            calls, _ = self.prepare(way, case, mode, self.calls)
        except (RuntimeError, NotImplementedError, ValueError, TypeError) as error:
            row["error"] = str(error).strip().splitlines()[0]
            return row
        times = [each / self.calls for each in self.sample(calls)]
        row["time_us"], row["p99_us"] = _at(times, 0.5), _at(times, 0.99)
        row["algbw_gbps"] = size / row["time_us"] * 1e-3
        row["busbw_gbps"] = row["algbw_gbps"] * case.bus_factor()
        return row

    def host(self) -> list[tuple[str, str, float, float]]:
        """(way, tensor, median, p99) of the microseconds until an all-reduce in place has returned."""
        rows = []
        ways = list(self.ways[:2])
        nothing = _fake_group()
        if nothing is not None:
            ways.append(Way(NOTHING, nothing))
        ways += self.ways[2:]
        sizes = [("no elements", 0)] + ([("1K", 1024 // self.dtype.itemsize)] if self.cuda else [])
        for what, count in sizes:
            for way in ways:
                if way.name == SYMMETRIC or (way.name == "gloo" and count == 0):
                    continue
                x = torch.zeros(count, dtype=self.dtype, device=self.device)
                call = way.into("allreduce", x, x)
                calls = max(self.calls, 100)

                def several(call: Callable[[], Any] = call, calls: int = calls) -> None:
                    for _ in range(calls):
                        call()

                with torch.no_grad():
                    times = [each / calls for each in self.sample(several, sync=False)]
                rows.append((way.name, what, _at(times, 0.5), _at(times, 0.99)))
        return rows


def _fake_group() -> Optional[Any]:
    """PyTorch's own backend for tests, whose calls return at once."""
    try:
        # pylint: disable-next=import-outside-toplevel,unused-import
        import torch.testing._internal.distributed.fake_pg  # noqa: F401

        return dist.new_group(backend="fake")
    except (ImportError, RuntimeError, ValueError):
        return None


def _at(times: list[float], share: float) -> float:
    return times[math.ceil(len(times) * share) - 1]


def _size(count: int) -> str:
    for shift, unit in ((30, "G"), (20, "M"), (10, "K")):
        if count % (1 << shift) == 0:
            return f"{count >> shift}{unit}"
    return str(count)


def _machine(bench: Bench) -> str:
    if not bench.cuda:
        return f"{bench.ranks} simulated GPUs on the CPU"
    shared = f", shared by {bench.ranks} ranks" if torch.cuda.device_count() < bench.ranks else ""
    return f"{min(bench.ranks, torch.cuda.device_count())} x {torch.cuda.get_device_name()}{shared}"


def markdown(rows: list[dict], host: list[tuple], machine: str) -> str:
    """The tables."""
    names = list(dict.fromkeys(row.get("peer", OP) for row in rows))
    lines = [f"PyTorch {torch.__version__}, {machine}."]
    lines.append("Microseconds a call, the slowest rank's: median (99th percentile).")
    for collective, mode in dict.fromkeys((row["collective"], row["algorithm"]) for row in rows):
        of = [row for row in rows if (row["collective"], row["algorithm"]) == (collective, mode)]
        lines += ["", f"### {collective}, {of[0]['dtype']}, {mode}", "", "| bytes | " + " | ".join(names) + " |"]
        lines.append("|---" * (len(names) + 1) + "|")
        for size in dict.fromkeys(row["bytes"] for row in of):
            cells = []
            for name in names:
                row = next(each for each in of if each["bytes"] == size and each.get("peer", OP) == name)
                if "error" in row:
                    cells.append("–")
                elif row["wrong"]:
                    cells.append(f"WRONG: {row['wrong']} elements")
                else:
                    cells.append(f"{row['time_us']:.2f} ({row['p99_us']:.2f})")
            lines.append(f"| {_size(size)} | " + " | ".join(cells) + " |")
    lines += ["", "### Host time of an all-reduce in place, until it returns", ""]
    lines += ["| | tensor | µs |", "|---|---|---|"]
    lines += [f"| {way} | {what} | {median:.2f} ({p99:.2f}) |" for way, what, median, p99 in host]
    return "\n".join(lines) + "\n"


def _plot(files: list[str], prefix: str) -> None:
    """By scripts/plot_bench.py, which the package has beside this file."""
    if importlib.util.find_spec("matplotlib") is None:
        print("no plots: there is no matplotlib")
        return
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "plots", "plot_bench.py")
    folder, name = os.path.split(prefix)
    for file in files:
        mode = file[len(prefix) + 1 : -len(".json")]
        command = [sys.executable, script, file, f"--out={folder or '.'}", f"--name={name}-{mode}"]
        subprocess.run(command, check=True)


def _rank(options: argparse.Namespace) -> int:
    """One rank's part; its exit status."""
    bench = Bench(options)
    most = options.max_bytes or (64 << 20 if bench.cuda else 64 << 10)
    rows = []
    for mode in options.modes:
        if mode == "graph" and not bench.cuda:
            continue
        for collective in options.collectives:
            size = options.min_bytes
            while size <= most:
                for way in bench.ways:
                    rows.append(bench.measure(way, collective, size, mode))
                    if bench.rank == 0 and "error" in rows[-1]:
                        print(f"{rows[-1]['name']}: not measured: {rows[-1]['error']}", file=sys.stderr)
                size *= options.factor
    host = bench.host()
    wrong = any(row.get("wrong") for row in rows)
    if bench.rank == 0:
        machine = _machine(bench)
        table = markdown(rows, host, machine)
        print(table)
        if options.output:
            with open(options.output + ".md", "w", encoding="utf-8") as file:
                file.write(table)
            files = []
            for mode in dict.fromkeys(row["algorithm"] for row in rows):
                files.append(f"{options.output}-{mode}.json")
                document = {"context": {"device": machine, "version": f"PyTorch {torch.__version__}", "mode": mode},
                            "rows": [row for row in rows if row["algorithm"] == mode]}  # fmt: skip
                with open(files[-1], "w", encoding="utf-8") as file:
                    json.dump(document, file, indent=1)
            _plot(files, options.output)
    dist.barrier(group=bench.meeting)
    dist.destroy_process_group()
    return 1 if wrong else 0


def _start(options: argparse.Namespace) -> int:
    """Starts the ranks, as torchrun does."""
    gpus = torch.cuda.device_count() if options.device == "cuda" else 0
    ranks = options.ranks or max(gpus, 2)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    common = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
    common.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    if options.device == "cpu":
        common["MSCCLPP_DEVICE"] = "sim"
    command = [sys.executable, "-m", "mscclpp.bench", *sys.argv[1:]]
    processes = [
        subprocess.Popen(command, env={**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(ranks)
    ]
    status = 0
    try:
        while processes:
            for process in list(processes):
                ended = process.poll()
                if ended is None:
                    continue
                processes.remove(process)
                if ended != 0:
                    # The others wait for it.
                    status = status or ended
                    for other in processes:
                        other.terminate()
            time.sleep(0.05)
    finally:
        for process in processes:
            process.kill()
    return status


def main() -> None:
    """The command."""
    parser = _arguments()
    options = parser.parse_args()
    if options.factor < 2:
        parser.error("--factor must be 2 or more")
    if options.device is None:
        options.device = "cuda" if torch.cuda.is_available() and os.environ.get("MSCCLPP_DEVICE") != "sim" else "cpu"
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device=cuda: PyTorch sees no GPU")
    if "RANK" in os.environ:
        if options.device == "cpu":
            os.environ["MSCCLPP_DEVICE"] = "sim"
        sys.exit(_rank(options))
    sys.exit(_start(options))


if __name__ == "__main__":
    main()
