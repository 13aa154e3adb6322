# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# MSCCLPP_MASTER_ADDR=<ip> MSCCLPP_MASTER_PORT=<port> \
#   torchrun --nnodes=1 --nproc_per_node=8 customized_comm_with_default_algo.py
"""All-reduces by two of the library's algorithms, which a communicator of one's own chooses by size."""

import mscclpp
import mscclpp.utils as mscclpp_utils
import torch
from setup_comm import init_communicator


def load_algorithms(scratch_buffer: torch.Tensor, rank: int):
    """The library's algorithms."""
    collection_builder = mscclpp.AlgorithmCollectionBuilder()
    return collection_builder.build_default_algorithms(
        scratch_buffer=scratch_buffer.data_ptr(), scratch_buffer_size=scratch_buffer.nbytes, rank=rank
    )


class CustomizedComm:
    """Chooses between an algorithm for small messages and one for large."""

    def __init__(self, comm: mscclpp.CommGroup):
        self.comm = comm
        dlpack = mscclpp.RawGpuBuffer(1 << 20).to_dlpack(data_type=str(torch.float16))
        self.scratch_buffer = torch.utils.dlpack.from_dlpack(dlpack)
        algorithms = load_algorithms(self.scratch_buffer, comm.my_rank)
        self._algo_small = self._named(algorithms, "default_allreduce_nvls_packet", "default_allreduce_packet")
        self._algo_large = self._named(
            algorithms, "default_allreduce_nvls_warp_pipeline", "default_allreduce_rsag_pipeline"
        )

    @staticmethod
    def _named(algorithms, through_switch: str, otherwise: str):
        name = through_switch if mscclpp.is_nvls_supported() else otherwise
        return [algo for algo in algorithms if algo.collective == "allreduce" and algo.name == name][0]

    def all_reduce(self, tensor: torch.Tensor, stream=None):
        """In place."""
        algo = self._algo_small if tensor.nbytes < (1 << 20) else self._algo_large
        status = algo.execute(
            comm=self.comm.communicator,
            input_buffer=tensor.data_ptr(),
            output_buffer=tensor.data_ptr(),
            input_size=tensor.nbytes,
            output_size=tensor.nbytes,
            dtype=mscclpp_utils.torch_dtype_to_mscclpp_dtype(tensor.dtype),
            op=mscclpp.ReduceOp.SUM,
            stream=stream.cuda_stream if stream else 0,
        )
        assert status == 0, f"{algo.name} does not take {tensor.nbytes} bytes"


def main():
    """Small and large messages, checked."""
    comm = CustomizedComm(init_communicator())
    rank, size = comm.comm.my_rank, comm.comm.nranks
    for elements in (1 << 10, 1 << 19):
        tensor = torch.full((elements,), rank + 1, dtype=torch.float16, device="cuda")
        comm.all_reduce(tensor, stream=torch.cuda.current_stream())
        torch.cuda.synchronize()
        assert (tensor == size * (size + 1) // 2).all(), tensor
    comm.comm.barrier()
    print(f"rank {rank}: all-reduces by {comm._algo_small.name} and {comm._algo_large.name} are right")


if __name__ == "__main__":
    main()
