# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules that are compiled from a source: kept, refused in words, and not led astray by memory that comes and goes."""

import importlib.util
import itertools
import os
import pathlib
import subprocess
import tempfile
import unittest
from unittest import mock

import mscclpp
import numpy as np
from mscclpp import compiler

SOURCE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "torch-integration" / "customized_allgather.cu"


@unittest.skipUnless(importlib.util.find_spec("pybind11"), "there is no pybind11")
class Modules(unittest.TestCase):
    def test_an_algorithm_of_a_module(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, MSCCLPP_CACHE_DIR=folder):
            module = mscclpp.compile_native("mscclpp_native", str(SOURCE))
            self.assertIs(mscclpp.compile_native("mscclpp_native", str(SOURCE)), module)
            self.assertEqual(len(list(pathlib.Path(folder, "native").glob("*.so"))), 1)

        def rank_main(group):
            algorithm = mscclpp.Algorithm.create_from_native_capsule(module.create_allgather_algorithm())
            self.assertTrue(algorithm.is_native_algorithm())
            own, whole = (mscclpp.GpuBuffer(count, "float32", group.device) for count in (100, 300))

            def gather(array, out):
                size = array.nbytes
                return algorithm.execute(
                    group.communicator, at(array), at(out), size, 3 * size, mscclpp.DataType.float32
                )

            def at(array):
                return array.data_ptr() if isinstance(array, mscclpp.GpuBuffer) else array.ctypes.data

            for turn in range(3):
                np.from_dlpack(own)[:] = group.my_rank + turn
                group.barrier()
                self.assertEqual(gather(own, whole), 0)
                self.assertEqual(np.from_dlpack(whole)[::100].tolist(), [turn, turn + 1, turn + 2])
                group.barrier()
            # It goes by addresses, and copies of CPU memory have a new one each time.
            with self.assertRaises(mscclpp.errors.InvalidUsage) as caught:
                gather(np.zeros(100, np.float32), np.zeros(300, np.float32))
            self.assertIn("'allgather'", str(caught.exception))
            self.assertIn("GpuBuffer", str(caught.exception))
            group.barrier()

        mscclpp.run_ranks(3, rank_main, device="sim")

    def test_sources_that_cannot_be_compiled(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, MSCCLPP_CACHE_DIR=folder):
            wrong = pathlib.Path(folder, "wrong.cu")
            wrong.write_text("#include <pybind11/pybind11.h>\nint x = nothing;\n", encoding="utf-8")
            with self.assertRaises(mscclpp.errors.InvalidUsage) as caught:
                mscclpp.compile_native("wrong", str(wrong))
            self.assertIn("wrong.cu:2", str(caught.exception))
            with self.assertRaises(FileNotFoundError):
                mscclpp.compile_native("absent", os.path.join(folder, "absent.cu"))
            with mock.patch.dict(os.environ, MSCCLPP_CXX="no-such-compiler"):
                with self.assertRaises(mscclpp.errors.Unsupported) as refused:
                    mscclpp.compile_native("wrong", str(wrong))
            self.assertIn("MSCCLPP_CXX", str(refused.exception))


class Kept(unittest.TestCase):
    def test_what_is_kept_has_a_limit(self):
        """Of modules that are a line each, made by a compiler that is asked for its version once."""
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, MSCCLPP_CACHE_DIR=folder):
            kept = pathlib.Path(folder, "native")
            command = [compiler.host_compiler("a test"), "-shared", "-fPIC", "-nostdlib", "-x", "c++"]

            def make(name):
                source = pathlib.Path(folder, name + ".cpp")
                source.write_text(f"int {name};\n", encoding="utf-8")
                made = pathlib.Path(compiler.library_of(name, str(source), command, [])[0])
                at = next(clock)
                os.utime(made, ns=(at, at))
                return made

            clock = itertools.count(1)
            first, second = make("first"), make("second")
            with mock.patch.object(subprocess, "run", side_effect=AssertionError("nothing is to be run")):
                self.assertEqual(make("first"), first)  # used again: `second` is now the older one
            with mock.patch.object(compiler, "_MOST_BYTES", first.stat().st_size * 5 // 2):
                third = make("third")
            self.assertEqual(sorted(kept.glob("*.so")), sorted([first, third]))
            with mock.patch.object(compiler, "_MOST_BYTES", 1):
                fourth = make("fourth")  # larger than all that there is room for
            self.assertEqual(sorted(kept.glob("*")), [fourth])


if __name__ == "__main__":
    unittest.main()
