#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Runs mscclpp-doctor as a user does, on this machine and with a library in place of CUDA's driver.
#
#   doctor_cli.py --doctor=PROGRAM --driver=FOLDER
"""Tests of the command mscclpp-doctor."""

import json
import os
import subprocess
import sys
import unittest

VALUES = dict(argument[2:].split("=", 1) for argument in sys.argv if argument.startswith("--") and "=" in argument)


def doctor(*arguments, **variables):
    """Returns (exit status, stdout, stderr)."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MSCCLPP_")}
    result = subprocess.run([VALUES["doctor"], *arguments], capture_output=True, text=True, timeout=60, check=False,
                            env={**kept, **variables})
    return result.returncode, result.stdout, result.stderr


def faked(what, *arguments):
    return doctor(*arguments, LD_LIBRARY_PATH=VALUES["driver"], FAKE_GPUS=what, NCCL_NVLS_ENABLE="0")


class Doctor(unittest.TestCase):
    """The command."""

    def test_this_machine(self):
        status, out, err = doctor()
        self.assertEqual(err, "")
        for section in ("software", "network", "launcher", "settings", "choices"):
            self.assertIn(f"{section}\n  ", out)
        self.assertEqual(status, 1 if "\nbroken: " in out else 0)

    def test_json(self):
        status, out, _ = doctor("--json", "--ranks=2", MSCCLPP_DEBUG="info")
        document = json.loads(out)
        self.assertEqual(document["choices"]["rows"][0]["collective"], "allreduce")
        self.assertTrue(document["choices"]["ranks"].startswith("2 "))
        self.assertIn("use MSCCLPP_LOG_LEVEL", json.dumps(document["findings"]))
        self.assertEqual(status, int(any(each["weight"] == "broken" for each in document["findings"])))

    def test_settings_that_are_wrong(self):
        status, out, _ = doctor(MSCCLPP_TRANSPORT="fast")
        self.assertEqual(status, 1)
        self.assertIn('broken: MSCCLPP_TRANSPORT="fast" is no transport', out)

    def test_gpus_without_peer_access(self):
        status, out, _ = faked("")
        self.assertEqual(status, 1)
        self.assertIn("FAKE GPU", out)
        self.assertIn("broken: GPUs 0 and 1 do not reach each other's memory", out)

    def test_an_old_driver(self):
        status, out, _ = faked("old")
        self.assertEqual(status, 1)
        self.assertRegex(out, "the driver is for CUDA 11.4, and this library was built with|no code for them")

    def test_a_stub_and_no_gpu(self):
        status, out, _ = faked("stub")
        self.assertEqual(status, 1)
        self.assertIn("is the toolkit's stub to link with, not the driver", out)
        status, out, _ = faked("none")
        self.assertEqual(status, 1)
        self.assertIn("broken: the driver finds no GPU", out)

    def test_bad_use(self):
        for arguments in (["--rank=2"], ["--ranks=0"], ["file"]):
            self.assertEqual(doctor(*arguments)[0], 2)
        self.assertEqual(doctor("--help")[0], 0)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "--verbose", *[argument for argument in sys.argv[1:] if "=" not in argument]])
