# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The collectives that programs carry out, and how their buffers are cut into chunks."""

from __future__ import annotations

from .._mscclpp.programs import BufferType

__all__ = ["AllGather", "AllReduce", "AllToAll", "Collective", "ReduceScatter", "SendRecv", "TestCollective"]


class Collective:
    """`chunk_factor`: chunks of one rank's part. In place: input and output are one buffer."""

    name = "custom"

    def __init__(self, num_ranks: int, chunk_factor: int, inplace: bool):
        self.num_ranks = num_ranks
        self.chunk_factor = chunk_factor
        self.inplace = inplace
        whole = num_ranks * chunk_factor
        self.sizes = {BufferType.input: whole, BufferType.output: whole}


class AllGather(Collective):
    """Each rank's input, one behind the other, on all ranks."""

    name = "allgather"

    def __init__(self, num_ranks: int, chunk_factor: int, inplace: bool):
        super().__init__(num_ranks, chunk_factor, inplace)
        self.sizes[BufferType.input] = chunk_factor


class AllReduce(Collective):
    """The combination of all ranks' inputs, on all ranks."""

    name = "allreduce"


class ReduceScatter(Collective):
    """A part of the combination of all ranks' inputs on each rank."""

    name = "reducescatter"

    def __init__(self, num_ranks: int, chunk_factor: int, inplace: bool):
        super().__init__(num_ranks, chunk_factor, inplace)
        self.sizes[BufferType.output] = chunk_factor


class AllToAll(Collective):
    """Part p of each rank's input goes to rank p."""

    name = "alltoall"


class SendRecv(Collective):
    """Each rank's input arrives at the next rank."""

    name = "sendrecv"

    def __init__(self, num_ranks: int, chunk_factor: int, inplace: bool):
        super().__init__(num_ranks, chunk_factor, inplace)
        self.sizes = {BufferType.input: chunk_factor, BufferType.output: chunk_factor}


class TestCollective(Collective):
    """Buffers of any sizes, and no demand on what arrives."""

    __test__ = False  # pytest
    name = "test"

    def __init__(self, num_ranks: int, input_size: int, output_size: int):
        super().__init__(num_ranks, 1, False)
        self.sizes = {BufferType.input: input_size, BufferType.output: output_size}
