# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""scripts/pytorch_suite.py: some of PyTorch's tests in gloo's place, a test that fails, and one that is refused."""

import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "pytorch_suite.py"
HAS_TORCH = all(importlib.util.find_spec(name) is not None for name in ("torch", "expecttest"))

# A file as PyTorch's are, for two ranks.
TESTS = """
import os, unittest
import torch
import torch.distributed as dist
from torch.testing._internal.common_distributed import MultiProcessTestCase

class Some(MultiProcessTestCase):
    world_size = 2
    def setUp(self):
        super().setUp()
        self._spawn_processes()
    def begin(self):
        store = dist.FileStore(self.file_name, self.world_size)
        dist.init_process_group("gloo", store=store, rank=self.rank, world_size=self.world_size)
    def test_sum(self):
        self.begin()
        x = torch.ones(3)
        dist.all_reduce(x)
        self.assertEqual(x, torch.full((3,), 2.0))
        self.assertEqual(dist.group.WORLD._get_backend(torch.device("cpu")).name(), os.environ["NAME"])
    def test_wrong(self):
        self.begin()
        self.assertEqual(dist.group.WORLD._get_backend(torch.device("cpu")).name(), "gloo")
    @unittest.skip("for a reason")
    def test_none(self):
        pass
"""


@unittest.skipUnless(HAS_TORCH, "there is no PyTorch, or no expecttest")
class Suite(unittest.TestCase):
    def run_script(self, *arguments: str, name: str = "mscclpp") -> tuple[int, str]:
        done = subprocess.run(
            ["env", f"NAME={name}", sys.executable, "-B", str(SCRIPT), "--at-once=1", *arguments],
            capture_output=True, text=True, timeout=600, check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def test_pytorchs_own(self):
        status, said = self.run_script("--tests=test_all_reduce_sum$|test_all_reduce_sum_cuda$")
        self.assertIn("1 passed, 0 failed, 0 refused, 0 as with gloo, 1 skipped", said)
        self.assertEqual(status, 0, said)

    def test_what_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            file, state, report = (pathlib.Path(folder) / name for name in ("some.py", "state.json", "report.md"))
            file.write_text(TESTS)
            kept = [f"--files={file}", f"--state={state}", f"--report={report}"]
            status, said = self.run_script(*kept)
            self.assertEqual(status, 1, said)
            self.assertIn("1 passed, 1 failed, 0 refused, 0 as with gloo, 1 skipped", said)
            verdicts = json.loads(state.read_text())["some.py"]
            self.assertEqual(verdicts["Some.test_sum"], "passed")
            self.assertEqual(verdicts["Some.test_none"], "skipped: for a reason")
            self.assertIn("'mscclpp' != 'gloo'", verdicts["Some.test_wrong"])
            self.assertIn("| `some.py` | 3 | 1 | 1 | 0 | 0 | 1 | 0 |", report.read_text())
            # What fails with gloo, too, is counted for itself; what has a verdict is not run again.
            state.unlink()
            _, said = self.run_script(*kept, "--tests=sum", name="nobody")
            self.assertIn("0 passed, 0 failed, 0 refused, 1 as with gloo", said)
            _, said = self.run_script(*kept, "--tests=sum")
            self.assertIn("0 passed, 0 failed, 0 refused, 1 as with gloo", said)


if __name__ == "__main__":
    unittest.main()
