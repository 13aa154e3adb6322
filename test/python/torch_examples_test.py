# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The examples for PyTorch, and python -m mscclpp.bench, as a user starts them.

On the simulated machine; with MSCCLPP_TEST_DEVICE=cuda on GPUs, which ranks may share.
"""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from support import QUICK, finish, preload, script, start, start_ranks

HAS_TORCH = importlib.util.find_spec("torch") is not None
preload("torch", "torch._inductor.compile_fx", "torch.utils.cpp_extension", "torch.distributed.tensor.parallel")
EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "torch-integration"
DEVICE = os.environ.get("MSCCLPP_TEST_DEVICE", "cpu")
LIMIT = 300  # seconds; compilers are at work


@unittest.skipUnless(HAS_TORCH, "there is no PyTorch")
class Examples(unittest.TestCase):
    """Each rank says what it has compared."""

    def check(self, name, ranks):
        results = finish(start_ranks(script(EXAMPLES / name), ranks), LIMIT)
        for rank, (status, output, errors) in enumerate(results):
            self.assertEqual(status, 0, errors)
            self.assertRegex(output, rf"rank {rank}: .* are right\n")

    def test_ddp_training(self):
        self.check("ddp_training.py", 3)

    def test_tensor_parallel_inference(self):
        self.check("tensor_parallel.py", 2)

    def test_experts_training(self):
        self.check("experts_training.py", 2)

    def test_a_fused_call_in_a_compiled_program(self):
        self.check("compiled_fusion.py", 2)


@unittest.skipUnless(HAS_TORCH, "there is no PyTorch")
class Bench(unittest.TestCase):
    """Small sizes; what it writes."""

    def bench(self, *arguments):
        command = [sys.executable, "-B", "-m", "mscclpp.bench", f"--device={DEVICE}", "--ranks=2", *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT, check=False, env={**os.environ, **QUICK}
        )

    def test_tables_and_files(self):
        few = ("--min-bytes=64", "--max-bytes=1K", "--factor=16", "--samples=3", "--calls=2")
        with tempfile.TemporaryDirectory() as folder:
            done = self.bench(*few, "--collectives=allreduce,alltoall", f"--output={folder}/few")
            self.assertEqual(done.returncode, 0, done.stderr)
            for mode in ("eager", "compiled"):
                self.assertIn(f"### alltoall, {'bfloat16' if DEVICE == 'cuda' else 'float32'}, {mode}", done.stdout)
                rows = json.loads(pathlib.Path(folder, f"few-{mode}.json").read_text(encoding="utf-8"))["rows"]
                ours = [row for row in rows if row.get("peer") in (None, "mscclpp backend")]
                self.assertEqual(len(ours), 8)
                for row in ours:
                    self.assertEqual(row["wrong"], 0)
                    self.assertLessEqual(row["time_us"], row["p99_us"])
                self.assertEqual({row["bytes"] for row in rows}, {64, 1024})
                if DEVICE == "cpu":
                    self.assertIn("gloo", {row.get("peer") for row in rows})
                table = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "bench_results.py"
                merged = subprocess.run(
                    [sys.executable, "-B", str(table), f"{folder}/few-{mode}.json"],
                    capture_output=True, text=True, timeout=LIMIT, check=False,
                )  # fmt: skip
                self.assertEqual(merged.returncode, 0, merged.stderr)
            self.assertIn("a backend that does nothing", done.stdout)
            self.assertIn(pathlib.Path(folder, "few.md").read_text(encoding="utf-8"), done.stdout)
            if importlib.util.find_spec("matplotlib"):
                self.assertTrue(list(pathlib.Path(folder).glob("few-eager-allreduce-*.svg")))

    def test_a_wrong_element_is_told(self):
        code = """
            import mscclpp.bench as bench, sys
            right = bench.Case.__init__
            def wrong(self, *arguments):
                right(self, *arguments)
                self.expected[-1] += 1
            bench.Case.__init__ = wrong
            sys.argv = "bench --modes=eager --collectives=allgather --max-bytes=1K --samples=1 --calls=1".split()
            bench.main()
        """
        [first, _] = finish(start_ranks(code, 2), LIMIT)
        self.assertEqual(first[0], 1, first[2])
        self.assertIn("WRONG: 2 elements", first[1])

    def test_what_is_wrong(self):
        wrong = {
            "--collectives=gossip": "allowed is a list of allreduce",
            "--min-bytes=-1": "a whole number of bytes",
            "--factor=1": "--factor must be 2 or more",
            "--modes=lazy": "allowed is a list of eager",
        }
        for argument, why in wrong.items():
            code = f"""
                import runpy, sys
                sys.argv = ["bench", "--device={DEVICE}", "--ranks=2", {argument!r}]
                runpy.run_module("mscclpp.bench", run_name="__main__")
            """
            [(status, _, errors)] = finish([start(code)], LIMIT)
            self.assertEqual(status, 2)
            self.assertIn(why, errors)


if __name__ == "__main__":
    unittest.main()
