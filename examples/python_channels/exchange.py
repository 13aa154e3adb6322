# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# python exchange.py
"""Two ranks exchange data by kernels of one's own (exchange.cu) over channels that are made here.

On GPUs where there are two, for which it takes CuPy; else, and with MSCCLPP_DEVICE=sim, on the simulated machine.
"""

import os

import mscclpp

COUNT = 10_000  # floats that each rank sends


def arrays_of(device):
    """The library whose arrays lie in memory of the device."""
    if device.kind == "sim":
        import numpy  # pylint: disable=import-outside-toplevel

        return numpy
    import cupy  # pylint: disable=import-outside-toplevel

    cupy.cuda.Device(device.ordinal).use()
    return cupy


def rank_main(group):
    """What it has compared, in words."""
    here = os.path.dirname(os.path.abspath(__file__))
    kernels = mscclpp.compile_native("exchange", os.path.join(here, "exchange.cu"))
    peer = 1 - group.my_rank
    stream = mscclpp.Stream(group.device)

    def exchange(kernel, make_channel):
        buffer = mscclpp.GpuBuffer(2 * COUNT, "float32", group.device)
        values = arrays_of(group.device).from_dlpack(buffer)
        values[:COUNT] = group.my_rank + 1
        group.synchronize()  # filled, before another stream reads it
        channel = make_channel(buffer)
        kernel(channel.device_handle().raw, 4 * COUNT, group.device.ordinal, stream.handle)
        group.synchronize(stream.handle)
        assert (values[COUNT:] == peer + 1).all(), values
        group.barrier()  # nobody's memory goes while a peer uses it

    exchange(kernels.by_threads, lambda buffer: group.make_memory_channels(buffer, [peer])[peer])

    service = mscclpp.ProxyService(group.communicator)
    connections = group.make_connection([peer])
    service.start_proxy()
    exchange(kernels.by_proxy, lambda buffer: group.make_port_channels(service, buffer, connections)[peer])
    service.stop_proxy()
    return f"rank {group.my_rank}: what came through both channels is right"


if __name__ == "__main__":
    print("\n".join(mscclpp.run_ranks(2, rank_main)))
