# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The process group backend of torch.distributed: init_process_group("mscclpp").

Where PyTorch and this package are installed, the backend is there without an import of this module. It is compiled for
the PyTorch at hand when the first group is made, which takes half a minute, and kept under MSCCLPP_CACHE_DIR.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from types import ModuleType
from typing import Any, Optional

__all__ = ["build", "register"]

_NAME = "mscclpp"
_built: Optional[ModuleType] = None
_pluggable: Optional[Any] = None


def register() -> None:
    """Has torch.distributed know the backend, for tensors of CUDA and, where it simulates, of the CPU. Once is enough."""
    import torch.distributed as dist  # pylint: disable=import-outside-toplevel

    from ._version import SIMULATES  # pylint: disable=import-outside-toplevel

    if dist.is_available() and not hasattr(dist.Backend, _NAME.upper()):
        devices = ["cpu", "cuda"] if SIMULATES else ["cuda"]
        dist.Backend.register_backend(_NAME, _create, extended_api=True, devices=devices)


def build() -> ModuleType:
    """Compiles the backend for this PyTorch where that has not been done, and loads it."""
    global _built  # pylint: disable=global-statement
    if _built is None:
        import torch  # pylint: disable=import-outside-toplevel
        from torch.utils import cpp_extension  # pylint: disable=import-outside-toplevel

        from . import compiler, include_path, library_path  # pylint: disable=import-outside-toplevel

        home = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_source")
        name = "mscclpp_c10d"
        folders = [*cpp_extension.include_paths(), sysconfig.get_path("include"), include_path(), home]
        folders_of_libraries = [*cpp_extension.library_paths(), library_path()]
        abi = int(torch.compiled_with_cxx11_abi())
        command = [compiler.host_compiler("the backend for PyTorch"), "-std=c++20", "-O1", "-fPIC", "-shared", "-w"]
        command += [f"-DTORCH_EXTENSION_NAME={name}", f"-D_GLIBCXX_USE_CXX11_ABI={abi}", "-DUSE_C10D"]
        command += [flag for folder in folders for flag in ("-isystem", folder)]
        linked = [flag for folder in folders_of_libraries for flag in (f"-L{folder}", f"-Wl,-rpath,{folder}")]
        linked += ["-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python"]
        more = torch.__version__ + "\0" + compiler.headers_in(home)
        _built = compiler.module_of(name, os.path.join(home, "torch", "backend.cpp"), command, linked, more)
    return _built


def _create(options: Any, _: Any = None) -> Any:
    import torch  # pylint: disable=import-outside-toplevel

    has_gpus = torch.cuda.is_available() and _gpus() > 0
    group = build().ProcessGroupMscclpp
    return group(options.store, options.group_rank, options.group_size, options.timeout, has_gpus)


def _allocator() -> Any:
    """Memory that other ranks can map, as torch.cuda.MemPool takes it."""
    global _pluggable  # pylint: disable=global-statement
    if _pluggable is None:
        import torch  # pylint: disable=import-outside-toplevel

        from . import library_path  # pylint: disable=import-outside-toplevel

        library = os.path.join(library_path(), "libmscclpp.so")
        _pluggable = torch.cuda.memory.CUDAPluggableAllocator(library, "mscclppTorchAllocate", "mscclppTorchRelease")
    return _pluggable.allocator()


def _gpus() -> int:
    from . import Device  # pylint: disable=import-outside-toplevel

    return 0 if os.environ.get("MSCCLPP_DEVICE") == "sim" else Device.count("cuda")


def _autoload() -> None:
    """Called by `import torch`, by the entry point torch.backends."""
    if "torch.distributed" in sys.modules:
        register()
