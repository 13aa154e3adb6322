# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small helpers."""

from __future__ import annotations

from typing import Any

from ._mscclpp import DataType, data_type_named

__all__ = ["torch_dtype_to_mscclpp_dtype"]


def torch_dtype_to_mscclpp_dtype(dtype: Any) -> DataType:
    """The DataType of a torch.dtype. Raises InvalidUsage for one that cannot be communicated."""
    return data_type_named(str(dtype))
