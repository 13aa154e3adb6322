# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the tests share: ranks as processes."""

from __future__ import annotations

import atexit
import functools
import importlib.util
import json
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
from typing import Any, Optional, Union

# Several processes that compile programs of PyTorch share few cores.
QUICK = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_VEC_ISA_OK": "0", "TORCHINDUCTOR_COMPILE_THREADS": "1"}


def free_port() -> int:
    """A port of this host that nobody listens on now."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


# Of the server: `import torch` is not to import the package, nor to start the driver of GPUs before a fork.
_AT_IMPORT = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
_preloaded: list[str] = []


def preload(*modules: str) -> None:
    """Has processes forked from one, rank_server.py, that has imported these modules, where they are installed.

    With a variable of its own that is read at the start or by an import a process is still started afresh; and so are
    all for GPUs, as CUDA does not survive a fork. Called before the first process is started."""
    if importlib.util.find_spec(modules[0].partition(".")[0]) and os.environ.get("MSCCLPP_TEST_DEVICE") != "cuda":
        _preloaded.extend(modules)


@functools.cache
def _server() -> socket.socket:
    """That of this program, which ends with it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    program = pathlib.Path(__file__).with_name("rank_server.py")
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-B", str(program), str(theirs.fileno()), *_preloaded],
            env={**os.environ, **QUICK, **_AT_IMPORT},
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
    atexit.register(lambda: (ours.close(), process.wait()))
    return ours


def _ask(request: dict[str, Any], *files: int) -> int:
    socket.send_fds(_server(), [json.dumps(request).encode()], files)
    answer = _server().recv(100)
    if not answer:
        raise RuntimeError("rank_server.py has ended; see what it has said")
    return int(answer)


class Forked:
    """A rank of the server, as a subprocess.Popen whose outputs are text in pipes."""

    def __init__(self, code: str, variables: dict[str, str]) -> None:
        self.returncode: Optional[int] = None
        self._outputs = [tempfile.TemporaryFile("w+") for _ in range(2)]
        self._ended, alive = os.pipe()  # it is closed in the end, by whatever that comes
        self.pid = _ask({"code": code, "variables": variables}, *(each.fileno() for each in self._outputs), alive)
        os.close(alive)

    def communicate(self, timeout: Optional[float] = None) -> tuple[str, str]:
        if self.returncode is None:
            if not select.select([self._ended], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"rank {self.pid}", timeout or 0)
            self.returncode = os.waitstatus_to_exitcode(_ask({"wait": self.pid}))
            os.close(self._ended)
        texts = []
        for file in self._outputs:
            with file:
                file.seek(0)
                texts.append(file.read())
        return texts[0], texts[1]

    def kill(self) -> None:
        if self.returncode is None:  # the server has not waited for it, so the id is its own
            os.kill(self.pid, signal.SIGKILL)


Rank = Union[subprocess.Popen, Forked]

# That no module reads when it is imported; those of the package are read when it is loaded, which a server never does.
_LATE = ("MSCCLPP_", "MASTER_", "TORCHELASTIC_", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "RANK", "LOCAL_RANK")


def start(code: str, fork: bool = True, **environment: str) -> Rank:
    """A process that runs `code`, with few threads. See preload()."""
    text, variables = textwrap.dedent(code), {**os.environ, **QUICK, **environment}
    if fork and _preloaded and all(name.startswith(_LATE) for name in environment):
        return Forked(text, variables)
    return subprocess.Popen(
        [sys.executable, "-B", "-c", text], env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def script(path: pathlib.Path, *arguments: object) -> str:
    """Code that runs a script as `python PATH ARGUMENTS` would."""
    return (
        f"import runpy, sys\nsys.argv = {[str(each) for each in (path, *arguments)]!r}\n"
        f"sys.path[0] = {str(path.parent)!r}\nrunpy.run_path({str(path)!r}, run_name='__main__')\n"
    )


def start_ranks(code: str, ranks: int, fork: bool = True, **environment: str) -> list[Rank]:
    """Starts a process for each rank that runs `code`, as torchrun would."""
    common = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    common.update(TORCHELASTIC_RUN_ID="test", LOCAL_WORLD_SIZE=str(ranks), **environment)
    return [start(code, fork, **common, RANK=str(rank), LOCAL_RANK=str(rank)) for rank in range(ranks)]


def finish(processes: list[Rank], limit: float = 100) -> list[tuple[int, str, str]]:
    """By rank: (exit status, output, errors). A process that does not end is killed."""
    results = []
    try:
        for process in processes:
            output, errors = process.communicate(timeout=limit)
            results.append((process.returncode, output, errors))
    finally:
        for process in processes:
            process.kill()
    return results


def run_processes(code: str, ranks: int, limit: float = 100, **environment: str) -> list[str]:
    """The outputs of processes that run `code`, by rank. Raises where one fails."""
    results = finish(start_ranks(code, ranks, **environment), limit)
    # All that failed: what one says is often only that another has gone.
    failed = [
        f"rank {rank} ended with status {status}:\n{output}{errors}"
        for rank, (status, output, errors) in enumerate(results)
        if status != 0
    ]
    if failed:
        raise AssertionError("\n".join(failed))
    return [output for _, output, _ in results]
