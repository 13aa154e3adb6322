# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arrays in memory that all ranks of a host can map."""

from __future__ import annotations

import math
from typing import Any, Optional, Union

from ._mscclpp import DataType, Device, RawGpuBuffer, bytes_of, data_type_named
from .errors import InvalidUsage

__all__ = ["GpuBuffer"]


class GpuBuffer:
    """A zero-filled array, which NumPy, PyTorch, CuPy and others take by from_dlpack() without a copy.

    `dtype`: a DataType, a name such as 'bfloat16', or a dtype of NumPy or PyTorch.
    """

    def __init__(self, shape: Union[int, tuple], dtype: Any = "float32", device: Optional[Device] = None):
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        if not self.shape or any(each < 1 for each in self.shape):
            raise InvalidUsage(f"GpuBuffer of shape {self.shape}: each dimension has at least 1 element")
        self.dtype = data_type_of(dtype)
        self.nbytes = math.prod(self.shape) * bytes_of(self.dtype)
        self.raw = RawGpuBuffer(self.nbytes, device)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def device(self) -> Device:
        """Whose memory it is."""
        return self.raw.device

    def data_ptr(self) -> int:
        """Its address."""
        return self.raw.data()

    def __dlpack__(self, **arguments: Any) -> Any:
        return self.raw.to_dlpack(self.dtype.name, list(self.shape)).__dlpack__(**arguments)

    def __dlpack_device__(self) -> tuple:
        return self.raw.__dlpack_device__()


def data_type_of(dtype: Any) -> DataType:
    """Of a DataType, a name such as 'bfloat16', or a dtype of NumPy or PyTorch."""
    if isinstance(dtype, DataType):
        return dtype
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    return data_type_named(name)
