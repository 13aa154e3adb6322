# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs in Python: recorded, proved, printed, and run as algorithms."""

import json
import os
import tempfile
import unittest
import warnings

import mscclpp
import numpy as np
from mscclpp.__main__ import install
from mscclpp.default_algos import allreduce_multi_nodes
from mscclpp.language import *  # pylint: disable=wildcard-import,unused-wildcard-import

InvalidUsage = mscclpp.errors.InvalidUsage


def packet_allreduce(spec):
    """Two ranks: each reduces one half and sends it back."""
    with CollectiveProgram.from_spec(spec) as program:
        scratch = [Buffer(rank, 2) for rank in range(2)]
        for rank in range(2):
            peer, at = 1 - rank, Rank(rank)
            data = at.get_input_buffer()
            channel = MemoryChannel(peer, rank)
            channel.put_packets(scratch[peer][0:1], data[peer : peer + 1], tb=0)
            at.reduce(data[rank : rank + 1], [scratch[rank][0:1]], tb=0, packet=True)
            channel.put_packets(scratch[peer][1:2], data[rank : rank + 1], tb=0)
            at.unpack_packets(data[peer : peer + 1], scratch[rank][1:2], tb=0)
    return program


def without_unpacking(spec):
    """The same, but nobody takes the other's half."""
    with CollectiveProgram.from_spec(spec) as program:
        scratch = [Buffer(rank, 1) for rank in range(2)]
        for rank in range(2):
            data = Rank(rank).get_input_buffer()
            MemoryChannel(1 - rank, rank).put_packets(scratch[1 - rank][0:1], data[1 - rank : 2 - rank], tb=0)
            Rank(rank).reduce(data[rank : rank + 1], [scratch[rank][0:1]], tb=0, packet=True)
    return program


def spec_of(name, **more):
    values = {
        "name": name,
        "collective": AllReduce(2, 1, True),
        "nranks_per_node": 2,
        "world_size": 2,
        "in_place": True,
        "instances": 1,
        "protocol": "LL",
    }
    return AlgoSpec(**{**values, **more})


class Running(unittest.TestCase):
    def reduce_by(self, algorithm, count=3001):
        def rank_main(group):
            buffer = mscclpp.GpuBuffer(count, "int32", group.device)
            array = np.from_dlpack(buffer)
            for turn in range(3):
                array[:] = np.arange(count) * (group.my_rank + 1) + turn
                at = buffer.data_ptr()
                executor = mscclpp.Executor(group.communicator)
                status = algorithm.execute(
                    comm=group.communicator,
                    executor=executor,
                    input_buffer=at,
                    output_buffer=at,
                    input_size=buffer.nbytes,
                    output_size=buffer.nbytes,
                    dtype=mscclpp.DataType.int32,
                )
                self.assertEqual(status, 0)
                np.testing.assert_array_equal(array, np.arange(count) * 3 + 2 * turn)

        mscclpp.run_ranks(2, rank_main, device="sim")

    def test_a_program_is_an_algorithm(self):
        algorithm = mscclpp.compile(algo=packet_allreduce, algo_spec=spec_of("mine"), rank=1)
        self.assertTrue(algorithm.is_dsl_algorithm())
        self.assertEqual((algorithm.name, algorithm.collective), ("mine", "allreduce"))
        self.reduce_by(algorithm)

    def test_instances(self):
        self.reduce_by(mscclpp.compile(packet_allreduce, spec_of("three", instances=3)))

    def test_a_collection_asks_it_first(self):
        builder = mscclpp.AlgorithmCollectionBuilder()
        builder.add_algorithm_builder(mscclpp.compile(packet_allreduce, spec_of("mine")))
        try:
            collection = builder.build()
        finally:
            mscclpp.AlgorithmCollectionBuilder.reset()

        def rank_main(group):
            group.algorithms = collection.native
            array = np.full(100, group.my_rank + 1, np.float32)
            self.assertTrue((group.all_reduce(array) == 3).all())
            at = mscclpp.GpuBuffer(100, "float32", group.device).data_ptr()
            return collection.native.choose(
                "allreduce", group.communicator, at, at, 400, 400, mscclpp.DataType.float32, mscclpp.ReduceOp.SUM
            ).algorithm

        self.assertEqual(mscclpp.run_ranks(2, rank_main, device="sim"), ["mine", "mine"])

    def test_an_executor_runs_a_plan_from_a_file(self):
        program = packet_allreduce(spec_of("file"))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plan.json")
            with open(path, "w", encoding="utf-8") as file:
                file.write(program.to_json())
            plan = mscclpp.ExecutionPlan(path, 0)
        self.assertEqual((plan.name, plan.collective, plan.ranks), ("file", "allreduce", 2))

        def rank_main(group):
            executor = mscclpp.Executor(group.communicator)
            array = np.full(500, group.my_rank + 1, np.float16)  # of the host: goes through device memory
            for packets in (mscclpp.PacketType.LL16, mscclpp.PacketType.LL8):
                at = array.ctypes.data
                executor.execute(group.my_rank, at, at, 1000, 1000, mscclpp.DataType.float16, plan, 0, packets)
            self.assertTrue((array == 6).all())
            with self.assertRaises(InvalidUsage):
                executor.execute(5, at, at, 1000, 1000, mscclpp.DataType.float16, plan)

        mscclpp.run_ranks(2, rank_main, device="sim")

    def test_an_executor_refuses_cpu_memory_for_windows(self):
        spec = spec_of("direct", collective=AllGather(2, 1, True), protocol="Simple")
        with CollectiveProgram.from_spec(spec) as program:
            for rank in range(2):
                channel = MemoryChannel(1 - rank, rank)
                channel.signal(tb=0, relaxed=True)
                channel.wait(tb=0, data_sync=SyncType.after, relaxed=True)
                own = slice(rank, rank + 1)
                channel.put(Rank(1 - rank).get_output_buffer()[own], Rank(rank).get_output_buffer()[own], tb=0)
                channel.signal(tb=0, data_sync=SyncType.before)
                channel.wait(tb=0, data_sync=SyncType.after)
        plan = program.to_plan()

        def rank_main(group):
            executor = mscclpp.Executor(group.communicator)

            def run(address):
                each = 400
                executor.execute(
                    group.my_rank, address + group.my_rank * each, address, each, 2 * each, mscclpp.DataType.int32, plan
                )

            # Each call's copy of it would be other memory, whose window is not the one that was made.
            with self.assertRaises(InvalidUsage) as caught:
                run(np.zeros(200, np.int32).ctypes.data)
            self.assertIn("'direct'", str(caught.exception))
            self.assertIn("GpuBuffer", str(caught.exception))
            buffer = mscclpp.GpuBuffer(200, "int32", group.device)
            array = np.from_dlpack(buffer)
            array[100 * group.my_rank :][:100] = group.my_rank + 1
            run(buffer.data_ptr())
            self.assertEqual(array.tolist(), [1] * 100 + [2] * 100)

        mscclpp.run_ranks(2, rank_main, device="sim")

    def test_the_default_plans(self):
        with tempfile.TemporaryDirectory() as folder:
            files = install(folder)
            self.assertEqual(len(files), 4)
            for path in files:
                plan = mscclpp.ExecutionPlan(path)
                self.assertIn(plan.ranks, (16, 32))

    def test_the_plan_that_other_tests_run_on_two_hosts(self):
        spec = AlgoSpec(name="allreduce_multi_nodes", collective=AllReduce(2, 1, True), nranks_per_node=2, world_size=4,
                        in_place=True, instances=1, protocol="LL", auto_sync=False, num_threads_per_block=64,
                        reuse_resources=True, use_double_scratch_buffer=True)
        printed = json.loads(allreduce_multi_nodes(spec, thread_block_group_size=2).to_json())
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "net", "allreduce_multi_nodes.json")
        with open(path, encoding="utf-8") as file:
            self.assertEqual(json.load(file), printed, json.dumps(printed, separators=(",", ":")))


class Printing(unittest.TestCase):
    def test_the_plan_of_the_quick_start(self):
        with CollectiveProgram("simple_allgather_2gpus", AllGather(2, 1, inplace=True), 2, max_message_size=2**30):
            for src in range(2):
                chunk = Rank(src).get_output_buffer()[src : src + 1]
                for dst in range(2):
                    if src != dst:
                        channel = MemoryChannel(dst, src)
                        channel.signal(tb=0, relaxed=True)
                        channel.wait(tb=0, data_sync=SyncType.after, relaxed=True)
                        channel.put(Rank(dst).get_output_buffer()[src : src + 1], chunk, tb=0)
                        channel.signal(tb=0, data_sync=SyncType.before)
                        channel.wait(tb=0, data_sync=SyncType.after)
            text = JSON()
        plan = json.loads(text)
        self.assertEqual(plan["collective"], "allgather")
        self.assertEqual(plan["max_message_size"], 2**30)
        names = [op["name"] for op in plan["gpus"][0]["threadblocks"][0]["ops"] if op["name"] != "nop"]
        self.assertEqual(names, ["rlxsignal", "rlxwait", "put", "signal", "wait"])
        self.assertEqual(mscclpp.ExecutionPlan.from_json(text).name, "simple_allgather_2gpus")

    def test_a_wrong_program_is_printed_with_a_warning(self):
        program = without_unpacking(spec_of("half"))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            json.loads(program.to_json())
        self.assertEqual([each.category for each in said], [WrongProgram])
        self.assertIn("rank 0", str(said[0].message))


class Wrong(unittest.TestCase):
    def test_a_program_that_does_not_deliver(self):
        with self.assertRaises(InvalidUsage) as caught:
            mscclpp.compile(without_unpacking, spec_of("half"))
        self.assertIn("output[0] of rank 1 ends without input[0] of rank 0", str(caught.exception))

    def test_steps_raise_where_they_stand(self):
        with CollectiveProgram("wrong", AllReduce(2, 1, True), 2, protocol="LL"):
            data = [Rank(rank).get_input_buffer() for rank in range(2)]
            channel = MemoryChannel(1, 0)
            wrong = [
                lambda: channel.put(data[0][0:1], data[0][0:1], tb=0),
                lambda: channel.put(data[1][0:1], data[0][0:2], tb=0),
                lambda: channel.put(data[1][0:1], data[0][0:1]),
                lambda: channel.put_packets(data[1][0:1], data[0][0:1], tb=0),
                lambda: data[0][0:3],
                lambda: Rank(0).reduce(data[0][0:1], [], tb=0),
                lambda: Rank(0).copy(data[1][0:1], data[0][0:1], tb=0),
                lambda: Rank(0).barrier([]),
            ]
            for step in wrong:
                with self.assertRaises(RuntimeError):
                    step()
            for make in (lambda: data[0][-1:1], lambda: data[0][0:2:2], lambda: ThreadBlockGroup([1, 1])):
                with self.assertRaises(ValueError):
                    make()
            with self.assertRaises(TypeError):
                data[0][0]  # pylint: disable=pointless-statement

    def test_what_the_program_cannot_have(self):
        for make in (lambda: Rank(2), lambda: MemoryChannel(0, 0), lambda: PortChannel(5, 0)):
            with CollectiveProgram("wrong", AllReduce(2, 1, True), 2), self.assertRaises(InvalidUsage):
                make()
        with self.assertRaises(InvalidUsage) as caught:
            CollectiveProgram("wrong", AllReduce(2, 1, True), 2, protocol="LL256")
        self.assertIn("LL256", str(caught.exception))
        with self.assertRaises(RuntimeError):
            Rank(0)  # outside of a program
        with CollectiveProgram("wrong", AllReduce(2, 1, True), 2), self.assertRaises(InvalidUsage):
            with LoopIterationContext(1024, 1), LoopIterationContext(1024, 1):
                pass

    def test_what_is_no_program(self):
        with self.assertRaises(InvalidUsage):
            mscclpp.compile(lambda spec: None, spec_of("none"))
        with self.assertRaises(InvalidUsage):
            mscclpp.compile(packet_allreduce, spec_of("mine"), rank=2)
        with self.assertRaises(InvalidUsage):
            mscclpp.ExecutionPlan.from_json("{}")


if __name__ == "__main__":
    unittest.main()
