# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""All-reduce of torch.distributed's "nccl" backend, by a program: the guide for integrating the DSL.

LD_PRELOAD=<build>/apps/nccl/libmscclpp_nccl.so torchrun --nnodes=1 --nproc_per_node=8 dsl_with_nccl_api.py

The preloaded library asks plans before its own algorithms, and finds them under MSCCLPP_CACHE_DIR, where they stay for
later programs. --plan-only writes the plan, for which no GPU is needed, and prints its path.
"""

import argparse
import os
import pathlib
import warnings

import mscclpp
import torch
import torch.distributed as dist
from mscclpp.language import WrongProgram

from customized_comm import allreduce_nvls, spec_of


def register(spec: mscclpp.AlgoSpec, rank: int) -> pathlib.Path:
    """Proves the program, and puts its plan to where communicators that are made later find it."""
    mscclpp.compile(algo=allreduce_nvls, algo_spec=spec, rank=rank)  # raises where the program is wrong
    with warnings.catch_warnings():
        warnings.simplefilter("error", WrongProgram)
        plan = allreduce_nvls(spec).to_json()
    cache = os.environ.get("MSCCLPP_CACHE_DIR") or pathlib.Path.home() / ".cache" / "mscclpp"
    path = pathlib.Path(cache) / "default" / f"{spec.name}_{spec.world_size}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    # All ranks write the same, so nobody has to wait for another.
    part = path.with_name(f"{path.name}.{os.getpid()}")
    part.write_text(plan, encoding="utf-8")
    part.replace(path)
    return path


def main():
    """Sums a tensor twice and compares each element."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--plan-only", action="store_true", help="write the plan and stop")
    options = parser.parse_args()
    rank = int(os.environ["RANK"])
    world_size = int(os.environ["WORLD_SIZE"])
    local_rank = int(os.environ.get("LOCAL_RANK", rank))
    path = register(spec_of(world_size, int(os.environ.get("LOCAL_WORLD_SIZE", world_size))), rank)
    if options.plan_only:
        print(path)
        return

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
