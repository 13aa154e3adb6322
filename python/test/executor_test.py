# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a plan, compares each element with what its collective demands, and measures it.

mpirun -np 2 python3 python/test/executor_test.py -path plan.json --size 1M --in_place

The ranks are those that mpirun, torchrun or srun has started. On GPUs, PyTorch gives streams and graphs; where it is
missing, launches are timed one by one. Without GPUs the plan runs on simulated ones, and times tell nothing.
"""

import argparse
import ctypes
import importlib.util
import sys
import time

import mscclpp
import numpy as np


def bytes_named(text: str) -> int:
    """A number of bytes, such as 1M."""
    unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:].upper())
    return int(text[:-1]) * unit if unit else int(text)


class Elements:
    """Elements of a type as NumPy has them; of bfloat16, which it has not, as the bits that they consist of."""

    def __init__(self, name: str):
        self.type = getattr(mscclpp.DataType, name)
        self.stored = np.dtype(np.uint16 if name == "bfloat16" else name)
        self._is_brain = name == "bfloat16"

    def of(self, values: np.ndarray) -> np.ndarray:
        """Small whole numbers, which all types hold exactly."""
        if not self._is_brain:
            return values.astype(self.stored)
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


class Simulated:
    """The simulated machine: its memory is the host's, and calls return when they are done."""

    graphs = False
    stream = 0

    def write(self, address: int, array: np.ndarray) -> None:
        """From the host to the device."""
        ctypes.memmove(address, array.ctypes.data, array.nbytes)

    def read(self, address: int, array: np.ndarray) -> None:
        """From the device to the host."""
        ctypes.memmove(array.ctypes.data, address, array.nbytes)

    def synchronize(self) -> None:
        """Nothing is left to wait for."""


class CudaDriver:
    """A GPU without PyTorch."""

    graphs = False

    def __init__(self, device: mscclpp.Device):
        self._driver = ctypes.CDLL("libcuda.so.1")
        handle, context = ctypes.c_int(), ctypes.c_void_p()
        self._do("cuInit", 0)
        self._do("cuDeviceGet", ctypes.byref(handle), device.ordinal)
        self._do("cuDevicePrimaryCtxRetain", ctypes.byref(context), handle)
        self._do("cuCtxSetCurrent", context)
        self._queue, self.stream = self._new_stream(device)

    def _new_stream(self, device: mscclpp.Device):
        """What can be waited for, and its handle."""
        queue = mscclpp.Stream(device)
        return queue, queue.handle

    def _do(self, function: str, *arguments) -> None:
        status = getattr(self._driver, function)(*arguments)
        if status != 0:
            raise RuntimeError(f"{function}: CUDA's error {status}")

    def write(self, address: int, array: np.ndarray) -> None:
        """From the host to the device."""
        self._do("cuMemcpyHtoD_v2", ctypes.c_uint64(address), ctypes.c_void_p(array.ctypes.data), bytes_of(array))

    def read(self, address: int, array: np.ndarray) -> None:
        """From the device to the host."""
        self._do("cuMemcpyDtoH_v2", ctypes.c_void_p(array.ctypes.data), ctypes.c_uint64(address), bytes_of(array))

    def synchronize(self) -> None:
        """Waits for the stream."""
        self._queue.synchronize()


def bytes_of(array: np.ndarray) -> ctypes.c_size_t:
    """As C takes it."""
    return ctypes.c_size_t(array.nbytes)


class CudaTorch(CudaDriver):
    """A GPU with PyTorch, for its stream and graphs."""

    graphs = True

    def _new_stream(self, device: mscclpp.Device):
        import torch  # pylint: disable=import-outside-toplevel

        self._cuda = torch.cuda  # pylint: disable=attribute-defined-outside-init
        queue = torch.cuda.Stream(device.ordinal)
        return queue, queue.cuda_stream

    def graph_of(self, call, times: int):
        """A graph of `times` calls."""
        graph = self._cuda.CUDAGraph()
        with self._cuda.graph(graph, stream=self._queue):
            for _ in range(times):
                call()
        return graph

    def replay(self, graph) -> None:
        """Puts a graph into the stream."""
        with self._cuda.stream(self._queue):
            graph.replay()


def machine_of(device: mscclpp.Device):
    """How the device's memory is reached and its work timed."""
    if device.kind == "sim":
        return Simulated()
    return (CudaTorch if importlib.util.find_spec("torch") else CudaDriver)(device)


class Case:
    """What one rank gives to a collective and gets from it; `size` is of the larger buffer."""

    def __init__(self, plan: mscclpp.ExecutionPlan, group: mscclpp.CommGroup, size: int, elements: Elements):
        self.collective, self.rank, self.ranks, self.elements = plan.collective, group.my_rank, group.nranks, elements
        known = ("allgather", "allreduce", "alltoall", "reducescatter", "sendrecv")
        if self.collective not in known:
            raise SystemExit(f"{plan.name} is of '{self.collective}'; what these demand is known: {', '.join(known)}")
        self.whole = size // elements.stored.itemsize
        parted = self.collective not in ("allreduce", "sendrecv")
        if parted and self.whole % self.ranks:
            raise SystemExit(f"{self.whole} elements cannot be parted among {self.ranks} ranks")
        self.part = self.whole // self.ranks
        self.count_in = self.part if self.collective == "allgather" else self.whole
        self.count_out = self.part if self.collective == "reducescatter" else self.whole

    def values(self, rank: int, turn: int) -> np.ndarray:
        """Of a rank's input. Sums of all ranks' stay below what half precision holds exactly."""
        limit = max(2, 256 // self.ranks)
        return ((np.arange(self.count_in) * 40503 + rank * 7919 + turn * 104729) >> 4) % limit

    def expected(self, turn: int) -> np.ndarray:
        """Of the output."""
        mine = slice(self.rank * self.part, (self.rank + 1) * self.part)
        if self.collective == "sendrecv":
            return self.values((self.rank - 1) % self.ranks, turn)
        inputs = (self.values(rank, turn) for rank in range(self.ranks))
        if self.collective == "allgather":
            return np.concatenate(list(inputs))
        if self.collective == "alltoall":
            return np.concatenate([each[mine] for each in inputs])
        total = sum(inputs)
        return total[mine] if self.collective == "reducescatter" else total


class Buffers:
    """Memory of both sides, which is one in place: the smaller side is then the rank's part of the larger."""

    def __init__(self, case: Case, in_place: bool, device: mscclpp.Device):
        size = case.elements.stored.itemsize
        self.bytes_in, self.bytes_out = case.count_in * size, case.count_out * size
        larger = mscclpp.RawGpuBuffer(max(self.bytes_in, self.bytes_out), device)
        self._kept = [larger]
        self.at_in = self.at_out = larger.data()
        smaller = min(self.bytes_in, self.bytes_out)
        if not in_place:
            self._kept.append(mscclpp.RawGpuBuffer(self.bytes_out, device))
            self.at_out = self._kept[1].data()
        elif self.bytes_in < self.bytes_out:
            self.at_in += case.rank * smaller
        elif self.bytes_out < self.bytes_in:
            self.at_out += case.rank * smaller


def part_of(world: mscclpp.CommGroup, split_mask: int) -> mscclpp.CommGroup:
    """The ranks whose numbers have the same bits of the mask as this one's; each such group runs the plan by itself."""
    if split_mask == 0:
        return world
    ranks = [rank for rank in range(world.nranks) if rank & split_mask == world.my_rank & split_mask]
    return mscclpp.CommGroup.of(world.communicator.shrink(ranks))


def check(case: Case, buffers: Buffers, machine, run, turns: int, group: mscclpp.CommGroup) -> int:
    """How many elements of `turns` runs are wrong on this rank."""
    wrong = 0
    output = np.empty(case.count_out, case.elements.stored)
    for turn in range(turns):
        machine.write(buffers.at_out, case.elements.of(np.full(case.count_out, 77)))  # what nobody sends
        machine.write(buffers.at_in, case.elements.of(case.values(case.rank, turn)))
        group.barrier()
        run()
        group.synchronize(machine.stream)
        machine.read(buffers.at_out, output)
        wrong += int(np.count_nonzero(output != case.elements.of(case.expected(turn))))
        group.barrier()
    return wrong


def measure(machine, run, iterations: int, graph_launches: int, group: mscclpp.CommGroup) -> float:
    """Seconds of one run: of graphs with `iterations` runs each where there are graphs, else of single launches."""
    graph = machine.graph_of(run, iterations) if machine.graphs and graph_launches > 0 else None
    launches = max(1, graph_launches)

    def launch():
        if graph is not None:
            machine.replay(graph)
            return
        for _ in range(iterations):
            run()

    launch()
    machine.synchronize()
    group.barrier()
    begin = time.perf_counter()
    for _ in range(launches):
        launch()
    machine.synchronize()
    return (time.perf_counter() - begin) / (launches * iterations)


def options_of(arguments: list) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-path", "--execution_plan_path", required=True, help="of the plan, in JSON")
    parser.add_argument("--size", type=bytes_named, required=True, help="bytes of the larger buffer, such as 1M")
    parser.add_argument("--in_place", action="store_true", help="input and output are one buffer")
    parser.add_argument("--dtype", choices=("float16", "bfloat16", "float32", "int32"), default="float16")
    parser.add_argument("--packet_type", choices=("LL8", "LL16"), default="LL16")
    parser.add_argument("--n_iters", type=int, default=10, help="runs that are checked, and runs in a graph")
    parser.add_argument("--n_graph_iters", type=int, default=10, help="launches of the graph")
    parser.add_argument("--split_mask", type=lambda text: int(text, 0), default=0,
                        help="ranks that differ in these bits of their numbers are in different groups, such as 0x1")
    options = parser.parse_args(arguments)
    if options.size < 1 or options.n_iters < 1 or options.n_graph_iters < 0 or options.split_mask < 0:
        parser.error("--size and --n_iters are at least 1, --n_graph_iters and --split_mask at least 0")
    return options


def main() -> None:
    """The command. The exit status is 1 where an element is wrong on any rank of the group."""
    options = options_of(sys.argv[1:])
    world = mscclpp.CommGroup()
    group = part_of(world, options.split_mask)
    elements = Elements(options.dtype)
    plan = mscclpp.ExecutionPlan(options.execution_plan_path, group.my_rank)
    if plan.ranks != group.nranks:
        raise SystemExit(f"{plan.name} is for {plan.ranks} ranks; {group.nranks} take part")
    if plan.in_place != options.in_place:
        raise SystemExit(f"{plan.name} is {'' if plan.in_place else 'not '}in place; --in_place has to say so, too")
    case = Case(plan, group, options.size, elements)
    buffers = Buffers(case, options.in_place, group.device)
    machine = machine_of(group.device)
    executor = mscclpp.Executor(group.communicator)
    packets = getattr(mscclpp.PacketType, options.packet_type)

    def run():
        executor.execute(group.my_rank, buffers.at_in, buffers.at_out, buffers.bytes_in, buffers.bytes_out,
                         elements.type, plan, machine.stream, packets)

    wrong = check(case, buffers, machine, run, options.n_iters, group)
    found = mscclpp.GpuBuffer(1, "int32", group.device)  # over all ranks
    machine.write(found.data_ptr(), np.array([wrong], np.int32))
    group.all_reduce(found, stream=machine.stream)
    group.synchronize(machine.stream)
    total = np.empty(1, np.int32)
    machine.read(found.data_ptr(), total)
    if total[0] != 0:
        compared = case.count_out * options.n_iters
        raise SystemExit(f"rank {group.my_rank}: {plan.name}: {wrong} of {compared} elements are wrong here, "
                         f"{total[0]} on all ranks")
    seconds = measure(machine, run, options.n_iters, options.n_graph_iters, group)
    group.synchronize(machine.stream)
    if group.my_rank == 0:
        note = "" if group.device.kind == "cuda" else "; simulated, so that the time tells nothing"
        size = max(buffers.bytes_in, buffers.bytes_out)
        print(f"{plan.name}: {plan.collective} of {group.nranks} ranks, {size} bytes of {options.dtype}, "
              f"{options.packet_type}: all elements are right, {1e6 * seconds:.2f} us, "
              f"{size / seconds / 1e9:.3f} GB/s{note}", flush=True)
    world.barrier()  # nobody leaves while others still use its memory


if __name__ == "__main__":
    main()
