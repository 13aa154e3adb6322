# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a program says of itself before its steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from .collectives import Collective

__all__ = ["AlgoSpec", "ReplicationPolicy"]


class ReplicationPolicy(Enum):
    """How chunks are dealt out to instances: neighbouring parts to neighbouring instances, or a run to each."""

    interleaved = "interleaved"
    none = "none"

    def __str__(self) -> str:
        return self.value


@dataclass
class AlgoSpec:
    """A program's name, collective and form; what compile() hands to the function that writes the steps."""

    name: str
    collective: Collective
    nranks_per_node: int
    world_size: int
    in_place: bool
    instances: int
    protocol: str
    instr_fusion: bool = True
    auto_sync: bool = True
    replication_policy: ReplicationPolicy = ReplicationPolicy.interleaved
    reuse_resources: bool = False
    num_threads_per_block: int = 1024
    use_double_scratch_buffer: bool = False
    buffer_alignment: int = 16
    min_message_size: int = 0
    max_message_size: int = 2**64 - 1
    tags: dict[str, Any] = field(default_factory=dict)
