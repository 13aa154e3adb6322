#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# mscclpp-bench-virtual as a user runs it.
#
#   virtual_cli.py --bench=PATH --results=FOLDER [unittest arguments...]
"""Tests of the command mscclpp-bench-virtual."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

BENCH = ""
RESULTS = pathlib.Path()


def run(*arguments, **variables):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MSCCLPP_")} | variables
    return subprocess.run([BENCH, *arguments], capture_output=True, text=True, timeout=100, env=environment, check=False)


class Virtual(unittest.TestCase):
    def test_clocks_agree_with_measured_times(self):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "page.md"
            result = run(f"--check={RESULTS / 'virtual_h200x2.json'}", f"--output={page}", "--most-threads=6000",
                         "--limit=10")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(page.read_text(), result.stdout)
            self.assertGreater(len(re.findall(r"^\| \w+ \| \w+ \| 2 \|", result.stdout, re.MULTILINE)), 100)

    def test_limit(self):
        result = run(f"--check={RESULTS / 'virtual_h200x2.json'}", "--most-threads=100", "--limit=0.5")
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("the limit 0.5 %", result.stderr)

    def test_plan(self):
        result = run("--collective=allgather", "--ranks=8", "--algorithm=ll8", "--algorithm=push", "--min-bytes=4K",
                     "--max-bytes=16K")
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = re.findall(r"^\| (\w+) \| ([\d.]+) \| ([\d.]+) \|$", result.stdout, re.MULTILINE)
        self.assertEqual([row[0] for row in rows], ["4K", "16K"])
        for _, packets, push in rows:
            self.assertGreater(float(packets), 1)
            self.assertGreater(float(push), float(packets))  # two meetings more

    def test_time_line(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "trace.json"
            result = run("--algorithm=oneshot_ll8", "--ranks=3", "--min-bytes=1536", "--max-bytes=1536",
                         MSCCLPP_TRACE=str(file))
            self.assertEqual(result.returncode, 0, result.stderr)
            events = json.loads(file.read_text())["traceEvents"]
        kernels = [event for event in events if event.get("tid") in range(1001, 1999) and event["ph"] == "X"]
        self.assertEqual(len(kernels), 3 * 5)   # 3 ranks, a call and 4 timed ones
        waits = {event["name"].split(" in slot")[0] for event in events if event["pid"] == 1 and "packet" in event["name"]}
        self.assertLessEqual({"waits for a packet of rank 0", "waits for a packet of rank 2"}, waits)

    def test_two_runs_say_the_same(self):
        arguments = ("--collective=allreduce", "--ranks=3", "--min-bytes=1536", "--max-bytes=1536")
        self.assertEqual(run(*arguments).stdout, run(*arguments).stdout)

    def test_bad_arguments_are_named(self):
        for arguments, part in ((("--collective=nothing",), "--collective=nothing"),
                                (("--algorithm=nothing",), "no kernel of allreduce by nothing"),
                                (("--algorithm=copy_engine",), "no kernel of allreduce by copy_engine"),
                                (("--algorithm=nvls_packet",), "there are oneshot_ll8"),
                                (("--collective=allgather", "--ranks=3", "--min-bytes=1K"), "whole elements"),
                                (("--min-bytes=lots",), "--min-bytes"),
                                (("--ranks=0",), "--ranks"),
                                (("--check=there_is_none.json",), "there_is_none.json"),
                                (("--timing=there_is_none.json",), "there_is_none.json")):
            with self.subTest(arguments):
                result = run(*arguments)
                self.assertEqual(result.returncode, 2, result.stdout)
                self.assertIn(part, result.stderr + result.stdout)


if __name__ == "__main__":
    arguments = [sys.argv[0]]
    for argument in sys.argv[1:]:
        if argument.startswith("--bench="):
            BENCH = argument.removeprefix("--bench=")
        elif argument.startswith("--results="):
            RESULTS = pathlib.Path(argument.removeprefix("--results="))
        else:
            arguments.append(argument)
    unittest.main(argv=arguments)
