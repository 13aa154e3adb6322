#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Compiles the forms of access (access_forms.cpp) as users' sources are, with each compiler that is here, and has the
# recorder compare what the hooks were told of with what the forms touch.
#
#   access_forms.py --recorder=PROGRAM --include=FOLDER --flags=... --gnu-flags=... --clang-flags=... --link-flags=...
#                   --compiler=COMPILER... [CLASS...]
"""Tests that every form of access is seen."""

import argparse
import concurrent.futures
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

PARSER = argparse.ArgumentParser(description=__doc__)
for name in ("--recorder", "--include", "--flags", "--gnu-flags", "--clang-flags", "--link-flags"):
    PARSER.add_argument(name, required=True)
PARSER.add_argument("--compiler", action="append", required=True)
ARGUMENTS, REST = PARSER.parse_known_args()
SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "access_forms.cpp")


def compilers():
    """By their files, so that one with two names is tried once."""
    found = filter(None, map(shutil.which, ARGUMENTS.compiler))
    return list({os.path.realpath(path): path for path in found}.values())


def is_clang(compiler):
    return "clang" in subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout


def own_flags(compiler):
    return shlex.split(ARGUMENTS.flags + " " + (ARGUMENTS.clang_flags if is_clang(compiler) else ARGUMENTS.gnu_flags))


def build(folder, compiler, level, flags):
    made = os.path.join(folder, f"{os.path.basename(compiler)}{level}.so")
    subprocess.run([compiler, "-std=c++20", "-w", level, "-fPIC", "-c", f"-I{ARGUMENTS.include}", *flags, SOURCE, "-o",
                    made + ".o"], check=True, timeout=100)
    subprocess.run([compiler, "-shared", made + ".o", "-Wl,-Bsymbolic-functions,-z,undefs",
                    *shlex.split(ARGUMENTS.link_flags), "-o", made],
                   check=True, timeout=100)
    return made


def record(*objects):
    return subprocess.run([ARGUMENTS.recorder, *objects], capture_output=True, text=True, timeout=100, check=False)


class Seen(unittest.TestCase):
    """All bytes of every form, and no others."""

    def test_forms(self):
        with tempfile.TemporaryDirectory(prefix="mscclpp-forms-") as folder, \
                concurrent.futures.ThreadPoolExecutor(2) as pool:
            builds = [pool.submit(build, folder, compiler, level, own_flags(compiler))
                      for compiler in compilers() for level in ("-O0", "-O2", "-O3")]
            self.assertTrue(builds)
            result = record(*(made.result() for made in builds))
        self.assertEqual(result.returncode, 0, result.stdout)


class CanFail(unittest.TestCase):
    """With the compiler's hooks alone, copies are not seen."""

    def test_without_flags(self):
        with tempfile.TemporaryDirectory(prefix="mscclpp-forms-") as folder:
            result = record(build(folder, compilers()[0], "-O2", ["-fsanitize=thread"]))
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn("  memcmp 16 == 0: read of 16 bytes, seen of them: nothing\n", result.stdout)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *REST])
