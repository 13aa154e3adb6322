# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# torchrun --nproc_per_node=2 triton_exchange.py
"""Two ranks exchange data by a kernel in Triton, which takes a channel's addresses and counts its signals itself.

On GPUs where there are two, else, and with MSCCLPP_DEVICE=sim, in Triton's interpreter on the simulated machine.
"""

import os

import mscclpp
import torch

if torch.cuda.device_count() >= 2 and os.environ.get("MSCCLPP_DEVICE") != "sim":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
else:
    os.environ.update(MSCCLPP_DEVICE="sim", TRITON_INTERPRET="1")

import triton  # pylint: disable=wrong-import-position
import triton.language as tl  # pylint: disable=wrong-import-position

COUNT = 1000  # floats that each rank sends


@triton.jit
def exchange(dst, src, inbound, remote_inbound, expected, count, BLOCK: tl.constexpr):
    """One program puts `count` floats behind as many of the peer's, and waits for the peer's."""
    waited = expected.to(tl.pointer_type(tl.int64))
    awaited = tl.load(waited) + 1
    at = tl.arange(0, BLOCK)
    own = tl.load(src.to(tl.pointer_type(tl.float32)) + at, mask=at < count)
    tl.store(dst.to(tl.pointer_type(tl.float32)) + count + at, own, mask=at < count)
    tl.debug_barrier()  # all threads have put, and know what to wait for
    tl.atomic_add(remote_inbound.to(tl.pointer_type(tl.int64)), 1, sem="release", scope="sys")
    tl.store(waited, awaited)
    while tl.atomic_add(inbound.to(tl.pointer_type(tl.int64)), 0, sem="acquire", scope="sys") < awaited:
        pass
    tl.debug_barrier()  # all threads may read what the peer has put


def main():
    """Several exchanges over one channel."""
    group = mscclpp.CommGroup()
    peer = 1 - group.my_rank
    buffer = mscclpp.GpuBuffer(2 * COUNT, "float32", group.device)
    values = torch.from_dlpack(buffer)
    channel = group.make_memory_channels(buffer, [peer])[peer]
    handle, semaphore = channel.device_handle(), channel.device_handle().semaphore
    counters = semaphore.inbound, semaphore.remote_inbound, semaphore.expected
    for turn in range(3):
        values[:COUNT] = 10 * turn + group.my_rank
        exchange[(1,)](handle.dst, handle.src, *counters, COUNT, BLOCK=1024)
        assert (values[COUNT:] == 10 * turn + peer).all(), values  # which waits for the kernel
        group.barrier()  # nobody puts what a peer still compares
    print(f"rank {group.my_rank}: what came from a kernel in Triton is right")


if __name__ == "__main__":
    main()
