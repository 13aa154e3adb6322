# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the tests share: ranks as processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap

# Several processes that compile programs of PyTorch share few cores.
QUICK = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_VEC_ISA_OK": "0", "TORCHINDUCTOR_COMPILE_THREADS": "1"}


def free_port() -> int:
    """A port of this host that nobody listens on now."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def start_ranks(code: str, ranks: int, **environment: str) -> list[subprocess.Popen]:
    """Starts a process for each rank that runs `code`, as torchrun would."""
    common = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    common.update(TORCHELASTIC_RUN_ID="test", LOCAL_WORLD_SIZE=str(ranks), **environment)
    return [
        subprocess.Popen(
            [sys.executable, "-B", "-c", textwrap.dedent(code)],
            env={**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]


def finish(processes: list[subprocess.Popen], limit: float = 100) -> list[tuple[int, str, str]]:
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


def run_processes(code: str, ranks: int, **environment: str) -> list[str]:
    """The outputs of processes that run `code`, by rank. Raises where one fails."""
    results = finish(start_ranks(code, ranks, **environment))
    # All that failed: what one says is often only that another has gone.
    failed = [
        f"rank {rank} ended with status {status}:\n{output}{errors}"
        for rank, (status, output, errors) in enumerate(results)
        if status != 0
    ]
    if failed:
        raise AssertionError("\n".join(failed))
    return [output for _, output, _ in results]
