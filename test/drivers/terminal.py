# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a command whose standard error is a terminal."""

import os
import pty
import subprocess


def run_on_terminal(command, **keywords):
    """Returns (exit status, stdout, what was written to the terminal)."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, text=True, **keywords) as process:
        os.close(theirs)
        written = b""
        try:
            while part := os.read(ours, 4096):
                written += part
        except OSError:   # nobody has it open any more
            pass
        out = process.stdout.read()
        status = process.wait()
    os.close(ours)
    return status, out, written.decode()
