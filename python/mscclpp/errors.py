# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the library raises: an Error of a kind, whose sentence names rank, peer, operation, value and limit."""

from . import _mscclpp


class Error(RuntimeError):
    """All errors of the library."""


class InvalidUsage(Error, ValueError):
    """An argument, or the order of calls, is wrong."""


class SystemRefused(Error):
    """The operating system refused."""


class DeviceError(Error):
    """CUDA, or the simulated machine, refused."""


class RemoteError(Error):
    """Another rank failed or left."""


class Timeout(Error, TimeoutError):
    """A time limit passed; the sentence says who waited for what."""


class Aborted(Error):
    """Another waiter gave up first."""


class Unsupported(Error, NotImplementedError):
    """This machine or build lacks what was asked for."""


class InternalError(Error):
    """A defect of this library."""


_mscclpp.register_errors(
    {
        "invalid usage": InvalidUsage,
        "system error": SystemRefused,
        "device error": DeviceError,
        "remote error": RemoteError,
        "timeout": Timeout,
        "aborted": Aborted,
        "unsupported": Unsupported,
        "internal error": InternalError,
    }
)
