#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# from_python.py: what the Python package registers is chosen by the NCCL library beside it in the process, here
# TEST_NCCL, libmscclpp_nccl_sim.so. Programs are found in the trace that the library writes at the end, since their sums
# are anybody's.
"""Programs and algorithms of the Python package under NCCL's interface, on simulated GPUs."""

import contextlib
import ctypes
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock

import mscclpp
from mscclpp.language.channel import MemoryChannel, SyncType
from mscclpp.language.collectives import AllReduce
from mscclpp.language.program import CollectiveProgram
from mscclpp.language.rank import Rank

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "torch-integration"
FLOAT16, FLOAT32, SUM, SYMMETRIC = 6, 7, 0, 1


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


class Algorithm(ctypes.Structure):
    """MscclppNcclAlgorithm."""

    RUN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("version", ctypes.c_int),
        ("collective", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("plan", ctypes.c_char_p),
        ("state", ctypes.c_void_p),
        ("refuse", RUN),
        ("run", RUN),
        ("others", ctypes.c_void_p * 4),
    ]


def load():
    """The library, as if it had been preloaded. TEST_TRACE names a file for its trace alone."""
    if "TEST_TRACE" in os.environ:
        os.environ["MSCCLPP_TRACE"] = os.environ["TEST_TRACE"]
    library = ctypes.CDLL(os.environ["TEST_NCCL"], mode=ctypes.RTLD_GLOBAL)
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    library.ncclCommInitRank.argtypes = [ctypes.POINTER(pointer), ctypes.c_int, UniqueId, ctypes.c_int]
    library.ncclAllReduce.argtypes = [pointer, pointer, size, ctypes.c_int, ctypes.c_int, pointer, pointer]
    library.ncclMemAlloc.argtypes = [ctypes.POINTER(pointer), size]
    library.ncclMemFree.argtypes = [pointer]
    library.ncclCommWindowRegister.argtypes = [pointer, pointer, size, ctypes.POINTER(pointer), ctypes.c_int]
    library.ncclCommWindowDeregister.argtypes = [pointer, pointer]
    library.ncclCommDestroy.argtypes = [pointer]
    library.mscclppNcclSimCreateStream.restype = pointer
    library.mscclppNcclSimDestroyStream.argtypes = [pointer]
    library.ncclGetLastError.restype = ctypes.c_char_p
    library.ncclGetLastError.argtypes = [pointer]
    library.mscclppNcclRegister.argtypes = [ctypes.POINTER(Algorithm), ctypes.c_char_p, size]
    library.mscclppNcclUnregister.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
    return library


NCCL = load()


def called(result):
    if result != 0:
        raise AssertionError(NCCL.ncclGetLastError(None).decode())


def reduced(ranks, count, symmetric=False):
    """The last element of each rank's all-reduce, in place, of its number plus one; memory of simulated GPUs is the
    host's, too."""
    identity = UniqueId()
    called(NCCL.ncclGetUniqueId(ctypes.byref(identity)))
    results = [None] * ranks
    failures = []

    def rank_main(rank):
        try:
            NCCL.mscclppNcclSimSetDevice(rank)
            stream = NCCL.mscclppNcclSimCreateStream()
            comm, memory, window = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
            called(NCCL.ncclCommInitRank(ctypes.byref(comm), ranks, identity, rank))
            called(NCCL.ncclMemAlloc(ctypes.byref(memory), 4 * count))
            values = (ctypes.c_float * count).from_address(memory.value)
            values[:] = [rank + 1] * count
            if symmetric:
                called(NCCL.ncclCommWindowRegister(comm, memory, 4 * count, ctypes.byref(window), SYMMETRIC))
            called(NCCL.ncclAllReduce(memory, memory, count, FLOAT32, SUM, comm, stream))
            called(NCCL.mscclppNcclSimDestroyStream(stream))
            results[rank] = values[count - 1]
            called(NCCL.ncclCommDestroy(comm))
            called(NCCL.ncclMemFree(memory))
        except Exception as error:  # pylint: disable=broad-except
            failures.append(error)

    threads = [threading.Thread(target=rank_main, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results


def allreduce(spec):
    """All ranks' parts, read from their input by everybody who sums them."""
    size = spec.world_size
    with CollectiveProgram(
        spec.name, spec.collective, size, protocol=spec.protocol, max_message_size=spec.max_message_size
    ) as program:
        channels = {(a, b): MemoryChannel(a, b) for a in range(size) for b in range(size) if a != b}
        for rank in range(size):
            for peer in range(size):
                if peer != rank:
                    channels[peer, rank].signal(tb=0, relaxed=True)
            for peer in range(size):
                if peer != rank:
                    channels[peer, rank].wait(tb=0, relaxed=True, data_sync=SyncType.after)
        for rank in range(size):
            own = Rank(rank).get_input_buffer()
            chunk = own[rank : rank + 1]
            peers = [peer for peer in range(size) if peer != rank]
            for peer in peers:
                channels[peer, rank].reduce(chunk, [Rank(peer).get_input_buffer()[rank : rank + 1]], tb=0)
            for peer in peers:
                channels[peer, rank].put(Rank(peer).get_input_buffer()[rank : rank + 1], chunk, tb=0)
        for rank in range(size):
            for peer in range(size):
                if peer != rank:
                    channels[peer, rank].signal(tb=0, data_sync=SyncType.before)
            for peer in range(size):
                if peer != rank:
                    channels[peer, rank].wait(tb=0, relaxed=True)
    return program


def compiled(ranks, name="mine", most=1 << 20):
    spec = mscclpp.AlgoSpec(
        name=name,
        collective=AllReduce(ranks, 1, True),
        nranks_per_node=ranks,
        world_size=ranks,
        in_place=True,
        instances=1,
        protocol="Simple",
        max_message_size=most,
    )
    return mscclpp.compile(algo=allreduce, algo_spec=spec, rank=0)


@contextlib.contextmanager
def builder():
    """What is added is forgotten at the end."""
    try:
        yield mscclpp.AlgorithmCollectionBuilder()
    finally:
        mscclpp.AlgorithmCollectionBuilder.reset()


def native(name, refuse, run, version=1):
    return Algorithm(ctypes.sizeof(Algorithm), version, b"allreduce", name, None, None, Algorithm.RUN(refuse),
                     Algorithm.RUN(run))


class Registered(unittest.TestCase):
    def register(self, algorithm):
        """The result, and why not."""
        why = ctypes.create_string_buffer(1024)
        return NCCL.mscclppNcclRegister(ctypes.byref(algorithm), why, len(why)), why.value.decode()

    def test_a_native_algorithm_is_asked_first(self):
        asked = []

        def run(_state, _call, _why, _room):
            asked.append("run")  # and leaves the data as they are
            return 0

        def refuse(_state, _call, _why, _room):
            asked.append("refuse")
            return 0

        algorithm = native(b"idle", refuse, run)
        self.assertEqual(self.register(algorithm), (0, ""))
        self.assertEqual(reduced(2, 1000), [1, 2])
        self.assertEqual(asked.count("run"), 2)
        self.assertGreaterEqual(asked.count("refuse"), 2)
        result, why = self.register(algorithm)
        self.assertNotEqual(result, 0)
        self.assertIn('there is a registered allreduce "idle" already', why)
        self.assertEqual(NCCL.mscclppNcclUnregister(b"allreduce", b"idle"), 0)
        self.assertNotEqual(NCCL.mscclppNcclUnregister(b"allreduce", b"idle"), 0)
        self.assertEqual(reduced(2, 1000), [3, 3])

    def test_one_that_refuses_is_passed_over_and_one_that_fails_is_an_error(self):
        def say(why, room, text):
            ctypes.memmove(why, text + b"\0", min(room, len(text) + 1))

        algorithm = native(b"never", lambda s, c, why, room: say(why, room, b"not this") or 1, lambda *_: 0)
        self.assertEqual(self.register(algorithm), (0, ""))
        self.assertEqual(reduced(2, 1000), [3, 3])
        self.assertEqual(NCCL.mscclppNcclUnregister(b"allreduce", b"never"), 0)
        algorithm = native(b"fails", lambda *_: 0, lambda s, c, why, room: say(why, room, b"it broke") or 5)
        self.assertEqual(self.register(algorithm), (0, ""))
        with self.assertRaisesRegex(AssertionError, "by fails, which this program has registered: it broke"):
            reduced(2, 1000)
        self.assertEqual(NCCL.mscclppNcclUnregister(b"allreduce", b"fails"), 0)

    def test_another_version(self):
        result, why = self.register(native(b"later", lambda *_: 0, lambda *_: 0, version=2))
        self.assertNotEqual(result, 0)
        self.assertIn("as version 2 of the interface describes it", why)

    def test_programs(self):
        with builder() as algorithms:
            algorithms.add_algorithm_builder(compiled(2))
            self.assertEqual(reduced(2, 1000, symmetric=True), [3, 3])
            self.assertEqual(reduced(3, 999, symmetric=True), [6, 6, 6])  # other ranks than the program's
            algorithms.add_algorithm_builder(compiled(2))  # the same again
            with self.assertRaises(mscclpp.errors.InvalidUsage) as caught:
                algorithms.add_algorithm_builder(compiled(2, most=1 << 10))
            self.assertIn('there is a registered allreduce "mine" already', str(caught.exception))
        self.assertFalse(compiled(2).unregister_from_nccl())  # forgotten
        self.assertEqual(reduced(2, 1000, symmetric=True), [3, 3])

    @unittest.skipUnless(importlib.util.find_spec("torch"), "there is no PyTorch")
    def test_the_guide(self):
        """dsl_with_nccl_api.py registers its program; the rest of it needs GPUs."""
        with unittest.mock.patch.object(sys, "path", [str(EXAMPLES), *sys.path]):
            example = importlib.import_module("dsl_with_nccl_api")
        self.addCleanup(mscclpp.AlgorithmCollectionBuilder.reset)
        self.assertTrue(example.register(example.spec_of(2, 2), 0))
        self.assertEqual(reduced(2, 1 << 18, symmetric=True), [3, 3])


class Traced(unittest.TestCase):
    """Which kernels have run, of a process of its own."""

    def kernels(self, lines):
        program = "\n".join(["import sys", f"sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})",
                             "from from_python import *", *lines])
        with tempfile.TemporaryDirectory() as folder:
            trace = pathlib.Path(folder, "trace.json")
            subprocess.run([sys.executable, "-B", "-c", program], check=True, timeout=100,
                           env={**os.environ, "TEST_TRACE": str(trace)})
            return trace.read_text(encoding="utf-8")

    def test_the_program_is_what_has_run(self):
        call = "assert reduced(2, 1000, symmetric=True) == [3, 3]"
        self.assertNotIn("Plan", self.kernels([call]))
        self.assertIn("Plan", self.kernels(["builder_ = mscclpp.AlgorithmCollectionBuilder()",
                                            "builder_.add_algorithm_builder(compiled(2))", call]))


if __name__ == "__main__":
    unittest.main()
