# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What the test drivers share: running a compiler with a time limit, and self-tests that report like a test program.
"""Helpers of the test drivers."""

import os
import re
import subprocess
import sys
import tempfile
import traceback


def compile_source(command, limit=300):
    """Runs a compiler; returns (exit status, everything it printed). A passed limit is an error, not a result."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                              timeout=limit, check=False)
    except subprocess.TimeoutExpired as error:
        raise SystemExit(f"error: the compiler ran longer than {limit} s: {' '.join(command)}") from error
    except OSError as error:
        raise SystemExit(f"error: cannot run {command[0]}: {error.strerror}") from error
    return done.returncode, done.stdout


def is_nvcc(compiler):
    return "nvcc" in os.path.basename(compiler)


def flatten(text):
    """One line with single blanks, so that an expectation does not depend on where a compiler wraps."""
    return re.sub(r"\s+", " ", text)


def usable_flags(flags):
    """Include folders as CMake lists them, as flags a compiler takes in any language.

    Empty entries come from generator expressions that chose nothing. A named system folder would hide the compiler's
    own wrappers of the C headers, and it is searched anyway.
    """
    return [flag for flag in flags if flag and flag not in ("-I", "-D", "-I/usr/include", "-I/include")]


def split_arguments(arguments):
    """The driver's own arguments, and the compiler's after `--`."""
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1:]


def self_test(cases):
    """Runs functions that raise AssertionError when the driver misjudges; returns an exit status."""
    failed = 0
    for case in cases:
        with tempfile.TemporaryDirectory(prefix="mscclpp-driver-") as folder:
            try:
                case(folder)
                print(f"passed: {case.__name__}")
            except Exception:  # pylint: disable=broad-except
                failed += 1
                print(f"FAILED: {case.__name__}")
                traceback.print_exc(file=sys.stdout)
    return 1 if failed or not cases else 0
