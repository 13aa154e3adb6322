# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""All-reduce by what was measured to be fastest for each size: the section on tuning of the guide for PyTorch.

MSCCLPP_MASTER_ADDR=<ip> MSCCLPP_MASTER_PORT=<port> \\
  torchrun --nnodes=1 --nproc_per_node=8 customized_comm_with_tuning.py

--log2-sizes, --nblocks and --nthreads name other sizes and shapes than the guide's; --warmup, --launches and --ops say
how often each is run.
"""

import argparse

import mscclpp
import mscclpp.utils as mscclpp_utils
import torch

from customized_comm_with_default_algo import load_algorithms
from setup_comm import init_communicator


class CustomizedComm:
    """All-reduce of tensors that measures the algorithms when it is made."""

    def __init__(self, comm: mscclpp.CommGroup, options: argparse.Namespace):
        self.comm = comm
        self.rank = comm.my_rank
        self.world_size = comm.nranks
        self.options = options

        dlpack = mscclpp.RawGpuBuffer(1 << 27).to_dlpack(data_type=str(torch.float16))
        self.scratch_buffer = torch.utils.dlpack.from_dlpack(dlpack)
        algorithms = load_algorithms(scratch_buffer=self.scratch_buffer, rank=self.rank)

        self._algorithm_nvls_packet = [
            algo
            for algo in algorithms
            if algo.collective == "allreduce" and algo.name == "default_allreduce_nvls_packet"
        ][0]

        self._algorithm_rsag_zero_copy = [
            algo
            for algo in algorithms
            if algo.collective == "allreduce" and algo.name == "default_allreduce_rsag_zero_copy"
        ][0]

        self._algorithm_packet = [
            algo
            for algo in algorithms
            if algo.collective == "allreduce" and algo.name == "default_allreduce_packet"
        ][0]

        # NVLS zero-copy is only available on supported hardware
        if mscclpp.is_nvls_supported():
            self._algorithm_nvls_zero_copy = [
                algo
                for algo in algorithms
                if algo.collective == "allreduce" and algo.name == "default_allreduce_nvls_zero_copy"
            ][0]
        else:  # nor are packets through the switch: what is not tuned yet goes without
            self._algorithm_nvls_packet = self._algorithm_packet

        self._tune(options.warmup, options.launches, options.ops)

    def _run_algo(self, algo, tensor, size, nblocks, nthreads):
        return algo.execute(
            comm=self.comm.communicator,
            input_buffer=tensor.data_ptr(),
            output_buffer=tensor.data_ptr(),
            input_size=size,
            output_size=size,
            dtype=mscclpp_utils.torch_dtype_to_mscclpp_dtype(tensor.dtype),
            op=mscclpp.ReduceOp.SUM,
            stream=torch.cuda.current_stream().cuda_stream,
            nblocks=nblocks,
            nthreads_per_block=nthreads,
            symmetric_memory=True,
        )

    def _tune(self, n_warmup, n_graph_launches, n_ops_per_graph):
        sizes = [1 << i for i in self.options.log2_sizes]
        self.best_configs = {1024: (self._algorithm_nvls_packet, 0, 0)}

        # Use RawGpuBuffer for symmetric memory allocation
        tune_tensor = mscclpp.RawGpuBuffer(max(sizes)).to_dlpack(data_type=str(torch.float16))
        tune_tensor = torch.utils.dlpack.from_dlpack(tune_tensor)
        tune_tensor.normal_()
        candidates_nblocks = self.options.nblocks
        candidates_nthreads = self.options.nthreads
        capture_stream = torch.cuda.Stream()

        for size in sizes:
            algos = []
            if mscclpp.is_nvls_supported():
                algos.append(self._algorithm_nvls_zero_copy)
            if size <= 4 * 1024 * 1024:
                algos.append(self._algorithm_nvls_packet)
                algos.append(self._algorithm_packet)
            if size >= 512 * 1024:
                algos.append(self._algorithm_rsag_zero_copy)

            best_time = float("inf")
            best_config = None

            for algo in algos:
                for nb in candidates_nblocks:
                    for nt in candidates_nthreads:
                        if self._run_algo(algo, tune_tensor, size, nb, nt) != 0:
                            continue  # skip unsupported configs

                        # Warmup, then time with CUDA graphs
                        for _ in range(n_warmup):
                            self._run_algo(algo, tune_tensor, size, nb, nt)
                        torch.cuda.synchronize()
                        # A stream's first call makes what it needs with the other ranks: not while it is captured.
                        with torch.cuda.stream(capture_stream):
                            self._run_algo(algo, tune_tensor, size, nb, nt)
                        torch.cuda.synchronize()
                        graph = torch.cuda.CUDAGraph()
                        with torch.cuda.graph(graph, stream=capture_stream):
                            for _ in range(n_ops_per_graph):
                                self._run_algo(algo, tune_tensor, size, nb, nt)
                        elapsed = self._time_of(graph, n_graph_launches) / n_ops_per_graph

                        # Average timing across ranks
                        time_tensor = torch.full(
                            (self.world_size,), elapsed, dtype=torch.float64, device="cuda"
                        ).to(dtype=torch.float32)
                        self.all_reduce(time_tensor, op=torch.distributed.ReduceOp.SUM)
                        avg_time = time_tensor[self.rank].item() / self.world_size

                        if avg_time < best_time:
                            best_time = avg_time
                            best_config = (algo, nb, nt)

            if best_config:
                self.best_configs[size] = best_config

    @staticmethod
    def _time_of(graph, launches):
        """Milliseconds of one launch, after a first one that is not counted."""
        start = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        graph.replay()
        start.record()
        for _ in range(launches):
            graph.replay()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) / launches

    def get_tuned_config(self, size):
        """The algorithm, blocks and threads for a message, or None where nothing was measured."""
        if size < 1024:
            target_size = 1024
        elif size > 256 * 1024 * 1024:
            target_size = 256 * 1024 * 1024
        else:
            target_size = 1 << (size - 1).bit_length()
        return self.best_configs.get(target_size)

    def all_reduce(self, tensor, op=torch.distributed.ReduceOp.SUM, stream=None, symmetric_memory=False):
        """The tensor becomes the sum of all ranks'. `symmetric_memory`: it is of a RawGpuBuffer, on all ranks."""
        assert op == torch.distributed.ReduceOp.SUM
        config = self.get_tuned_config(tensor.nbytes)
        if config and not symmetric_memory and config[0].name.endswith("zero_copy"):
            config = None  # it would be refused
        algo, nblocks, nthreads = config if config else (self._algorithm_nvls_packet, 0, 0)
        status = algo.execute(
            comm=self.comm.communicator,
            input_buffer=tensor.data_ptr(),
            output_buffer=tensor.data_ptr(),
            input_size=tensor.nbytes,
            output_size=tensor.nbytes,
            dtype=mscclpp_utils.torch_dtype_to_mscclpp_dtype(tensor.dtype),
            op=mscclpp.ReduceOp.SUM,
            stream=stream.cuda_stream if stream else torch.cuda.current_stream().cuda_stream,
            nblocks=nblocks,
            nthreads_per_block=nthreads,
            symmetric_memory=symmetric_memory,
        )
        if status != 0:
            raise RuntimeError(f"{algo.name} refuses {tensor.nbytes} bytes of {tensor.dtype}")

    def benchmark(self, n_warmup=10, n_graph_launches=10, n_iter_per_graph=100):
        """Prints the time of each size."""
        sizes = [1 << i for i in self.options.log2_sizes]
        # Allocate a single large RawGpuBuffer (symmetric memory) and reuse for all sizes
        dtype = torch.float16
        bench_buf = mscclpp.RawGpuBuffer(max(sizes)).to_dlpack(data_type=str(dtype))
        bench_buf = torch.utils.dlpack.from_dlpack(bench_buf)
        bench_buf.normal_()
        capture_stream = torch.cuda.Stream()

        for size in sizes:
            n_elements = size // bench_buf.element_size()
            tensor = bench_buf[:n_elements]

            # Capture CUDA graph, warmup, and time...
            with torch.cuda.stream(capture_stream):
                for _ in range(n_warmup):
                    self.all_reduce(tensor, op=torch.distributed.ReduceOp.SUM, symmetric_memory=True)
            torch.cuda.synchronize()
            g = torch.cuda.CUDAGraph()
            with torch.cuda.graph(g, stream=capture_stream):
                for _ in range(n_iter_per_graph):
                    self.all_reduce(tensor, op=torch.distributed.ReduceOp.SUM, symmetric_memory=True)
            elapsed = self._time_of(g, n_graph_launches) / n_iter_per_graph
            if self.rank == 0:
                algo, nblocks, nthreads = self.get_tuned_config(size) or (self._algorithm_nvls_packet, 0, 0)
                print(f"{size:>10} bytes {1000 * elapsed:10.2f} us  {algo.name}, {nblocks} x {nthreads}", flush=True)

    def check(self):
        """Compares each element of sums of both kinds of memory."""
        count = (1 << self.options.log2_sizes[-1]) // 2
        dlpack = mscclpp.RawGpuBuffer(2 * count).to_dlpack(data_type=str(torch.float16))
        symmetric = torch.utils.dlpack.from_dlpack(dlpack)
        ordinary = torch.empty(count, dtype=torch.float16, device="cuda")
        others = self.world_size * (self.world_size - 1) // 2
        index = torch.arange(count, device="cuda") % 7
        for tensor, is_symmetric in ((symmetric, True), (ordinary, False)):
            tensor.copy_(index + self.rank)
            torch.cuda.synchronize()
            self.comm.barrier()
            self.all_reduce(tensor, symmetric_memory=is_symmetric)
            torch.cuda.synchronize()
            expected = (index * self.world_size + others).to(torch.float16)
            assert torch.equal(tensor, expected), f"rank {self.rank}: wrong sums, symmetric memory: {is_symmetric}"
            print(f"rank {self.rank}: all-reduce of {tensor.nbytes} bytes is right", flush=True)


def main():
    """Tunes, checks, and measures what was chosen."""
    numbers = {"type": int, "nargs": "+"}
    parser = argparse.ArgumentParser()
    parser.add_argument("--log2-sizes", default=list(range(10, 28)), help="of messages, in bytes", **numbers)
    parser.add_argument("--nblocks", default=[4, 8, 16, 24, 32, 48, 64, 128], **numbers)
    parser.add_argument("--nthreads", default=[512, 768, 1024], **numbers)
    parser.add_argument("--warmup", type=int, default=5, help="calls before each measurement")
    parser.add_argument("--launches", type=int, default=10, help="of each graph")
    parser.add_argument("--ops", type=int, default=100, help="calls in each graph")
    options = parser.parse_args()
    comm = init_communicator()
    customized_comm = CustomizedComm(comm, options)
    customized_comm.check()
    customized_comm.benchmark(options.warmup, options.launches, options.ops)
    torch.cuda.synchronize()
    comm.barrier()


if __name__ == "__main__":
    main()
