# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Collectives of arrays and by addresses, over ranks that are threads."""

import gc
import unittest
import warnings

import mscclpp
import numpy as np
from mscclpp import DataType, ReduceOp

RANKS = 4
COUNT = 1003


def ramp(rank, dtype=np.float32, count=COUNT):
    return (np.arange(count) % 7 + rank + 1).astype(dtype)


class Arrays(unittest.TestCase):
    def test_all_reduce_of_each_type_and_operation(self):
        types = [np.float32, np.float64, np.float16, np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64]
        combine = {ReduceOp.SUM: np.sum, ReduceOp.PROD: np.prod, ReduceOp.MIN: np.min, ReduceOp.MAX: np.max}

        def rank_main(group):
            for dtype in types:
                for op, fold in combine.items():
                    result = group.all_reduce(ramp(group.my_rank, dtype), op=op)
                    wanted = fold([ramp(rank, dtype) for rank in range(RANKS)], axis=0).astype(dtype)
                    np.testing.assert_array_equal(result, wanted, f"{dtype.__name__} {op}")

        mscclpp.run_ranks(RANKS, rank_main, device="sim")

    def test_the_other_collectives(self):
        def rank_main(group):
            rank = group.my_rank
            own, whole = ramp(rank), np.concatenate([ramp(r, count=RANKS * COUNT) + r for r in range(RANKS)])
            np.testing.assert_array_equal(
                group.all_gather(own, np.zeros(RANKS * COUNT, np.float32)),
                np.concatenate([ramp(r) for r in range(RANKS)]),
            )
            long = ramp(rank, count=RANKS * COUNT) + rank
            parts = whole.reshape(RANKS, RANKS, COUNT)
            np.testing.assert_array_equal(
                group.reduce_scatter(long, np.zeros(COUNT, np.float32)), parts[:, rank].sum(axis=0)
            )
            np.testing.assert_array_equal(
                group.all_to_all(long, np.zeros(RANKS * COUNT, np.float32)), parts[:, rank].reshape(-1)
            )
            np.testing.assert_array_equal(group.broadcast(ramp(rank), root=2), ramp(2))
            result = group.reduce(ramp(rank), root=1)
            wanted = sum(ramp(r) for r in range(RANKS)) if rank == 1 else ramp(rank)
            np.testing.assert_array_equal(result, wanted)

        mscclpp.run_ranks(RANKS, rank_main, device="sim")

    def test_out_of_place_leaves_the_input(self):
        def rank_main(group):
            own = ramp(group.my_rank)
            out = group.all_reduce(own, np.zeros(COUNT, np.float32))
            np.testing.assert_array_equal(own, ramp(group.my_rank))
            np.testing.assert_array_equal(out, sum(ramp(rank) for rank in range(RANKS)))

        mscclpp.run_ranks(RANKS, rank_main, device="sim")

    def test_parts_of_one_array_in_place(self):
        def rank_main(group):
            whole = np.zeros(RANKS * COUNT, np.float32)
            own = whole[group.my_rank * COUNT : (group.my_rank + 1) * COUNT]
            own[:] = ramp(group.my_rank)
            group.all_gather(own, whole)
            np.testing.assert_array_equal(whole, np.concatenate([ramp(r) for r in range(RANKS)]))

        mscclpp.run_ranks(RANKS, rank_main, device="sim")

    def test_device_memory_is_used_where_it_lies(self):
        def rank_main(group):
            buffer = mscclpp.GpuBuffer((2, COUNT), "float32", group.device)
            array = np.from_dlpack(buffer)
            self.assertEqual(array.shape, (2, COUNT))
            self.assertEqual(array.ctypes.data, buffer.data_ptr())
            array[:] = group.my_rank
            group.all_reduce(buffer)
            self.assertTrue((array == 6).all())

        mscclpp.run_ranks(RANKS, rank_main, device="sim")

    def test_an_array_keeps_the_memory_of_its_buffer(self):
        array = np.from_dlpack(mscclpp.GpuBuffer(1000, "int32", mscclpp.Device("sim")))
        gc.collect()
        array[:] = 7
        self.assertEqual(int(array.sum()), 7000)


class Algorithms(unittest.TestCase):
    def test_each_all_reduce_by_its_names(self):
        builder = mscclpp.AlgorithmCollectionBuilder()
        names = [each.name for each in builder.build_default_algorithms(scratch_buffer=0, scratch_buffer_size=0, rank=0)]
        self.assertIn("default_allreduce_nvls_packet", names)
        self.assertIn("default_allreduce_packet", names)

        def rank_main(group):
            tried = 0
            for each in builder.build_default_algorithms().get_by_collective("allreduce"):
                buffer = mscclpp.GpuBuffer(1024, "float16", group.device)
                array = np.from_dlpack(buffer)
                array[:] = group.my_rank + 1
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    status = each.execute(
                        comm=group.communicator,
                        input_buffer=buffer.data_ptr(),
                        output_buffer=buffer.data_ptr(),
                        input_size=buffer.nbytes,
                        output_size=buffer.nbytes,
                        dtype=DataType.float16,
                        op=ReduceOp.SUM,
                        symmetric_memory=True,
                    )
                if status == 0:
                    tried += 1
                    self.assertTrue((array == 10).all(), each.name)
            return tried

        self.assertTrue(all(tried >= 10 for tried in mscclpp.run_ranks(RANKS, rank_main, device="sim")))

    def test_what_cannot_be_done_is_said(self):
        def rank_main(group):
            algorithm = next(
                each for each in mscclpp.AlgorithmCollectionBuilder().build() if each.name == "nvls_zero_copy"
            )
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                status = algorithm.execute(group.communicator, 4096, 4096, 64, 64, DataType.float32, ReduceOp.SUM)
            return status, [str(each.message) for each in said if issubclass(each.category, RuntimeWarning)]

        # Warnings are the process's, so one rank alone.
        [(status, said)] = mscclpp.run_ranks(1, rank_main, device="sim")
        self.assertEqual(status, 1)
        self.assertEqual(len(said), 1)
        self.assertIn("'nvls_zero_copy' cannot do this call", said[0])

    def test_a_selector_chooses(self):
        asked = []

        def selector(algorithms, request):
            asked.append(request.collective)
            return algorithms["allreduce"]["twoshot_memory"] if request.message_size > 1000 else None

        builder = mscclpp.AlgorithmCollectionBuilder()
        builder.set_algorithm_selector(selector)
        try:
            collection = builder.build()
        finally:
            mscclpp.AlgorithmCollectionBuilder.reset()

        def rank_main(group):
            buffer = mscclpp.GpuBuffer(1024, "float32", group.device)
            at = buffer.data_ptr()
            chosen = collection.native.choose(
                "allreduce", group.communicator, at, at, 4096, 4096, DataType.float32, ReduceOp.SUM
            )
            group.algorithms = collection.native
            array = group.all_reduce(ramp(group.my_rank))
            np.testing.assert_array_equal(array, sum(ramp(rank) for rank in range(RANKS)))
            return chosen.algorithm

        self.assertEqual(mscclpp.run_ranks(RANKS, rank_main, device="sim"), ["twoshot_memory"] * RANKS)
        self.assertIn("allreduce", asked)


class BadInput(unittest.TestCase):
    def refused(self, call, *words, error=mscclpp.errors.InvalidUsage):
        with self.assertRaises(error) as caught:
            mscclpp.run_ranks(2, call, device="sim")
        for word in words:
            self.assertIn(word, str(caught.exception))

    def test_arrays_that_cannot_be_used(self):
        self.refused(lambda g: g.all_reduce(np.zeros(8, np.complex64)), "64-bit elements")
        self.refused(lambda g: g.all_reduce(np.zeros((4, 4), np.float32)[:, :2]), "not contiguous", "stride 4")
        self.refused(
            lambda g: g.all_reduce(np.zeros(8, np.float32), np.zeros(8, np.float64)), "rank", "float32", "float64"
        )
        with self.assertRaises(TypeError):
            mscclpp.run_ranks(1, lambda g: g.all_reduce("text"), device="sim")

    def test_sizes_that_do_not_fit(self):
        self.refused(lambda g: g.all_gather(np.zeros(8, np.float32), np.zeros(8, np.float32)), "rank", "32")

    def test_half_device_memory(self):
        def rank_main(group):
            group.all_reduce(mscclpp.GpuBuffer(8, "float32", group.device), np.zeros(8, np.float32))

        self.refused(rank_main, "one buffer of a call", "rank")

    def test_a_root_that_is_not_there(self):
        self.refused(lambda g: g.broadcast(np.zeros(8, np.float32), root=7), "7")

    def test_devices_and_types_by_wrong_names(self):
        for make in (lambda: mscclpp.Device("gpu"), lambda: mscclpp.Device("sim:x"), lambda: mscclpp.GpuBuffer(0),
                     lambda: mscclpp.GpuBuffer(4, "float17"), lambda: mscclpp.run_ranks(0, print),
                     lambda: mscclpp.run_ranks(99, print, device="sim")):
            with self.assertRaises(mscclpp.errors.InvalidUsage):
                make()
        with self.assertRaises(mscclpp.errors.InvalidUsage) as caught:
            mscclpp.RawGpuBuffer(64, mscclpp.Device("sim")).to_dlpack("float32", [4, 5])
        self.assertIn("80 bytes of 64", str(caught.exception))

    def test_what_a_rank_raises_ends_the_others(self):
        def rank_main(group):
            if group.my_rank == 1:
                raise KeyError("rank 1 gives up")
            group.all_reduce(ramp(0))

        with self.assertRaises(KeyError):
            mscclpp.run_ranks(RANKS, rank_main, device="sim")

    def test_a_rank_that_does_not_come(self):
        def rank_main(group):
            group.all_reduce(ramp(0))
            if group.my_rank != 1:
                group.all_reduce(ramp(0))

        with self.assertRaises(mscclpp.errors.Error) as caught:
            mscclpp.run_ranks(RANKS, rank_main, device="sim", limit=1)
        self.assertIsInstance(caught.exception, TimeoutError)
        self.assertIn("rank 1", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
