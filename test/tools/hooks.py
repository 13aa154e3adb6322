#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Compares the calls that compilers make under -fsanitize=thread,alignment with what the library of the hooks defines.
#
#   hooks.py --library=LIBRARY --source=SOURCE --compiler=COMPILER... [CLASS...]
"""Tests that the hooks are complete."""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

PARSER = argparse.ArgumentParser(description=__doc__)
PARSER.add_argument("--library", required=True)
PARSER.add_argument("--source", required=True)
PARSER.add_argument("--compiler", action="append", required=True)
ARGUMENTS, REST = PARSER.parse_known_args()

BASE = ["-std=c++20", "-w", "-fsanitize=thread,alignment", "-U_FORTIFY_SOURCE", "-c"]
# What sets volatile accesses and reads before writes apart, off by default.
MORE = {
    "g++": ["--param", "tsan-distinguish-volatile=1"],
    "clang++": ["-mllvm", "-tsan-distinguish-volatile", "-mllvm", "-tsan-compound-read-before-write"],
}


def compilers():
    return [name for name in dict.fromkeys(ARGUMENTS.compiler) if shutil.which(name)]


def family(compiler):
    return "clang++" if "clang" in os.path.basename(compiler) else "g++"


def names(command):
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return {line.split()[-1] for line in lines if line.strip() and not line.endswith(":")}


def calls(compiler, flags, source=None):
    """The hooks that a source compiled so would call."""
    with tempfile.TemporaryDirectory(prefix="mscclpp-hooks-") as folder:
        made = os.path.join(folder, "object.o")
        subprocess.run([compiler, *BASE, *flags, source or ARGUMENTS.source, "-o", made], check=True, timeout=100)
        return {name for name in names(["nm", "-u", made]) if name.startswith(("__tsan_", "__ubsan_"))}


def defined():
    dynamic = ["-D"] if ".so" in os.path.basename(ARGUMENTS.library) else []
    return names(["nm", *dynamic, "--defined-only", ARGUMENTS.library])


class Complete(unittest.TestCase):
    """Every call has its hook, for each compiler that is here."""

    def test_calls_are_defined(self):
        self.assertTrue(compilers())
        for compiler in compilers():
            for flags in (["-O0"], ["-O2"], ["-O2", *MORE[family(compiler)]]):
                with self.subTest(compiler=compiler, flags=flags):
                    made = calls(compiler, flags)
                    self.assertGreater(len(made), 50)
                    self.assertEqual(made - defined(), set())

    def test_linker_sends_block_copies_here(self):
        for name in ("memcpy", "memmove", "memset"):
            self.assertIn(f"__wrap_{name}", defined())
            self.assertIn(f"__tsan_{name}", defined())


class CanFail(unittest.TestCase):
    """The comparison sees a call that no hook answers."""

    def test_unknown_call(self):
        with tempfile.TemporaryDirectory(prefix="mscclpp-hooks-") as folder:
            source = os.path.join(folder, "call.cpp")
            with open(source, "w", encoding="utf-8") as file:
                file.write('extern "C" void __tsan_of_tomorrow();\nvoid f() { __tsan_of_tomorrow(); }\n')
            made = calls(compilers()[0], [], source)
        self.assertEqual(made - defined(), {"__tsan_of_tomorrow"})


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *REST])
