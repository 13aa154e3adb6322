# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a rank does with the memory of others.

A channel belongs to its source rank, whose blocks do its steps. The n-th from a to b meets the n-th from b to a: each
signal of one ends one wait of the other.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Optional

from .._mscclpp.programs import BufferType, Chunk, ReduceOperationType, SyncType
from .program import blocks_of, current_program
from .thread_block_group import ThreadBlockGroup

__all__ = [
    "BufferType",
    "ChannelType",
    "Chunk",
    "MemoryChannel",
    "PortChannel",
    "ReduceOperationType",
    "SwitchChannel",
    "SyncType",
    "ThreadBlockGroup",
]


class ChannelType(Enum):
    """Who moves the data: threads, the host's proxy, or a switch."""

    memory = "memory"
    port = "port"
    switch = "switch"

    def __str__(self) -> str:
        return self.value


class _PairChannel:
    channel_type: ChannelType

    def __init__(self, dst_rank: int, src_rank: int):
        self._program = current_program()
        self.dst_rank = dst_rank
        self.src_rank = src_rank
        make = getattr(self._program.steps, f"{self.channel_type.value}_channel")
        self._steps = self._program.add(make, dst_rank, src_rank)

    def read_put_packets(
        self, dst_chunk: Chunk, src_chunk: Chunk, tb: Optional[int] = None, tb_group: Optional[ThreadBlockGroup] = None
    ) -> None:
        """Awaits packets in the own scratch memory and passes them on."""
        self._check("read_put_packets", [src_chunk], [dst_chunk], [src_chunk, dst_chunk])
        self._program.add(self._steps.read_put_packets, dst_chunk, src_chunk, blocks_of(tb, tb_group))

    def _order(self, step: Any, tb: int, data_sync: SyncType, relaxed: bool = False) -> None:
        self._program.add(step, blocks_of(tb, None, data_sync=data_sync, relaxed=relaxed))

    # `local` are chunks of the source rank, `remote` of the destination; all of one size.
    def _check(self, what: str, local: list[Chunk], remote: list[Chunk], packets: Any = ()) -> None:
        whole = f"{type(self).__name__}({self.dst_rank}, {self.src_rank}).{what}"
        for chunks, rank in ((local, self.src_rank), (remote, self.dst_rank)):
            for each in chunks:
                if each.rank != rank:
                    raise RuntimeError(f"{whole}: {each!r}; a chunk of rank {rank} is needed there")
                if each.size != local[0].size:
                    raise RuntimeError(f"{whole}: {each!r} and {local[0]!r} differ in size")
        for each in packets:
            if each.buffer != BufferType.scratch:
                raise RuntimeError(f"{whole}: {each!r}; packets lie in scratch memory")


class MemoryChannel(_PairChannel):
    """Threads of the source rank reach the destination's memory themselves."""

    channel_type = ChannelType.memory

    def signal(self, tb: int, data_sync: SyncType = SyncType.both, relaxed: bool = False) -> None:
        """Ends one wait of the other side. Relaxed: hands over permission to write, and no data."""
        self._order(self._steps.signal, tb, data_sync, relaxed)

    def wait(self, tb: int, data_sync: SyncType = SyncType.both, relaxed: bool = False) -> None:
        """Waits for a signal of the other side."""
        self._order(self._steps.wait, tb, data_sync, relaxed)

    def get(
        self, dst_chunk: Chunk, src_chunk: Chunk, tb: Optional[int] = None, tb_group: Optional[ThreadBlockGroup] = None
    ) -> None:
        """The destination rank's memory to the own."""
        self._check("get", [dst_chunk], [src_chunk])
        self._program.add(self._steps.get, dst_chunk, src_chunk, blocks_of(tb, tb_group))

    def put(
        self, dst_chunk: Chunk, src_chunk: Chunk, tb: Optional[int] = None, tb_group: Optional[ThreadBlockGroup] = None
    ) -> None:
        """Own memory to the destination rank's."""
        self._check("put", [src_chunk], [dst_chunk])
        self._program.add(self._steps.put, dst_chunk, src_chunk, blocks_of(tb, tb_group))

    def put_packets(
        self, dst_chunk: Chunk, src_chunk: Chunk, tb: Optional[int] = None, tb_group: Optional[ThreadBlockGroup] = None
    ) -> None:
        """Own memory to the destination rank's scratch memory, as packets."""
        self._check("put_packets", [src_chunk], [dst_chunk], [dst_chunk])
        self._program.add(self._steps.put_packets, dst_chunk, src_chunk, blocks_of(tb, tb_group))

    def reduce(
        self,
        local_src_chunk: Chunk,
        remote_src_chunks: list[Chunk],
        tb: Optional[int] = None,
        tb_group: Optional[ThreadBlockGroup] = None,
        local_dst_chunk: Optional[Chunk] = None,
        reduce_op: ReduceOperationType = ReduceOperationType.sum,
    ) -> None:
        """The local destination, or else the local source, = local source + the destination rank's."""
        dst = local_src_chunk if local_dst_chunk is None else local_dst_chunk
        self._check("reduce", [local_src_chunk, dst], list(remote_src_chunks))
        at = blocks_of(tb, tb_group, reduce_op=reduce_op)
        self._program.add(self._steps.reduce, dst, local_src_chunk, list(remote_src_chunks), at)


class PortChannel(_PairChannel):
    """The host's proxy moves the data: a put is only asked for, and its source is free again after flush()."""

    channel_type = ChannelType.port

    def signal(self, tb: int, data_sync: SyncType = SyncType.both) -> None:
        """Ends one wait of the other side, behind the puts before it."""
        self._order(self._steps.signal, tb, data_sync)

    def wait(self, tb: int, data_sync: SyncType = SyncType.both) -> None:
        """Waits for a signal of the other side."""
        self._order(self._steps.wait, tb, data_sync)

    def flush(self, tb: int, data_sync: SyncType = SyncType.both) -> None:
        """Waits until all that was asked for is done."""
        self._order(self._steps.flush, tb, data_sync)

    def put(self, dst_chunk: Chunk, src_chunk: Chunk, tb: int) -> None:
        """Own memory to the destination rank's."""
        self._put("put", dst_chunk, src_chunk, tb)

    def put_with_signal(self, dst_chunk: Chunk, src_chunk: Chunk, tb: int) -> None:
        """put() and signal()."""
        self._put("put_with_signal", dst_chunk, src_chunk, tb)

    def put_with_signal_and_flush(self, dst_chunk: Chunk, src_chunk: Chunk, tb: int) -> None:
        """put(), signal() and flush()."""
        self._put("put_with_signal_and_flush", dst_chunk, src_chunk, tb)

    def put_packets(self, dst_chunk: Chunk, src_chunk: Chunk, tb: int) -> None:
        """Packets that lie ready in the own memory, to the destination rank's scratch memory."""
        self._check("put_packets", [src_chunk], [dst_chunk], [dst_chunk])
        self._program.add(self._steps.put_packets, dst_chunk, src_chunk, blocks_of(tb, None))

    def _put(self, what: str, dst: Chunk, src: Chunk, tb: int) -> None:
        self._check(what, [src], [dst])
        self._program.add(getattr(self._steps, what), dst, src, blocks_of(tb, None))


class SwitchChannel:
    """One channel of several ranks, over their buffers of one kind, which a switch reads and writes together."""

    channel_type = ChannelType.switch

    def __init__(self, rank_list: list[int], buffer_type: BufferType):
        self._program = current_program()
        self.rank_list = list(rank_list)
        self.buffer_type = buffer_type
        self._steps = self._program.add(self._program.steps.switch_channel, self.rank_list, buffer_type)

    def at_rank(self, rank: int) -> SwitchChannel.SwitchChannelRankView:
        """The side of one rank, which has the steps."""
        if rank not in self.rank_list:
            raise RuntimeError(f"SwitchChannel({self.rank_list}).at_rank({rank}): it is none of them")
        return SwitchChannel.SwitchChannelRankView(self, rank)

    def reduce(
        self,
        rank: int,
        buffer_offset: int,
        size: int,
        dst_chunk: Chunk,
        tb: int,
        reduce_op: ReduceOperationType = ReduceOperationType.sum,
    ) -> None:
        """at_rank(rank).reduce(...)"""
        self.at_rank(rank).reduce(buffer_offset, size, dst_chunk, tb, reduce_op)

    def broadcast(self, rank: int, src_chunk: Chunk, buffer_offset: int, size: int, tb: int) -> None:
        """at_rank(rank).broadcast(...)"""
        self.at_rank(rank).broadcast(src_chunk, buffer_offset, size, tb)

    def broadcast_packets(self, rank: int, src_chunk: Chunk, buffer_offset: int, size: int, tb: int) -> None:
        """at_rank(rank).broadcast_packets(...)"""
        self.at_rank(rank).broadcast_packets(src_chunk, buffer_offset, size, tb)

    class SwitchChannelRankView:
        """One rank's side."""

        def __init__(self, channel: SwitchChannel, rank: int):
            self._channel = channel
            self._rank = rank
            self._program = channel._program
            self._steps = self._program.add(channel._steps.at_rank, rank)

        def reduce(
            self,
            buffer_offset: int,
            size: int,
            dst_chunk: Chunk,
            tb: int,
            reduce_op: ReduceOperationType = ReduceOperationType.sum,
        ) -> None:
            """dst = the combination of `size` chunks from `buffer_offset` of all ranks."""
            self._check("reduce", dst_chunk, size)
            at = blocks_of(tb, None, reduce_op=reduce_op)
            self._program.add(self._steps.reduce, dst_chunk, buffer_offset, size, at)

        def broadcast(self, src_chunk: Chunk, buffer_offset: int, size: int, tb: int) -> None:
            """`size` chunks from `buffer_offset` of all ranks = src."""
            self._check("broadcast", src_chunk, size)
            self._program.add(self._steps.broadcast, buffer_offset, src_chunk, blocks_of(tb, None))

        def broadcast_packets(self, src_chunk: Chunk, buffer_offset: int, size: int, tb: int) -> None:
            """The same, of packets in scratch memory."""
            self._check("broadcast_packets", src_chunk, size)
            self._program.add(self._steps.broadcast_packets, buffer_offset, src_chunk, blocks_of(tb, None))

        def _check(self, what: str, chunk: Chunk, size: int) -> None:
            if chunk.size != size:
                ranks = self._channel.rank_list
                raise RuntimeError(f"SwitchChannel({ranks}).{what} of rank {self._rank}: {chunk!r} is not of {size} chunks")
