# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a script for GPUs, unmodified, on the simulated machine: python without_gpu.py SCRIPT [ARGUMENTS].

The library simulates devices whose memory is the host's, so tensors on "cuda" become tensors of the CPU. Only
torch.cuda, and what sends tensors there, is replaced:

    set_device, current_device, is_available, device_count    a device for each process of the host
    Stream, current_stream, stream, Event, synchronize        work is done when its call returns; events read the clock
    CUDAGraph, graph, use_mem_pool, MemPool                   see below
    device="cuda", Tensor.cuda(), Tensor.to("cuda")           the CPU

A graph records nothing: what is captured is done at once, and replay() does nothing. Results of a script may therefore
not depend on how often a graph was replayed, and times of replays tell nothing.
"""

import contextlib
import os
import runpy
import sys
import time

import torch
from torch.overrides import TorchFunctionMode


class _Stream:
    """All streams are the library's default one, whose calls return when their work is done."""

    cuda_stream = 0

    def __init__(self, *_, **__):
        self._entered = contextlib.nullcontext()

    def synchronize(self):
        """Nothing is left to wait for."""

    wait_stream = wait_event = record_event = lambda self, *_: None
    query = staticmethod(lambda: True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


class _Event:
    def __init__(self, *_, **__):
        self._time = time.perf_counter()

    def record(self, _=None):
        """Work is done when its call returns, so now is when the event happens."""
        self._time = time.perf_counter()

    def elapsed_time(self, later):
        """In milliseconds."""
        return 1000 * (later._time - self._time)  # pylint: disable=protected-access

    synchronize = wait = lambda self, *_: None
    query = staticmethod(lambda: True)


class _Graph:
    def replay(self):
        """What was captured was done at its capture."""

    reset = capture_begin = capture_end = lambda self, *_, **__: None


class _Nowhere(contextlib.nullcontext):
    """A context that changes nothing, made with any arguments."""

    def __init__(self, *_, **__):
        super().__init__()


def _is_cuda(value):
    return isinstance(value, (str, torch.device)) and torch.device(value).type == "cuda"


class _OnCpu(TorchFunctionMode):
    """Calls of PyTorch that name "cuda" get the CPU in its place."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function is torch.Tensor.cuda:
            return args[0]
        if _is_cuda(kwargs.get("device")):
            kwargs["device"] = "cpu"
        if function is torch.Tensor.to:
            args = tuple("cpu" if _is_cuda(each) else each for each in args)
        return function(*args, **kwargs)


def replace_cuda():
    """Puts the replacements in place, for good."""
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    stream = _Stream()
    replaced = {
        "is_available": lambda: True,
        "device_count": lambda: int(os.environ.get("LOCAL_WORLD_SIZE", os.environ.get("WORLD_SIZE", 1))),
        "current_device": lambda: local_rank,
        "set_device": lambda device: None,
        "synchronize": lambda device=None: None,
        "current_stream": lambda device=None: stream,
        "default_stream": lambda device=None: stream,
        "Stream": _Stream,
        "Event": _Event,
        "CUDAGraph": _Graph,
        "graph": _Nowhere,
        "stream": _Nowhere,
        "device": _Nowhere,
        "MemPool": _Nowhere,
        "use_mem_pool": _Nowhere,
    }
    for name, replacement in replaced.items():
        setattr(torch.cuda, name, replacement)


def main():
    """The command."""
    if len(sys.argv) < 2:
        sys.exit(__doc__.splitlines()[0])
    os.environ["MSCCLPP_DEVICE"] = "sim"
    script = sys.argv[1]
    sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(os.path.abspath(script))  # where Python would look for what the script imports
    replace_cuda()
    with _OnCpu():
        runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
