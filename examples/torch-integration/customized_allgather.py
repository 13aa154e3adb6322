# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# MSCCLPP_MASTER_ADDR=<ip> MSCCLPP_MASTER_PORT=<port> torchrun --nnodes=1 --nproc_per_node=8 customized_allgather.py
"""An all-gather of one's own, compiled from customized_allgather.cu when it is first asked for."""

import os

import mscclpp
import mscclpp.utils as mscclpp_utils
import torch
from setup_comm import init_communicator


class CustomizedComm:
    """All-gathers by that algorithm."""

    def __init__(self, comm: mscclpp.CommGroup):
        self.comm = comm
        mscclpp_native = mscclpp.compile_native(
            name="mscclpp_native", file=os.path.join(os.path.dirname(__file__), "customized_allgather.cu")
        )
        capsule = mscclpp_native.create_allgather_algorithm()
        self.algorithm = mscclpp.Algorithm.create_from_native_capsule(capsule)

    def all_gather(self, tensor: torch.Tensor, out_tensor: torch.Tensor, stream=None):
        """`out_tensor` becomes all ranks' `tensor`."""
        status = self.algorithm.execute(
            self.comm.communicator,
            tensor.data_ptr(),
            out_tensor.data_ptr(),
            tensor.nbytes,
            out_tensor.nbytes,
            mscclpp_utils.torch_dtype_to_mscclpp_dtype(tensor.dtype),
            stream=stream.cuda_stream if stream else 0,
        )
        assert status == 0


def main():
    """Several calls, checked."""
    group = init_communicator()
    comm = CustomizedComm(group)
    tensor = torch.utils.dlpack.from_dlpack(mscclpp.RawGpuBuffer(4000).to_dlpack(data_type=str(torch.float32)))
    out = torch.utils.dlpack.from_dlpack(
        mscclpp.RawGpuBuffer(4000 * group.nranks).to_dlpack(data_type=str(torch.float32), shape=[group.nranks, 1000])
    )
    for turn in range(3):
        tensor.fill_(10 * group.my_rank + turn)
        torch.cuda.synchronize()
        group.barrier()  # nobody reads the turn before any more
        comm.all_gather(tensor, out, stream=torch.cuda.current_stream())
        torch.cuda.synchronize()
        for peer in range(group.nranks):
            assert (out[peer] == 10 * peer + turn).all(), out
        group.barrier()
    print(f"rank {group.my_rank}: all-gathers by {comm.algorithm.name} are right")


if __name__ == "__main__":
    main()
