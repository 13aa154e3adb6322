# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""GPU communication: collectives, programs and plans over NVIDIA GPUs, or over simulated ones where there are none.

    import mscclpp

    def rank(group):
        x = numpy.full(1000, group.my_rank, numpy.float32)   # or a CUDA tensor, where the ranks have GPUs
        return group.all_reduce(x)

    mscclpp.run_ranks(4, rank)
"""

import ctypes as _ctypes
import os as _os

_home = _os.path.dirname(_os.path.abspath(__file__))

# Kernels that are compiled at run time, and users' modules, take the library's functions from the process.
_ctypes.CDLL(_os.path.join(_home, "lib", "libmscclpp.so"), mode=_ctypes.RTLD_GLOBAL)

# pylint: disable=wrong-import-position
from . import errors  # noqa: E402  first: what the rest raises
from ._mscclpp import (  # noqa: E402
    Algorithm,
    AlgorithmCollection,
    BaseMemoryChannel,
    BasePortChannel,
    Bootstrap,
    Communicator,
    Connection,
    DataType,
    Device,
    ExecutionPlan,
    Executor,
    Fifo,
    Host2DeviceSemaphore,
    MemoryChannel,
    MemoryDevice2DeviceSemaphore,
    MemoryWindow,
    PacketType,
    PortChannel,
    Proxy,
    ProxyAction,
    ProxyService,
    RawGpuBuffer,
    ReduceOp,
    RegisteredMemory,
    Selection,
    SelectionRequest,
    Stream,
    SwitchChannel,
    SymmetricArena,
    Team,
    Transport,
    Trigger,
    WindowUse,
    cache_folder,
    create_unique_id,
    is_nvls_supported,
)
from ._version import __version__  # noqa: E402
from .errors import Error  # noqa: E402
from .buffer import GpuBuffer  # noqa: E402
from .group import CommGroup, run_ranks  # noqa: E402
from .experts import Dispatched, ExpertParallel  # noqa: E402
from .registry import AlgorithmCollectionBuilder  # noqa: E402
from .compiler import compile, compile_native  # noqa: E402  pylint: disable=redefined-builtin
from .language.spec import AlgoSpec  # noqa: E402
from . import language, utils  # noqa: E402


def include_path() -> str:
    """The folder of the library's headers, for a compiler's -I."""
    return _os.path.join(_home, "include")


def library_path() -> str:
    """The folder of libmscclpp.so."""
    return _os.path.join(_home, "lib")


get_include = include_path
get_lib = library_path

__all__ = [
    "AlgoSpec",
    "Algorithm",
    "AlgorithmCollection",
    "AlgorithmCollectionBuilder",
    "BaseMemoryChannel",
    "BasePortChannel",
    "Bootstrap",
    "CommGroup",
    "Communicator",
    "Connection",
    "DataType",
    "Device",
    "Dispatched",
    "Error",
    "ExecutionPlan",
    "Executor",
    "ExpertParallel",
    "Fifo",
    "GpuBuffer",
    "Host2DeviceSemaphore",
    "MemoryChannel",
    "MemoryDevice2DeviceSemaphore",
    "MemoryWindow",
    "PacketType",
    "PortChannel",
    "Proxy",
    "ProxyAction",
    "ProxyService",
    "RawGpuBuffer",
    "ReduceOp",
    "RegisteredMemory",
    "Selection",
    "SelectionRequest",
    "Stream",
    "SwitchChannel",
    "SymmetricArena",
    "Team",
    "Transport",
    "Trigger",
    "WindowUse",
    "__version__",
    "cache_folder",
    "compile",
    "compile_native",
    "create_unique_id",
    "errors",
    "get_include",
    "get_lib",
    "include_path",
    "is_nvls_supported",
    "language",
    "library_path",
    "run_ranks",
    "utils",
]
