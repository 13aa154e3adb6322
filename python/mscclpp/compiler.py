# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Algorithms from what users write: programs in Python, and native modules of C++ or CUDA."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import glob
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import threading
from types import ModuleType
from typing import Any, Callable

from . import _mscclpp
from ._mscclpp import Algorithm, Device
from ._version import __version__
from .errors import InvalidUsage, SystemRefused, Unsupported
from .language.program import CollectiveProgram
from .language.spec import AlgoSpec

__all__ = ["compile", "compile_native"]

_HOME = os.path.dirname(os.path.abspath(__file__))
_MOST_BYTES = 1 << 30  # kept, as of kernels


def compile(  # pylint: disable=redefined-builtin
    algo: Callable[..., CollectiveProgram], algo_spec: AlgoSpec, rank: int = 0, **arguments: Any
) -> Algorithm:
    """The algorithm that the program `algo(algo_spec, **arguments)` describes, once it is proved right.

    Raises InvalidUsage with the diagnostic where it is wrong: a wait that never ends, data that nothing orders, or an
    output that does not become what the collective demands.
    """
    if not callable(algo):
        raise InvalidUsage(f"compile: {algo!r} cannot be called; give the function that writes the program")
    program = algo(algo_spec, **arguments)
    if not isinstance(program, CollectiveProgram):
        raise InvalidUsage(f"compile: {algo!r} returned {type(program).__name__}, not a CollectiveProgram")
    if not 0 <= rank < program.num_ranks:
        raise InvalidUsage(f"compile: rank {rank} of a program of {program.num_ranks} ranks")
    return Algorithm.create_from_plan(program.to_plan())


def compile_native(name: str, file: str) -> ModuleType:
    """The Python module `name` that a source file of C++ or CUDA defines by pybind11 (PYBIND11_MODULE) or nanobind's
    headers; compiled when it is first asked for and kept under MSCCLPP_CACHE_DIR.

    By nvcc for this machine's GPU; where Device.current() is simulated, by the host's compiler (MSCCLPP_CXX). The
    library's headers are found by themselves. Raises InvalidUsage with the compiler's messages where the source does
    not compile, Unsupported where there is no compiler.
    """
    if not os.path.isfile(file):
        raise FileNotFoundError(f"compile_native: there is no file {file}")
    return module_of(name, file, _command(Device.current()), [])


def module_of(name: str, file: str, command: list[str], libraries: list[str], more: str = "") -> ModuleType:
    """The module that `command`, a compiler's, makes of a file, linked to the library and to `libraries`; kept for as long
    as these, the compiler, the library and `more` stay what they are."""
    path, key = library_of(name, file, command, libraries, more)
    loaded = sys.modules.get(name)
    if loaded is not None and getattr(loaded, "__mscclpp_key__", None) == key:
        return loaded
    module = _load(name, path, key)
    sys.modules[name] = module
    return module


def library_of(name: str, file: str, command: list[str], libraries: list[str], more: str = "") -> tuple[str, str]:
    """The same as a file, and by which key it is kept."""
    with open(file, "rb") as source:
        text = source.read()
    linked = [*libraries, f"-L{os.path.join(_HOME, 'lib')}", "-lmscclpp"]
    shown = [__version__, _stamp(), _version(command[0]), more, *command, *linked]
    key = hashlib.sha256("\0".join(shown).encode() + b"\0" + text).hexdigest()[:40]
    return _build(name, file, key, command, linked), key


def headers_in(folder: str) -> str:
    """The texts of a folder's headers, for `more`: what is made of them is made anew where one has changed."""
    texts = []
    for header in sorted(glob.glob(os.path.join(folder, "**", "*.hpp"), recursive=True)):
        with open(header, encoding="utf-8") as text:
            texts.append(text.read())
    return "\0".join(texts)


def host_compiler(what: str) -> str:
    """MSCCLPP_CXX, else c++. Raises Unsupported where there is none."""
    compiler = os.environ.get("MSCCLPP_CXX") or "c++"
    if shutil.which(compiler) is None:
        raise Unsupported(f"{what} cannot be compiled: there is no {compiler}; name a C++20 compiler in MSCCLPP_CXX")
    return compiler


def _stamp() -> str:
    """What changes with the library that modules are linked to."""
    library = os.stat(os.path.join(_HOME, "lib", "libmscclpp.so"))
    return f"{library.st_size} {library.st_mtime_ns}"


def _command(device: Device) -> list[str]:
    """The compiler's command but for the source and what it makes."""
    try:
        import pybind11  # pylint: disable=import-outside-toplevel
    except ImportError as error:
        raise Unsupported("compile_native: modules are bound by pybind11, which is not installed: pip install pybind11") from error
    folders = [sysconfig.get_path("include"), pybind11.get_include(), os.path.join(_HOME, "include")]
    includes = [f"-I{folder}" for folder in folders]
    library = os.path.join(_HOME, "lib")
    command = ["-std=c++20", "-O2", "-shared", *includes]
    if device.kind == "cuda":
        compiler = _nvcc()
        architecture = _mscclpp.architecture_of(device)
        command += ["-Xcompiler=-fPIC", f"-Xlinker=-rpath,{library}", "-DMSCCLPP_HAS_CUDA=1"]
        command += [f"-gencode=arch=compute_{architecture},code=sm_{architecture}", "-x", "cu"]
    else:
        compiler = host_compiler("compile_native: the module")
        command += ["-fPIC", f"-Wl,-rpath,{library}", "-DMSCCLPP_HAS_SIM=1", "-x", "c++"]
    return [compiler, *command]


def _nvcc() -> str:
    named = os.environ.get("MSCCLPP_NVCC")
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    for candidate in [named] if named else ["nvcc", os.path.join(home, "bin", "nvcc")]:
        found = shutil.which(candidate)
        if found:
            return found
    raise Unsupported("compile_native: there is no nvcc on the PATH or under CUDA_HOME; name one in MSCCLPP_NVCC")


@functools.cache
def _version(compiler: str) -> str:
    return subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout


def _build(name: str, file: str, key: str, command: list[str], linked: list[str]) -> str:
    """The module's file; of the processes and threads that ask at once, one compiles."""
    cache = _mscclpp.cache_folder()
    if not cache:
        raise SystemRefused("there is no home folder; name one for what is compiled in MSCCLPP_CACHE_DIR")
    folder = os.path.join(cache, "native")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    if os.stat(folder).st_uid != os.getuid() or os.stat(folder).st_mode & 0o022:
        raise SystemRefused(f"{folder} can be written by others, whose code would be run")
    made = os.path.join(folder, f"{name}-{key}.so")
    with open(made + ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            os.utime(made)  # the least recently used goes first
            return made
        part = f"{made}.{os.getpid()}.{threading.get_ident()}"
        result = subprocess.run(
            [*command, os.path.abspath(file), "-o", part, *linked], capture_output=True, text=True, check=False
        )
        if result.returncode != 0:
            if os.path.exists(part):
                os.remove(part)
            raise InvalidUsage(f"{file} does not compile:\n{result.stderr or result.stdout}")
        os.replace(part, made)
        _make_room(folder, made)
    return made


def _make_room(folder: str, made: str) -> None:
    """Of what is kept but `made`, the least recently used goes until the rest is within the limit."""
    kept = []
    for entry in os.scandir(folder):
        with contextlib.suppress(FileNotFoundError):  # others make room, too
            kept.append((entry.stat().st_mtime_ns, entry.stat().st_size, entry.path))
    total = sum(size for _, size, _ in kept)
    for _, size, path in sorted(kept):
        if total <= _MOST_BYTES:
            return
        if path != made:
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)
            total -= size


def _load(name: str, path: str, key: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InvalidUsage(f"compile_native: {path} is no module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    setattr(module, "__mscclpp_key__", key)
    return module
