# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""All-reduce of torch.distributed's "nccl" backend, by a program: the guide for integrating the DSL.

LD_PRELOAD=<build>/apps/nccl/libmscclpp_nccl.so torchrun --nnodes=1 --nproc_per_node=8 dsl_with_nccl_api.py

The preloaded library asks what the program has registered before its own algorithms, for communicators that are made from
then on.
"""

import os

import mscclpp
import torch
import torch.distributed as dist

from customized_comm import allreduce_nvls, spec_of


def register(spec: mscclpp.AlgoSpec, rank: int) -> bool:
    """Proves the program, and has it asked. False where no library of this one's is preloaded."""
    algorithm = mscclpp.compile(algo=allreduce_nvls, algo_spec=spec, rank=rank)  # raises where the program is wrong
    mscclpp.AlgorithmCollectionBuilder().add_algorithm_builder(algorithm)
    return algorithm.register_with_nccl()


def main():
    """Sums a tensor twice and compares each element."""
    rank = int(os.environ["RANK"])
    world_size = int(os.environ["WORLD_SIZE"])
    local_rank = int(os.environ.get("LOCAL_RANK", rank))
    if not register(spec_of(world_size, int(os.environ.get("LOCAL_WORLD_SIZE", world_size))), rank):
        raise SystemExit("libmscclpp_nccl.so is not preloaded: see the head of this file")

    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group(backend="nccl", device_id=device)
    # The switch reads and writes the tensor itself: its memory is NCCL's, in a symmetric window.
    backend = dist.group.WORLD._get_backend(device)  # pylint: disable=protected-access
    pool = torch.cuda.MemPool(backend.mem_allocator)
    count = 1 << 20
    with torch.cuda.use_mem_pool(pool):
        tensor = torch.zeros(count, dtype=torch.float16, device=device)
    backend.register_mem_pool(pool, symm=True)
    index = torch.arange(count, device=device) % 7
    for turn in range(2):
        tensor.copy_(index + rank + turn)
        dist.all_reduce(tensor)
        expected = (index + turn) * world_size + world_size * (world_size - 1) // 2
        assert torch.equal(tensor, expected.to(torch.float16)), f"rank {rank}: wrong sums in turn {turn}"
        print(f"rank {rank}: all-reduce of {tensor.nbytes} bytes is right", flush=True)
    backend.deregister_mem_pool(pool)
    del tensor
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
