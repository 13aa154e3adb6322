# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps that are repeated until all of their chunks are through."""

from __future__ import annotations

from typing import Any

from .program import current_program

__all__ = ["LoopIterationContext"]


class LoopIterationContext:
    """The steps of its `with` block are repeated, `unit` bytes of `num_chunks` chunks each time. Loops do not nest."""

    def __init__(self, unit: int, num_chunks: int):
        self.unit = unit
        self.num_chunks = num_chunks

    def __enter__(self) -> LoopIterationContext:
        current_program().steps.begin_loop(self.unit, self.num_chunks)
        return self

    def __exit__(self, *_: Any) -> None:
        current_program().steps.end_loop()
