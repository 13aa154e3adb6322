# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""All-reduce behind a communicator of one's own, by a registered program: the guide for integrating the DSL.

MSCCLPP_MASTER_ADDR=<ip> MSCCLPP_MASTER_PORT=<port> torchrun --nnodes=1 --nproc_per_node=8 customized_comm.py
"""

import mscclpp
import mscclpp.utils as mscclpp_utils
import torch
from mscclpp.language.channel import BufferType, MemoryChannel, SwitchChannel, SyncType
from mscclpp.language.collectives import AllReduce
from mscclpp.language.program import CollectiveProgram
from mscclpp.language.rank import Rank

from setup_comm import init_communicator


def allreduce_nvls(spec: mscclpp.AlgoSpec) -> CollectiveProgram:
    """Each rank reduces one part of all ranks' inputs through the switch, and broadcasts it."""
    gpu_size = spec.world_size
    with CollectiveProgram(
        spec.name,
        spec.collective,
        gpu_size,
        instances=8,
        protocol=spec.protocol,
        num_threads_per_block=spec.num_threads_per_block,
        min_message_size=spec.min_message_size,
        max_message_size=spec.max_message_size,
    ) as program:
        # Creating Channels
        nvls_chan = SwitchChannel(rank_list=[gpu for gpu in range(gpu_size)], buffer_type=BufferType.input)
        channels = {}
        for gpu in range(gpu_size):
            for peer in range(gpu_size):
                if peer != gpu:
                    channels[(peer, gpu)] = MemoryChannel(peer, gpu)

        # Synchronization to Ensure all the Gpus are Ready
        for gpu in range(gpu_size):
            src_rank = gpu
            for peer in range(gpu_size):
                if peer != src_rank:
                    dst_rank = peer
                    channels[(dst_rank, src_rank)].signal(tb=0, relaxed=True)
            for peer in range(gpu_size):
                if peer != src_rank:
                    dst_rank = peer
                    channels[(dst_rank, src_rank)].wait(tb=0, relaxed=True, data_sync=SyncType.after)

        # Reducing and Storing the data
        for gpu in range(gpu_size):
            buffer_offset = gpu
            rank = Rank(gpu)
            input_buffer = rank.get_input_buffer()
            nvls_chan.at_rank(gpu).reduce(
                buffer_offset=buffer_offset, size=1, dst_chunk=input_buffer[gpu : gpu + 1], tb=0
            )
            nvls_chan.at_rank(gpu).broadcast(
                src_chunk=input_buffer[gpu : gpu + 1], buffer_offset=buffer_offset, size=1, tb=0
            )

        # Synchronization to Ensure the Gpus finished
        for gpu in range(gpu_size):
            src_rank = gpu
            for peer in range(gpu_size):
                if peer != src_rank:
                    dst_rank = peer
                    channels[(dst_rank, src_rank)].signal(tb=0, relaxed=True, data_sync=SyncType.before)
            for peer in range(gpu_size):
                if peer != src_rank:
                    dst_rank = peer
                    channels[(dst_rank, src_rank)].wait(tb=0, relaxed=True)

    return program


def spec_of(world_size: int, nranks_per_node: int) -> mscclpp.AlgoSpec:
    """What the program is for: messages of a megabyte and more, in place."""
    return mscclpp.AlgoSpec(
        name="allreduce_nvls",
        collective=AllReduce(world_size, 1, True),
        nranks_per_node=nranks_per_node,
        world_size=world_size,
        in_place=True,
        instances=8,
        protocol="Simple",
        num_threads_per_block=1024,
        min_message_size=1 << 20,
        max_message_size=48 << 30,
        tags={"nvls": 1},
    )


def select(algorithms: dict, request: mscclpp.SelectionRequest):
    """The program, where it can do the call; else what the library would choose. It depends on what all ranks share."""
    if request.collective == "allreduce" and request.symmetric_memory and request.message_size >= 1 << 20:
        return algorithms["allreduce"]["allreduce_nvls"]
    return None


class CustomizedComm:
    """Collectives of tensors over a communicator."""

    def __init__(self, comm: mscclpp.CommGroup):
        self.comm = comm
        spec = spec_of(comm.nranks, comm.nranks_per_node)
        builder = mscclpp.AlgorithmCollectionBuilder()
        builder.add_algorithm_builder(mscclpp.compile(algo=allreduce_nvls, algo_spec=spec, rank=comm.my_rank))
        builder.set_algorithm_selector(select)
        self.algorithms = builder.build().native

    def all_reduce(self, tensor: torch.Tensor, stream=None, symmetric_memory=False):
        """The tensor becomes the sum of all ranks'. `symmetric_memory`: it is of a RawGpuBuffer, on all ranks."""
        self.algorithms.execute(
            "allreduce",
            comm=self.comm.communicator,
            input_buffer=tensor.data_ptr(),
            output_buffer=tensor.data_ptr(),
            input_size=tensor.nbytes,
            output_size=tensor.nbytes,
            dtype=mscclpp_utils.torch_dtype_to_mscclpp_dtype(tensor.dtype),
            op=mscclpp.ReduceOp.SUM,
            stream=stream.cuda_stream if stream else 0,
            symmetric_memory=symmetric_memory,
        )

    def chosen(self, tensor: torch.Tensor, symmetric_memory: bool) -> str:
        """The name of the algorithm that all_reduce() takes."""
        at, size = tensor.data_ptr(), tensor.nbytes
        dtype = mscclpp_utils.torch_dtype_to_mscclpp_dtype(tensor.dtype)
        communicator, op = self.comm.communicator, mscclpp.ReduceOp.SUM
        return self.algorithms.choose(
            "allreduce", communicator, at, at, size, size, dtype, op, symmetric_memory
        ).algorithm


def main():
    """Sums tensors that go to the program and one that does not, and compares each element."""
    comm = init_communicator()
    customized_comm = CustomizedComm(comm)
    dlpack = mscclpp.RawGpuBuffer(1 << 21).to_dlpack(data_type=str(torch.float16))
    symmetric = torch.utils.dlpack.from_dlpack(dlpack)
    ordinary = torch.empty(1000, dtype=torch.float16, device="cuda")
    others = comm.nranks * (comm.nranks - 1) // 2
    for tensor, is_symmetric in ((symmetric, True), (symmetric[: 1 << 19], True), (ordinary, False)):
        index = torch.arange(tensor.numel(), device="cuda") % 7
        tensor.copy_(index + comm.my_rank)
        torch.cuda.synchronize()
        comm.barrier()
        name = customized_comm.chosen(tensor, is_symmetric)
        assert (name == "allreduce_nvls") == is_symmetric, name
        customized_comm.all_reduce(tensor, torch.cuda.current_stream(), is_symmetric)
        torch.cuda.synchronize()
        expected = (index * comm.nranks + others).to(torch.float16)
        assert torch.equal(tensor, expected), f"rank {comm.my_rank}: wrong sums of {tensor.nbytes} bytes by {name}"
        print(f"rank {comm.my_rank}: all-reduce of {tensor.nbytes} bytes by {name} is right", flush=True)
    comm.barrier()


if __name__ == "__main__":
    main()
