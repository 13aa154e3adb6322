#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# mscclpp-tune as a user runs it, on simulated GPUs.
#
#   tune_cli.py --tune=PATH [unittest arguments...]
"""Tests of the command mscclpp-tune."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "drivers"))
from terminal import run_on_terminal   # noqa: E402  pylint: disable=wrong-import-position

TUNE = ""
QUICK = ["--device=sim", "--ranks=2", "--min-bytes=512", "--max-bytes=512", "--blocks=1,2", "--threads=32",
         "--replays=1", "--ops-per-graph=1"]


def run(*arguments):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MSCCLPP_")}
    return subprocess.run([TUNE, *arguments], capture_output=True, text=True, timeout=100, env=environment, check=False)


class Tune(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="mscclpp-tune-")
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "profile.json")

    def profile(self):
        with open(self.path, encoding="utf-8") as file:
            return json.load(file)

    def refused(self, expected, *arguments):
        result = run(*arguments)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn(expected, result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)

    def test_every_collective_is_tuned(self):
        result = run(*QUICK, f"--output={self.path}")
        self.assertEqual(result.returncode, 0, result.stderr)
        entry, = self.profile()["profiles"]
        self.assertEqual((entry["device"], entry["ranks"], entry["links"]), ("simulated GPU", 2, "whole_lines"))
        self.assertLessEqual({"allreduce", "allgather", "reducescatter", "alltoall", "broadcast", "reduce", "gather",
                              "scatter"}, set(entry["collectives"]))
        for name, entries in entry["collectives"].items():
            self.assertEqual(sorted(one.get("symmetric", False) for one in entries), [False, True], name)
            for one in entries:
                self.assertEqual(one["bytes"], 512)
                self.assertGreater(one["time_us"], 0)
            self.assertIn(f"{name} 512: ", result.stderr)

    def test_progress_on_a_terminal_only(self):
        arguments = [*QUICK, "--collective=allgather", f"--output={self.path}"]
        status, _, shown = run_on_terminal([TUNE, *arguments])
        self.assertEqual(status, 0)
        self.assertIn("\r\x1b[K[0/2] allgather 512: ", shown)
        self.assertNotIn("\x1b", run(*arguments).stderr)

    def test_a_later_run_keeps_what_it_does_not_measure(self):
        self.assertEqual(run(*QUICK, "--collective=allgather", f"--output={self.path}").returncode, 0)
        first = self.profile()["profiles"][0]["collectives"]["allgather"]
        second = [argument.replace("=512", "=1K") for argument in QUICK]
        self.assertEqual(run(*second, "--collective=allgather,reduce", "--symmetric=off", f"--output={self.path}").returncode, 0)
        tables = self.profile()["profiles"][0]["collectives"]
        self.assertEqual(sorted(tables), ["allgather", "reduce"])
        for one in first:
            self.assertIn(one, tables["allgather"])
        self.assertEqual({one["bytes"] for one in tables["allgather"]}, {512, 1024})

    def test_a_process_per_rank(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        arguments = [argument for argument in QUICK if not argument.startswith("--ranks")]
        ranks = [subprocess.Popen([TUNE, *arguments, "--collective=allgather,allreduce", f"--output={self.path}"],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  env=dict(os.environ, MSCCLPP_RANK=str(rank), MSCCLPP_WORLD_SIZE="2",
                                           MSCCLPP_COMM_ID=f"127.0.0.1:{port}"))
                 for rank in range(2)]
        for rank in ranks:
            _, errors = rank.communicate(timeout=100)
            self.assertEqual(rank.returncode, 0, errors)
        self.assertEqual(sorted(self.profile()["profiles"][0]["collectives"]), ["allgather", "allreduce"])

    def test_bad_use_is_told_in_one_line(self):
        self.refused("--output", *QUICK)
        output = f"--output={self.path}"
        self.refused("--collective=sum: allowed is a list of allreduce", *QUICK, "--collective=sum", output)
        self.refused("--collective=barrier", *QUICK, "--collective=barrier", output)
        self.refused("--min-bytes=2K is more than --max-bytes=1K", "--min-bytes=2K", "--max-bytes=1K", output)
        self.refused("--min-bytes=many", "--min-bytes=many", output)
        self.refused("--blocks", "--blocks=0", output)
        self.refused("--ranks", "--ranks=1", output)
        self.refused("--device", "--device=fpga", output)
        self.refused("--nonsense", "--nonsense", output)
        self.assertFalse(os.path.exists(self.path))

    def test_a_broken_profile_is_not_overwritten(self):
        with open(self.path, "w", encoding="utf-8") as file:
            file.write("{")
        self.refused("it is no JSON", *QUICK, f"--output={self.path}")
        with open(self.path, encoding="utf-8") as file:
            self.assertEqual(file.read(), "{")


if __name__ == "__main__":
    TUNE = sys.argv.pop(1).removeprefix("--tune=")
    unittest.main()
