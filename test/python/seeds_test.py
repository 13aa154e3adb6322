# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The programs of the guides (docs/seeds.md), each in processes as torchrun would start them, on simulated GPUs."""

import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import types
import unittest

import mscclpp
from support import finish, free_port, preload, script, start_ranks

ROOT = pathlib.Path(__file__).resolve().parents[2]
preload("torch", "torch.distributed")
EXAMPLES = ROOT / "examples" / "torch-integration"
PROGRAMS = ROOT / "python" / "mscclpp" / "language" / "tests"
EXECUTOR_TEST = ROOT / "python" / "test" / "executor_test.py"
WITHOUT_GPU = ROOT / "python" / "test" / "without_gpu.py"
LIMIT = 100  # seconds of one program


def missing(*modules):
    """Whether one is not installed, and what to say then."""
    absent = [each for each in modules if importlib.util.find_spec(each) is None]
    return bool(absent), f"{', '.join(absent)} not installed"


class Seeds(unittest.TestCase):
    """What the tests share: a folder for plans and modules, and ranks that run a script."""

    need_torch = False

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="mscclpp-seeds-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)

    def start(self, ranks, *command):
        """The exit status, output and errors of each rank."""
        own = {
            "MSCCLPP_MASTER_ADDR": "127.0.0.1",
            "MSCCLPP_MASTER_PORT": str(free_port()),
            "MSCCLPP_DEVICE": "sim",
            "MSCCLPP_CACHE_DIR": str(self.folder),
        }
        return finish(start_ranks(script(*command), ranks, self.need_torch, **own), LIMIT)

    def run_ranks(self, ranks, *command):
        """The outputs. Fails where one rank does, or warns that an algorithm has refused a call."""
        results = self.start(ranks, *command)
        said = "\n".join(f"rank {rank}: {output}{errors}" for rank, (_, output, errors) in enumerate(results))
        self.assertEqual([status for status, _, _ in results], [0] * ranks, said)
        self.assertNotIn("cannot do this call", said)
        return [output for _, output, _ in results]


@unittest.skipIf(*missing("torch"))
class TorchIntegration(Seeds):
    """The examples for PyTorch, whose torch.cuda is replaced."""

    need_torch = True

    def check(self, name, ranks, *arguments):
        """Runs an example, each rank of which says what it has compared."""
        for rank, output in enumerate(self.run_ranks(ranks, WITHOUT_GPU, EXAMPLES / name, *arguments)):
            self.assertRegex(output, rf"rank {rank}: .* (is|are) right\n")

    def test_default_algorithms(self):
        self.check("customized_comm_with_default_algo.py", 4)

    def test_program(self):
        self.check("customized_comm_with_dsl.py", 2)

    def test_registered_program(self):
        self.check("customized_comm.py", 2)

    def test_tuning(self):
        few = "--log2-sizes 10 12 19 --nblocks 2 4 --nthreads 64 --warmup 1 --launches 1 --ops 1"
        self.check("customized_comm_with_tuning.py", 2, *few.split())

    @unittest.skipIf(*missing("pybind11"))
    def test_native_module(self):
        self.check("customized_allgather.py", 3)


class QuickStart(Seeds):
    """Plans that programs print, and the program that runs them."""

    def plan(self, program, *arguments):
        """The file of what a program prints."""
        source = PROGRAMS / f"{program}.py"
        # A program that is wrong warns, and is not printed here.
        command = [sys.executable, "-B", "-W", "error", str(source), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        path = self.folder / f"{program}{''.join(arguments)}.json"
        path.write_text(done.stdout, encoding="utf-8")
        return path

    def check(self, ranks, plan, *arguments):
        """Runs a plan; what rank 0 says."""
        quick = ("--n_iters", "2", "--n_graph_iters", "1")
        outputs = self.run_ranks(ranks, EXECUTOR_TEST, "-path", plan, "--in_place", *quick, *arguments)
        self.assertRegex(outputs[0], r"all elements are right, [0-9.]+ us, [0-9.]+ GB/s")
        return outputs

    def test_the_quick_start(self):
        path = self.plan("simple_allgather")
        self.assertIn("1048576 bytes of float16", self.check(2, path, "--size", "1M")[0])
        for dtype in ("bfloat16", "float32", "int32"):
            self.assertIn(f" of {dtype}", self.check(2, path, "--size", "30000", "--dtype", dtype)[0])

    def test_packets(self):
        path = self.plan("packet_allreduce")
        for packets in ("LL8", "LL16"):
            self.assertIn(packets, self.check(2, path, "--size", "4K", "--packet_type", packets)[0])
        self.check(3, self.plan("packet_allreduce", "3"), "--size", "6000", "--dtype", "float32")

    def test_groups_of_ranks(self):
        outputs = self.check(4, self.plan("packet_allreduce"), "--size", "4K", "--split_mask", "0x1")
        self.assertEqual([bool(each) for each in outputs], [True, True, False, False])  # ranks 0, 2 and 1, 3

    def test_pipeline(self):
        # More than a loop's unit, so that the blocks work on different pieces.
        self.check(2, self.plan("pipelined_allreduce"), "--size", "400000")
        self.check(3, self.plan("pipelined_allreduce", "3"), "--size", "300000")

    def test_what_does_not_fit(self):
        path = self.plan("packet_allreduce")
        for ranks, arguments, why in (
            (2, ["--size", "4K"], "in place"),
            (3, ["--size", "4K", "--in_place"], "is for 2 ranks"),
            (2, ["--size", "2M", "--in_place"], "2097152 bytes"),
        ):
            for status, _, errors in self.start(ranks, EXECUTOR_TEST, "-path", path, *arguments):
                self.assertEqual(status, 1)
                self.assertIn(why, errors)

    def test_the_comparison(self):
        """executor_test.py sees one wrong element, of each collective."""
        spec = importlib.util.spec_from_file_location("executor_test", EXECUTOR_TEST)
        program = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(program)
        group = types.SimpleNamespace(my_rank=1, nranks=3, barrier=lambda: None, synchronize=lambda stream: None)
        machine = program.Simulated()
        for collective in ("allgather", "allreduce", "alltoall", "reducescatter", "sendrecv"):
            for dtype in ("bfloat16", "int32"):
                plan = types.SimpleNamespace(name="plan", collective=collective)
                case = program.Case(plan, group, 3000, program.Elements(dtype))
                buffers = program.Buffers(case, False, mscclpp.Device("sim"))
                for wrong in (0, 1):
                    turns = iter(range(2))

                    def run():
                        values = case.expected(next(turns))  # pylint: disable=cell-var-from-loop
                        values[-1] += wrong  # pylint: disable=cell-var-from-loop
                        machine.write(buffers.at_out, case.elements.of(values))  # pylint: disable=cell-var-from-loop

                    found = program.check(case, buffers, machine, run, 2, group)
                    self.assertEqual(found, 2 * wrong, f"{collective} of {dtype}")

    def test_a_plan_that_is_wrong(self):
        """It is refused, by the name that it has."""
        path = self.plan("simple_allgather")
        text = path.read_text(encoding="utf-8")
        path = self.folder / "wrong.json"
        path.write_text(re.sub(r'"index": 1\b', '"index": 0', text), encoding="utf-8")
        for status, _, errors in self.start(2, EXECUTOR_TEST, "-path", path, "--size", "4K", "--in_place"):
            self.assertEqual(status, 1)
            self.assertIn("plan 'simple_allgather_2gpus' is wrong", errors)


if __name__ == "__main__":
    unittest.main()
