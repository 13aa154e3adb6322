# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A collective program: a context in which channels, ranks and loops add their steps."""

from __future__ import annotations

import json
import warnings
from typing import Any, Callable, Optional

from .. import _mscclpp
from .collectives import *  # pylint: disable=wildcard-import,unused-wildcard-import
from .collectives import Collective
from .spec import AlgoSpec, ReplicationPolicy
from .thread_block_group import ThreadBlockGroup

__all__ = [
    "AlgoSpec",
    "AllGather",
    "AllReduce",
    "AllToAll",
    "Collective",
    "CollectiveProgram",
    "ReduceScatter",
    "ReplicationPolicy",
    "SendRecv",
    "TestCollective",
    "WrongProgram",
    "current_program",
]

_Programs = _mscclpp.programs


class WrongProgram(UserWarning):
    """A program was printed that is not right; it would be refused where it is to run."""


class CollectiveProgram:
    """What each block of each rank does, step by step.

        with CollectiveProgram("mine", AllGather(2, 1, True), 2) as program:
            MemoryChannel(1, 0).put(...)

    Steps are recorded as they are written, and a step that cannot be raises where it stands. The program as a whole is
    proved when it is compiled: each wait ends, reads follow the writes that they need, and each chunk of the output
    holds what the collective demands.
    """

    _current: Optional[CollectiveProgram] = None

    def __init__(
        self,
        name: str,
        collective: Collective,
        num_ranks: int,
        instances: int = 1,
        protocol: str = "Simple",
        instr_fusion: bool = True,
        auto_sync: bool = True,
        replication_policy: ReplicationPolicy = ReplicationPolicy.interleaved,
        reuse_resources: bool = False,
        num_threads_per_block: int = 1024,
        use_double_scratch_buffer: bool = False,
        buffer_alignment: int = 16,
        min_message_size: int = 0,
        max_message_size: int = 2**64 - 1,
    ):
        self.name = name
        self.collective = collective
        self.num_ranks = num_ranks
        sizes = collective.sizes
        cuts = self._cuts_by_itself(collective, num_ranks)
        self._steps = _Programs.Program(
            name,
            collective.name,
            num_ranks,
            collective.chunk_factor,
            # Elsewhere they follow from the ranks and the factor.
            sizes[_Programs.BufferType.input] if cuts else 0,
            sizes[_Programs.BufferType.output] if cuts else 0,
            collective.inplace,
            instances,
            protocol,
            instr_fusion,
            auto_sync,
            replication_policy is ReplicationPolicy.none,
            reuse_resources,
            num_threads_per_block,
            use_double_scratch_buffer,
            buffer_alignment,
            min_message_size,
            max_message_size,
        )

    @staticmethod
    def _cuts_by_itself(collective: Collective, num_ranks: int) -> bool:
        other = collective.name == "allreduce" and collective.num_ranks != num_ranks
        return other or collective.name == "test"

    @classmethod
    def from_spec(cls, spec: AlgoSpec) -> CollectiveProgram:
        """The program that a specification describes."""
        return cls(
            spec.name,
            spec.collective,
            spec.world_size,
            instances=spec.instances,
            protocol=spec.protocol,
            instr_fusion=spec.instr_fusion,
            auto_sync=spec.auto_sync,
            replication_policy=spec.replication_policy,
            reuse_resources=spec.reuse_resources,
            num_threads_per_block=spec.num_threads_per_block,
            use_double_scratch_buffer=spec.use_double_scratch_buffer,
            buffer_alignment=spec.buffer_alignment,
            min_message_size=spec.min_message_size,
            max_message_size=spec.max_message_size,
        )

    def __enter__(self) -> CollectiveProgram:
        CollectiveProgram._current = self
        return self

    def __exit__(self, *_: Any) -> None:
        CollectiveProgram._current = None

    def add(self, step: Callable[..., Any], *arguments: Any) -> Any:
        """Records what `step` makes; raises what is wrong with it."""
        made = step(*arguments)
        self._steps.check()
        return made

    @property
    def steps(self) -> Any:
        """The recorder."""
        return self._steps

    def diagnostic(self) -> str:
        """Why the program is wrong, as a sentence; empty where it is proved right."""
        return self._steps.diagnostic()

    def to_plan(self) -> _mscclpp.ExecutionPlan:
        """The program as a plan. Raises InvalidUsage, with the diagnostic, where it is wrong."""
        return self._steps.to_plan()

    def to_json(self, indent: Optional[int] = 2, **arguments: Any) -> str:
        """The plan that MSCCL++ prints for these steps, as JSON; the arguments are those of json.dumps. Warns where the
        program is wrong, and where the plan is, since MSCCL++ does not put in all syncs that its steps need."""
        text = self._steps.to_json()
        wrong = self.diagnostic() or _mscclpp.programs.refusal_of(text)
        if wrong:
            warnings.warn(f"program '{self.name}' is wrong: {wrong}", WrongProgram, stacklevel=2)
        return json.dumps(json.loads(text), indent=indent, **arguments)


def current_program() -> CollectiveProgram:
    """The program whose `with` block is being run. Raises RuntimeError outside of one."""
    program = CollectiveProgram._current  # pylint: disable=protected-access
    if program is None:
        raise RuntimeError("there is no program here: write steps inside of `with CollectiveProgram(...)`")
    return program


def blocks_of(tb: Optional[int], tb_group: Optional[ThreadBlockGroup], **how: Any) -> Any:
    """Who does a step: one block, or a group that shares it."""
    if tb is not None:
        return _Programs.At([tb], **how)
    if tb_group is None:
        raise RuntimeError("a step needs `tb`, the number of its block, or `tb_group`, the blocks that share it")
    return _Programs.At(list(tb_group.tb_list), True, **how)
