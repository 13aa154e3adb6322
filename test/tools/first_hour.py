#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The way of docs/start/first_hour.md with the commands of this build, and that scripts/first_hour.sh can fail.
#
#   first_hour.py --script=PROGRAM --build=FOLDER
"""Tests of the first hour."""

import os
import subprocess
import sys
import tempfile
import unittest

VALUES = dict(argument[2:].split("=", 1) for argument in sys.argv if argument.startswith("--") and "=" in argument)
STEP = "## 1. A step ({} minutes)\n\n```sh\n{}\n```\n"


def run(*arguments):
    """Returns (exit status, stdout, stderr)."""
    result = subprocess.run([VALUES["script"], *arguments], capture_output=True, text=True, timeout=400, check=False)
    return result.returncode, result.stdout, result.stderr


def on_page(text, *arguments):
    with tempfile.NamedTemporaryFile("w", suffix=".md", encoding="utf-8") as page:
        page.write(text)
        page.flush()
        return run(f"--page={page.name}", *arguments)


class FirstHour(unittest.TestCase):
    """The script."""

    def test_the_page(self):
        status, out, err = run(f"--build={os.path.abspath(VALUES['build'])}")
        self.assertEqual(status, 0, out + err)
        self.assertNotIn("An all-reduce, every element checked", out)   # that build is there
        for shown in ("round trips of a signal, us", "my_kernel: nothing found", "race: plain read of 4 bytes",
                      "elements compared", "plan 'simple_allgather' is wrong"):
            self.assertIn(shown, out)

    def test_a_step_that_takes_longer(self):
        status, out, err = on_page(STEP.format(0, "sleep 1.1") + STEP.format(1, "echo last"))
        self.assertEqual(status, 1)
        self.assertIn("last\n", out)
        self.assertRegex(err, r'"1. A step" took [12] s, .* says 0')

    def test_a_command_that_fails(self):
        status, out, _ = on_page(STEP.format(1, "false\necho not here"))
        self.assertEqual(status, 1)
        self.assertNotIn("not here", out)

    def test_what_compiles_is_left_out_with_a_build(self):
        page = STEP.format(1, "echo first").replace("```sh", "<!-- compiles -->\n```sh", 1) + STEP.format(1, "echo in $build")
        self.assertIn("first\n", on_page(page)[1])
        status, out, _ = on_page(page, "--build=elsewhere")
        self.assertEqual(status, 0)
        self.assertNotIn("first\n", out)
        self.assertIn("in elsewhere\n", out)

    def test_bad_use(self):
        self.assertEqual(on_page("# No steps\n")[0], 2)
        self.assertEqual(run("--pages=x")[0], 2)
        self.assertEqual(run("--help")[0], 0)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "--verbose", *[argument for argument in sys.argv[1:] if "=" not in argument]])
