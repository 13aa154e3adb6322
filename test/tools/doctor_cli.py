#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Runs mscclpp-doctor as a user does, on this machine and with a library in place of CUDA's driver.
#
#   doctor_cli.py --doctor=PROGRAM --driver=FOLDER
"""Tests of the command mscclpp-doctor."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
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

    def test_measured_links_of_simulated_gpus(self):
        with tempfile.TemporaryDirectory() as folder:
            graph = pathlib.Path(folder) / "topology.dot"
            # Nodes of two: the third is not reached by memory.
            status, out, err = doctor("--measure", "--json", "--ranks=3", f"--topology={graph}",
                                      MSCCLPP_SIM_DEVICES_PER_NODE="2")
            self.assertEqual(err, "")
            document = json.loads(out)
            copies, trips = document["copies, GB/s"]["rows"], document["round trips of a signal, us"]["rows"]
            # What the clocks of an H200 say: 379 GB/s.
            self.assertEqual([row["to 1"] for row in copies][::2], ["379", "-"])
            self.assertEqual([copies[1]["to 0"], copies[2]["to 0"], copies[0]["to 2"]], ["379", "-", "-"])
            self.assertGreater(float(copies[2]["to 2"]), 379)
            self.assertEqual((trips[0]["to 0"], trips[0]["to 2"]), ("-", "-"))
            self.assertEqual(trips[0]["to 1"], trips[1]["to 0"])
            self.assertTrue(1 < float(trips[0]["to 1"]) < 5)
            self.assertIn('gpu0 -- gpu1 [label="379 GB/s"]', graph.read_text())
            self.assertNotIn("gpu0 -- gpu2", graph.read_text())
            self.assertEqual(doctor("--topology=/no/such/folder/file")[0], 1)
        self.assertEqual(status, 0)

    def test_shared_ranks(self):
        status, out, _ = doctor(LD_LIBRARY_PATH=VALUES["driver"], FAKE_GPUS="", MSCCLPP_RANK="2", MSCCLPP_WORLD_SIZE="4",
                                MSCCLPP_MASTER_ADDR="127.0.0.1", CUDA_MPS_PIPE_DIRECTORY="/nowhere")
        self.assertEqual(status, 1)   # those two GPUs do not reach each other
        self.assertIn("slow: at least 3 ranks share 2 GPUs without MPS", out)

    def test_misspelt_variables(self):
        status, out, err = doctor(MSCCLPP_TRANSPROT="tcp")
        self.assertEqual(status, 0)
        self.assertIn("is MSCCLPP_TRANSPORT meant?", out)
        self.assertNotIn("MSCCLPP_TRANSPROT", err)   # told once, here

    def test_a_wrong_library_path(self):
        status, out, _ = doctor(LD_LIBRARY_PATH="/no/such/folder")
        self.assertIn("note: LD_LIBRARY_PATH names /no/such/folder, which is no folder", out)
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "libcuda.so.1").write_bytes(b"")   # as of another machine
            status, out, _ = doctor(LD_LIBRARY_PATH=folder)
        self.assertEqual(status, 1)
        self.assertIn(f"broken: LD_LIBRARY_PATH names {folder}: CUDA's driver cannot be loaded: ", out)

    def test_bad_use(self):
        for arguments in (["--rank=2"], ["--ranks=0"], ["file"]):
            self.assertEqual(doctor(*arguments)[0], 2)
        self.assertEqual(doctor("--help")[0], 0)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "--verbose", *[argument for argument in sys.argv[1:] if "=" not in argument]])
