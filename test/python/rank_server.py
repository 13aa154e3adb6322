# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Imports modules once and forks ranks that have them, for support.py: to import PyTorch takes seconds.

    rank_server.py SOCKET MODULE...

SOCKET is the number of an open socket of packets. A request is JSON; the answer is a number:

    {"code": ..., "variables": ...}, with files for output and errors and the end of a pipe: the id of a new rank
    {"wait": id}, once the rank's end of the pipe is closed: its status, as waitpid()'s

A rank is what `python -c CODE` would be: it has these variables and no others, runs the code as __main__, and ends
as the interpreter ends, not as a child of fork. But the modules have read the server's variables, and ranks share the
seed of hashes and the addresses of libraries. The package under test is never imported here. The server ends with its
socket.
"""

import gc
import importlib
import json
import os
import socket
import sys


def _next_rank() -> str:
    """The code of a rank. Returns in each that is forked, and nowhere else."""
    asked = socket.socket(fileno=int(sys.argv[1]))
    gc.disable()
    for module in sys.argv[2:]:
        importlib.import_module(module)
    gc.freeze()  # else each rank copies all of it, and looks through it several times when it ends
    gc.enable()
    assert "mscclpp" not in sys.modules, "it reads its variables when it is loaded, which ranks give it"
    assert len(os.listdir("/proc/self/task")) == 1, "a child of fork has none of the other threads"
    while True:
        request, files, *_ = socket.recv_fds(asked, 1 << 20, 3, socket.MSG_CMSG_CLOEXEC)
        if not request:
            os._exit(0)
        order = json.loads(request)
        if "wait" in order:
            answer = os.waitpid(order["wait"], 0)[1]
        else:
            answer = os.fork()
            if answer == 0:
                break
            for file in files:
                os.close(file)
        asked.send(str(answer).encode())
    asked.close()
    for number, file in enumerate(files[:2], 1):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(order["variables"])
    sys.argv, sys.path[0] = ["-c"], ""
    return order["code"]


if __name__ == "__main__":
    _code = _next_rank()
    del __file__
    exec(_code)  # pylint: disable=exec-used
