# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What PyTorch's files of tests find otherwise than they expect. Imported by the interpreter of each of their
processes, before the test, which stays as it is.

Fewer GPUs: each rank of these tests has a device of its own. Where MSCCLPP_PRETEND is set, torch.cuda.device_count()
says that, and devices that are named by numbers above those that there are, as torch.device, text or number, become
those that they share.

Another version of PyTorch than the tests': names that it has no more.
"""

import functools
import os

import torch
import torch.distributed.distributed_c10d as c10d
import torch.nn.parallel._functions as parallel
from torch.overrides import TorchFunctionMode
from torch.testing._internal import common_distributed, common_fsdp

PRETENDED = int(os.environ.get("MSCCLPP_PRETEND", "0"))
REAL = max(torch.cuda.device_count(), 1)


def shared(device):
    """The device that stands for this one, of whatever form it has; of a list, each one's."""
    if isinstance(device, list):
        return [shared(each) for each in device]
    if isinstance(device, bool):
        return device
    if isinstance(device, int):
        return device % REAL if 0 <= device < PRETENDED else device
    if isinstance(device, str) and device.startswith("cuda:") and device[5:].isdigit():
        return f"cuda:{shared(int(device[5:]))}"
    if isinstance(device, torch.device) and device.type == "cuda" and device.index is not None:
        return torch.device("cuda", shared(device.index))
    return device


class SharedDevices(TorchFunctionMode):
    """Of functions that make tensors, or move them."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if "device" in kwargs:
            kwargs["device"] = shared(kwargs["device"])
        name = getattr(func, "__name__", "")
        if name == "device":
            args = tuple(shared(each) for each in args)
            if isinstance(kwargs.get("index"), int):
                kwargs["index"] = shared(kwargs["index"])
        elif name in ("cuda", "to") and len(args) > 1:
            args = (args[0], shared(args[1]), *args[2:])
        return func(*args, **kwargs)


def share(owner, name):
    """Has a function of one device's number take the shared one's."""
    own = getattr(owner, name, None)
    if own is None:
        return

    @functools.wraps(own)
    def of_shared(device=None, *args, **kwargs):
        return own(shared(device), *args, **kwargs) if device is not None else own(*args, **kwargs)

    setattr(owner, name, of_shared)


def pretend():
    """In this process, and this thread."""
    torch.cuda.device_count = lambda: PRETENDED
    for name in ("set_device", "synchronize", "get_device_properties", "get_device_name", "get_device_capability",
                 "current_stream", "default_stream", "memory_allocated", "reset_peak_memory_stats",
                 "max_memory_allocated", "memory_stats", "can_device_access_peer"):
        share(torch.cuda, name)
    for name in ("_cuda_setDevice", "_cuda_exchangeDevice", "_cuda_maybeExchangeDevice"):
        share(torch._C, name)  # pylint: disable=protected-access
    for name in ("_exchange_device", "_maybe_exchange_device"):
        share(torch.cuda, name)
    share(parallel, "_get_stream")
    barrier = c10d.barrier

    @functools.wraps(barrier)
    def of_shared(group=c10d.GroupMember.WORLD, async_op=False, device_ids=None):
        return barrier(group, async_op, shared(device_ids))

    c10d.barrier = torch.distributed.barrier = of_shared
    SharedDevices().__enter__()  # pylint: disable=unnecessary-dunder-call


def rename():
    """What 2.6 had and 2.11 has not."""
    if not hasattr(common_distributed, "MultiProcContinousTest"):
        common_distributed.MultiProcContinousTest = common_distributed.MultiProcContinuousTest
    if not hasattr(common_fsdp, "test_compiled_fsdp"):
        common_fsdp.test_compiled_fsdp = lambda **_: lambda test: test  # without its compiled form


rename()
if PRETENDED:
    pretend()
