# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs whose plans `python -m mscclpp --install` makes."""

from .allreduce_multi_nodes import allreduce_multi_nodes

__all__ = ["allreduce_multi_nodes"]
