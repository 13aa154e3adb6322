#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The processor's time of one call of torch.distributed: by the backend mscclpp, by one that does nothing (PyTorch's
# "fake"), and by NCCL where each rank has a GPU; and that of the operators, torch.ops.mscclpp.
#
#   scripts/pytorch_host_time.py [--ranks=N] [--device=cuda|cpu] [--elements=N] [--calls=N] [--backends=LIST]
#
# Run it by a Python that has PyTorch and the package mscclpp. --ranks= 2; they may share a GPU (start MPS first). Rank 0
# prints microseconds of dist.all_reduce: the median of batches of 100 calls, between which all waits. With --device=cpu
# it only shows that it runs, since the simulated machine has the processor to itself.
"""The processor's time of a call of torch.distributed, of several backends."""

import argparse
import os
import socket
import statistics
import subprocess
import sys
import time

BATCH = 100


def measure(backend, arguments):
    """One rank: microseconds of a call in the caller's stream, of one beside it, and of a call of the backend itself."""
    import torch  # pylint: disable=import-outside-toplevel
    import torch.distributed as dist  # pylint: disable=import-outside-toplevel

    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    on_gpu = arguments.device == "cuda"
    if on_gpu:
        torch.cuda.set_device(rank % torch.cuda.device_count())
    if backend == "fake":
        from torch.testing._internal.distributed.fake_pg import FakeStore  # pylint: disable=import-outside-toplevel

        dist.init_process_group("fake", rank=rank, world_size=ranks, store=FakeStore())
    else:
        if backend in ("mscclpp", "operators"):
            import mscclpp.torch  # pylint: disable=import-outside-toplevel

            mscclpp.torch.register()
        dist.init_process_group("mscclpp" if backend == "operators" else backend)
    x = torch.zeros(arguments.elements, device=arguments.device)
    inner = dist.group.WORLD._get_backend(x.device)  # pylint: disable=protected-access
    wait = torch.cuda.synchronize if on_gpu else lambda: None

    def beside():
        dist.all_reduce(x, async_op=True).wait()

    calls = (lambda: dist.all_reduce(x), beside, lambda: inner.allreduce([x]))
    if backend == "operators":
        import mscclpp.ops  # pylint: disable=import-outside-toplevel

        name = dist.group.WORLD.group_name
        calls = (lambda: mscclpp.ops.all_reduce_(x), lambda: mscclpp.ops.all_reduce(x),
                 lambda: torch.ops.mscclpp.all_reduce_(x, "sum", name))
    result = []
    for call in calls:
        times = []
        for _ in range(max(3, arguments.calls // BATCH)):
            wait()
            begin = time.perf_counter()
            for _ in range(BATCH):
                call()
            times.append((time.perf_counter() - begin) / BATCH * 1e6)
        wait()
        result.append(statistics.median(times[1:]))
    if rank == 0:
        print(" ".join(f"{each:.2f}" for each in result), flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--elements", type=int, default=256)
    parser.add_argument("--calls", type=int, default=5000)
    parser.add_argument("--backends", default="fake,mscclpp,operators,nccl")
    arguments = parser.parse_args()
    if "RANK" in os.environ:
        return measure(arguments.backends, arguments)
    print("Of the operators: all_reduce_, all_reduce into a new tensor, torch.ops.mscclpp.all_reduce_ itself.\n")
    print("| backend | all_reduce | all_reduce, async_op=True, wait() | of the backend itself |")
    print("|---|---:|---:|---:|")
    failed = 0
    for backend in arguments.backends.split(","):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
        command = [sys.executable, __file__, f"--device={arguments.device}", f"--elements={arguments.elements}"]
        command += [f"--calls={arguments.calls}", f"--backends={backend}"]
        common = {"WORLD_SIZE": str(arguments.ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        common.update(LOCAL_WORLD_SIZE=str(arguments.ranks), NCCL_NVLS_ENABLE="0")
        if arguments.device == "cpu":
            common["MSCCLPP_DEVICE"] = "sim"
        started = [
            subprocess.Popen(command, env={**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for rank in range(arguments.ranks)
        ]
        said = [each.communicate(timeout=100) for each in started]
        if any(each.returncode for each in started):
            failed += backend != "nccl"  # which refuses ranks that share a GPU
            error = next(error for each, (_, error) in zip(started, said) if each.returncode)
            print(f"| {backend} | not measured: {error.strip().splitlines()[-1][:100]} | | |", flush=True)
        else:
            print(f"| {backend} | {' | '.join(said[0][0].split())} |", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
