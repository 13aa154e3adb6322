# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Blocks that share steps."""

from __future__ import annotations

__all__ = ["ThreadBlockGroup"]


class ThreadBlockGroup:
    """Blocks that share each step given to them, a part each in their order."""

    def __init__(self, tb_list: list[int]):
        if len(set(tb_list)) != len(tb_list):
            raise ValueError(f"ThreadBlockGroup({tb_list}): a block is named twice")
        self.tb_list = tb_list

    def get_internal_id(self, tb: int) -> int:
        """Which part block `tb` has."""
        if tb not in self.tb_list:
            raise ValueError(f"block {tb} is none of {self.tb_list}")
        return self.tb_list.index(tb)

    def numtb(self) -> int:
        """How many blocks there are."""
        return len(self.tb_list)
