# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What happens within one rank: buffers, copies, reductions, barriers and semaphores of its blocks."""

from __future__ import annotations

from typing import Any, Optional

from .._mscclpp.programs import BufferType, Chunk, ReduceOperationType, SyncType
from .program import blocks_of, current_program
from .thread_block_group import ThreadBlockGroup

__all__ = [
    "BaseBuffer",
    "Buffer",
    "BufferType",
    "Chunk",
    "Rank",
    "ReduceOperationType",
    "Semaphore",
    "SyncType",
    "ThreadBlockGroup",
]


class BaseBuffer:
    """A rank's buffer, or a part of it: buffer[first:last] names chunks."""

    def __init__(self, rank: int, buffer_type: BufferType, offset: int, size: int):
        self.rank = rank
        self.buffer_type = buffer_type
        self.offset = offset
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, key: slice) -> Chunk:
        if not isinstance(key, slice):
            raise TypeError(f"chunks of a buffer are named by a slice such as [0:1], not by {type(key).__name__}")
        if key.step not in (None, 1):
            raise ValueError(f"chunks of a buffer are neighbours; the slice has step {key.step}")
        start = 0 if key.start is None else key.start
        stop = self.size if key.stop is None else key.stop
        if not 0 <= start <= stop:
            raise ValueError(f"chunks {key.start}:{key.stop} of a buffer: 0 <= start <= stop is needed")
        if stop > self.size:
            raise RuntimeError(
                f"chunks {start}:{stop} of {self.buffer_type.name} of rank {self.rank}, which has {self.size}"
            )
        return Chunk(self.rank, self.buffer_type, self.offset + start, stop - start)


class Buffer(BaseBuffer):
    """New chunks of a rank's scratch memory."""

    def __init__(self, rank: int, size: int):
        program = current_program()
        first = program.add(program.steps.scratch, rank, size)
        super().__init__(rank, BufferType.scratch, first, size)


class Rank:
    """One rank of the current program."""

    def __init__(self, rank: int):
        self._program = current_program()
        self.rank = rank
        self._steps = self._program.add(self._program.steps.rank, rank)

    def get_input_buffer(self) -> BaseBuffer:
        """Its input."""
        return self._buffer(BufferType.input)

    def get_output_buffer(self) -> BaseBuffer:
        """Its output."""
        return self._buffer(BufferType.output)

    def _buffer(self, kind: BufferType) -> BaseBuffer:
        return BaseBuffer(self.rank, kind, 0, self._program.collective.sizes[kind])

    def copy(
        self, dst_chunk: Chunk, src_chunk: Chunk, tb: Optional[int] = None, tb_group: Optional[ThreadBlockGroup] = None
    ) -> None:
        """dst = src, both of this rank."""
        self._move(self._steps.copy, dst_chunk, src_chunk, tb, tb_group)

    def copy_packets(
        self, dst_chunk: Chunk, src_chunk: Chunk, tb: Optional[int] = None, tb_group: Optional[ThreadBlockGroup] = None
    ) -> None:
        """The same into packets, in scratch memory."""
        self._scratch("copy_packets", dst_chunk)
        self._move(self._steps.copy_packets, dst_chunk, src_chunk, tb, tb_group)

    def unpack_packets(
        self, dst_chunk: Chunk, src_chunk: Chunk, tb: Optional[int] = None, tb_group: Optional[ThreadBlockGroup] = None
    ) -> None:
        """Awaits packets in scratch memory and writes what they hold."""
        self._scratch("unpack_packets", src_chunk)
        self._move(self._steps.unpack_packets, dst_chunk, src_chunk, tb, tb_group)

    def reduce(
        self,
        src_chunk: Chunk,
        other_chunks: list[Chunk],
        tb: Optional[int] = None,
        tb_group: Optional[ThreadBlockGroup] = None,
        dst_chunk: Optional[Chunk] = None,
        reduce_op: ReduceOperationType = ReduceOperationType.sum,
        packet: bool = False,
    ) -> None:
        """dst, or else src, = src + others, which arrive as packets where `packet` says so."""
        if not other_chunks:
            raise RuntimeError(f"Rank({self.rank}).reduce: there are no other chunks")
        dst = src_chunk if dst_chunk is None else dst_chunk
        self._own("reduce", [dst, src_chunk, *other_chunks])
        for each in other_chunks if packet else []:
            self._scratch("reduce", each)
        at = blocks_of(tb, tb_group, reduce_op=reduce_op)
        step = self._steps.reduce_packets if packet else self._steps.reduce
        self._program.add(step, dst, src_chunk, list(other_chunks), at)

    def barrier(self, tb_list: list[int]) -> None:
        """These blocks wait for each other; one alone meets itself."""
        if not tb_list:
            raise RuntimeError(f"Rank({self.rank}).barrier: there are no blocks")
        if len(tb_list) == 1:
            self._program.add(self._steps.sync, tb_list[0])
        else:
            self._program.add(self._steps.barrier, list(tb_list))

    def _move(
        self, step: Any, dst: Chunk, src: Chunk, tb: Optional[int], tb_group: Optional[ThreadBlockGroup]
    ) -> None:
        self._own("copy", [dst, src])
        self._program.add(step, dst, src, blocks_of(tb, tb_group))

    def _own(self, what: str, chunks: list[Chunk]) -> None:
        for each in chunks:
            if each.rank != self.rank:
                raise RuntimeError(f"Rank({self.rank}).{what}: {each!r} is another rank's")
            if each.size != chunks[0].size:
                raise RuntimeError(f"Rank({self.rank}).{what}: {each!r} and {chunks[0]!r} differ in size")

    def _scratch(self, what: str, chunk: Chunk) -> None:
        if chunk.buffer != BufferType.scratch:
            raise RuntimeError(f"Rank({self.rank}).{what}: {chunk!r}; packets lie in scratch memory")


class Semaphore:
    """Between blocks of one rank: each release ends one acquire; `initial_value` of them are there at the start."""

    def __init__(self, rank: int, initial_value: int):
        self._program = current_program()
        self.rank = rank
        self.initial_value = initial_value
        self._steps = self._program.add(self._program.steps.semaphore, rank, initial_value)

    def acquire(self, tb: int, data_sync: SyncType = SyncType.both) -> None:
        """Waits for a release."""
        self._program.add(self._steps.acquire, blocks_of(tb, None, data_sync=data_sync))

    def release(self, tb: int, data_sync: SyncType = SyncType.both) -> None:
        """Ends an acquire."""
        self._program.add(self._steps.release, blocks_of(tb, None, data_sync=data_sync))
