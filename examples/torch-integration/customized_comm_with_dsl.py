# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# MSCCLPP_MASTER_ADDR=<ip> MSCCLPP_MASTER_PORT=<port> torchrun --nnodes=1 --nproc_per_node=8 customized_comm_with_dsl.py
"""An all-reduce through the switch that is written step by step, proved, and run by a communicator of one's own."""

import mscclpp
import mscclpp.utils as mscclpp_utils
import torch
from mscclpp.language.channel import BufferType, MemoryChannel, SwitchChannel, SyncType
from mscclpp.language.collectives import AllReduce
from mscclpp.language.program import CollectiveProgram
from mscclpp.language.rank import Rank
from setup_comm import init_communicator


def allreduce_nvls(spec: mscclpp.AlgoSpec) -> CollectiveProgram:
    """Each rank has the switch reduce one chunk and hand the result to all."""
    gpu_size = spec.world_size

    with CollectiveProgram(
        spec.name,
        spec.collective,
        gpu_size,
        instances=spec.instances,
        protocol=spec.protocol,
        num_threads_per_block=spec.num_threads_per_block,
        min_message_size=spec.min_message_size,
        max_message_size=spec.max_message_size,
    ) as program:
        nvls_chan = SwitchChannel(rank_list=[gpu for gpu in range(gpu_size)], buffer_type=BufferType.input)
        channels = {}
        for gpu in range(gpu_size):
            for peer in range(gpu_size):
                if peer != gpu:
                    channels[(peer, gpu)] = MemoryChannel(peer, gpu)

        # Synchronize before operation
        for gpu in range(gpu_size):
            for peer in range(gpu_size):
                if peer != gpu:
                    channels[(peer, gpu)].signal(tb=0, relaxed=True)
            for peer in range(gpu_size):
                if peer != gpu:
                    channels[(peer, gpu)].wait(tb=0, relaxed=True, data_sync=SyncType.after)

        # Perform reduce and broadcast
        for gpu in range(gpu_size):
            rank = Rank(gpu)
            input_buffer = rank.get_input_buffer()
            nvls_chan.at_rank(gpu).reduce(
                buffer_offset=gpu, size=1, dst_chunk=input_buffer[gpu : gpu + 1], tb=0
            )
            nvls_chan.at_rank(gpu).broadcast(
                src_chunk=input_buffer[gpu : gpu + 1], buffer_offset=gpu, size=1, tb=0
            )

        # Synchronize after operation
        for gpu in range(gpu_size):
            for peer in range(gpu_size):
                if peer != gpu:
                    channels[(peer, gpu)].signal(tb=0, relaxed=True, data_sync=SyncType.before)
            for peer in range(gpu_size):
                if peer != gpu:
                    channels[(peer, gpu)].wait(tb=0, relaxed=True)

    return program


def setup_algorithm(rank: int, world_size: int, nranks_per_node: int):
    """The program as an algorithm."""
    spec = mscclpp.language.AlgoSpec(
        name="allreduce_nvls",
        collective=AllReduce(world_size, 1, True),
        nranks_per_node=nranks_per_node,
        world_size=world_size,
        in_place=True,
        instances=nranks_per_node,
        protocol="Simple",
        num_threads_per_block=1024,
        min_message_size=1 << 20,
        max_message_size=48 << 30,
        tags={"nvls": 1},
    )
    return mscclpp.compile(algo=allreduce_nvls, algo_spec=spec, rank=rank)


class CustomizedComm:
    """All-reduces by that algorithm."""

    def __init__(self, comm: mscclpp.CommGroup, algorithm):
        self.comm = comm
        self.executor = mscclpp.Executor(comm.communicator)
        self.algorithm = algorithm

    def all_reduce(self, tensor: torch.Tensor, stream=None):
        """In place."""
        status = self.algorithm.execute(
            comm=self.comm.communicator,
            executor=self.executor,
            input_buffer=tensor.data_ptr(),
            output_buffer=tensor.data_ptr(),
            input_size=tensor.nbytes,
            output_size=tensor.nbytes,
            dtype=mscclpp_utils.torch_dtype_to_mscclpp_dtype(tensor.dtype),
            stream=stream.cuda_stream if stream else 0,
        )
        assert status == 0, f"{self.algorithm.name} does not take {tensor.nbytes} bytes"


def main():
    """One message, checked."""
    group = init_communicator()
    algorithm = setup_algorithm(group.my_rank, group.nranks, group.nranks_per_node)
    comm = CustomizedComm(group, algorithm)
    tensor = torch.utils.dlpack.from_dlpack(mscclpp.RawGpuBuffer(1 << 20).to_dlpack(data_type=str(torch.float16)))
    for turn in range(3):
        tensor.fill_(group.my_rank + turn)
        comm.all_reduce(tensor, stream=torch.cuda.current_stream())
        torch.cuda.synchronize()
        assert (tensor == sum(range(group.nranks)) + group.nranks * turn).all(), tensor
        group.barrier()
    print(f"rank {group.my_rank}: all-reduces by {algorithm.name} are right")


if __name__ == "__main__":
    main()
