# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tokens to their experts and home from Python, beside what NumPy gives; and the calls that engines make of DeepEP."""

import importlib.util
import unittest

import mscclpp
import numpy as np

HAS_TORCH = importlib.util.find_spec("torch") is not None
HIDDEN, TOPK, TOKENS = 150, 3, 6
GROUP = 128  # columns that share a scale


class Case:
    """What all ranks dispatch, and what NumPy says becomes of it."""

    def __init__(self, ranks, experts=5, hidden=HIDDEN, dtype=np.float32, seed=0):
        self.ranks, self.experts, self.hidden = ranks, experts, hidden
        self.local = -(-experts // ranks)
        random = np.random.default_rng(seed)
        self.x, self.indices, self.weights = [], [], []
        for rank in range(ranks):
            tokens = TOKENS - rank  # each rank has another number
            self.x.append(random.integers(-8, 9, (tokens, hidden)).astype(dtype))
            chosen = np.stack([random.permutation(experts)[:TOPK] for _ in range(tokens)]).astype(np.int64)
            chosen[random.random(chosen.shape) < 0.2] = -1
            self.indices.append(chosen)
            self.weights.append((random.integers(1, 5, chosen.shape) / 4).astype(np.float32))

    def entries(self, rank):
        """(expert here, source, token, k) of each entry for a rank, in the order of rows of each expert."""
        for expert in range(self.local):
            for source in range(self.ranks):
                for token, k in np.argwhere(self.indices[source] == rank * self.local + expert):
                    yield expert, source, token, k

    def by_token(self, rank):
        """(source, token) of each row."""
        for source in range(self.ranks):
            here = (self.indices[source] >= 0) & (self.indices[source] // self.local == rank)
            for token in np.flatnonzero(here.any(axis=1)):
                yield source, token

    def sums(self, rank, factors):
        """Of experts that multiply by their factor, weighted."""
        of = np.where(self.indices[rank] >= 0, factors[self.indices[rank]], 0)
        return (of * self.weights[rank]).sum(axis=1)[:, None] * self.x[rank].astype(np.float32)

    def make(self, group, **more):
        options = {"experts": self.experts, "topk": TOPK, "tokens": TOKENS, "hidden": self.hidden, "dtype": "float32"}
        return mscclpp.ExpertParallel(group, **{**options, **more})

    def of(self, rank):
        return self.x[rank], self.indices[rank], self.weights[rank]


FACTORS = np.array([1, 2, 4, 3, 5, 2, 1, 3], np.float32)


def unscaled(rows, scales):
    return rows.astype(np.float32) * np.repeat(scales, GROUP, axis=-1)[..., : rows.shape[-1]]


class Arrays(unittest.TestCase):
    def test_packed_and_home(self):
        for ranks in (2, 3):
            for alignment in (1, 4):
                case = Case(ranks, seed=ranks)

                def rank_main(group, case=case, alignment=alignment):
                    rank = group.my_rank
                    experts = case.make(group)
                    there = experts.dispatch(*case.of(rank), alignment=alignment)
                    entries = list(case.entries(rank))
                    counts = np.bincount([each[0] for each in entries], minlength=case.local)
                    rounded = -(-counts // alignment) * alignment
                    firsts = np.cumsum(rounded) - rounded
                    np.testing.assert_array_equal(there.counts, counts)
                    np.testing.assert_array_equal(there.firsts, firsts)
                    results = np.zeros_like(there.rows)
                    done = np.zeros(case.local, int)
                    for expert, source, token, k in entries:
                        row = firsts[expert] + done[expert]
                        done[expert] += 1
                        np.testing.assert_array_equal(there.rows[row], case.x[source][token])
                        self.assertEqual(there.origins[row], source * TOKENS + token)
                        self.assertEqual(there.weights[row], case.weights[source][token, k])
                        results[row] = there.rows[row] * FACTORS[rank * case.local + expert]
                    y = experts.combine(results, case.indices[rank])
                    np.testing.assert_array_equal(y, case.sums(rank, FACTORS))
                    return len(entries)

                self.assertGreater(min(mscclpp.run_ranks(ranks, rank_main, device="sim")), 0)

    def test_padded_with_parts_of_each(self):
        case = Case(3, dtype=np.float16)

        def rank_main(group):
            rank = group.my_rank
            experts = case.make(group, dtype="float16", part_of_each=True)
            there = experts.dispatch(case.x[rank], case.indices[rank], order="padded")
            self.assertEqual(there.rows.shape, (case.local, 3 * TOKENS, HIDDEN))
            self.assertIsNone(there.weights)
            done = np.zeros(case.local, int)
            for expert, source, token, _ in case.entries(rank):
                at = expert, done[expert]
                done[expert] += 1
                np.testing.assert_array_equal(there.rows[at], case.x[source][token])
                self.assertEqual(there.origins[at], source * TOKENS + token)
            np.testing.assert_array_equal(there.counts, done)
            here = FACTORS[rank * case.local : (rank + 1) * case.local]
            results = np.where(np.arange(3 * TOKENS)[:, None] < done[:, None, None], there.rows, 0)
            results = (results * here[:, None, None]).astype(np.float16)
            y = experts.combine(results, case.indices[rank], case.weights[rank], out=np.full_like(case.x[rank], 9))
            np.testing.assert_array_equal(y, case.sums(rank, FACTORS).astype(np.float16))

        mscclpp.run_ranks(3, rank_main, device="sim")

    def test_by_token(self):
        case = Case(2)

        def rank_main(group):
            rank = group.my_rank
            experts = case.make(group)
            there = experts.dispatch(*case.of(rank), order="by_token")
            rows = list(case.by_token(rank))
            self.assertEqual([int(each) for each in there.firsts],
                             [sum(source < of for source, _ in rows) for of in range(3)])
            results = np.zeros_like(there.rows)
            for row, (source, token) in enumerate(rows):
                np.testing.assert_array_equal(there.rows[row], case.x[source][token])
                indices = case.indices[source][token]
                here = (indices >= 0) & (indices // case.local == rank)
                np.testing.assert_array_equal(there.experts[row], np.where(here, indices % case.local, -1))
                np.testing.assert_array_equal(there.weights[row], np.where(here, case.weights[source][token], 0))
                own = FACTORS[np.where(here, indices, 0)] * there.weights[row]
                results[row] = there.rows[row] * own.sum()
            entries = list(case.entries(rank))
            np.testing.assert_array_equal(there.counts, np.bincount([each[0] for each in entries], minlength=case.local))
            y = experts.combine(results, case.indices[rank])
            np.testing.assert_array_equal(y, case.sums(rank, FACTORS))

        mscclpp.run_ranks(2, rank_main, device="sim")

    def test_quantised_rows(self):
        case = Case(2, hidden=256, dtype=np.float16)

        def rank_main(group):
            experts = case.make(group, dtype="float16", wire="int8")
            there = experts.dispatch(*case.of(group.my_rank))
            self.assertEqual(there.rows.dtype, np.int8)
            self.assertEqual(there.scales.shape, (there.rows.shape[0], 2))
            values = unscaled(there.rows, there.scales)
            for row, (_, source, token, _) in enumerate(case.entries(group.my_rank)):
                np.testing.assert_allclose(values[row], case.x[source][token], atol=8 / 127 / 2 * 1.01)

        mscclpp.run_ranks(2, rank_main, device="sim")

    def test_rows_that_have_no_room_are_counted(self):
        case = Case(2)

        def rank_main(group):
            rank = group.my_rank
            experts = case.make(group)
            there = experts.dispatch(*case.of(rank), room=2, drop=True)
            came = len(list(case.entries(rank)))
            self.assertEqual(int(there.dropped[0]), came - 2)
            self.assertEqual(there.rows.shape, (2, HIDDEN))
            experts.dispatch(*case.of(rank), out=there)
            self.assertEqual(int(there.dropped[0]), 2 * (came - 2))
            zeros = experts.combine(np.zeros_like(there.rows), case.indices[rank])
            self.assertFalse(zeros.any())

        mscclpp.run_ranks(2, rank_main, device="sim")

    def test_memory_of_the_caller(self):
        case = Case(2)

        def rank_main(group):
            rank = group.my_rank
            experts = case.make(group)
            buffer = mscclpp.GpuBuffer((40, HIDDEN), "float32", group.device)
            rows = np.from_dlpack(buffer)
            counts = np.full(case.local, 99, np.int32)
            rows[:] = 77
            out = mscclpp.Dispatched(rows=buffer, counts=counts)
            self.assertIs(experts.dispatch(*case.of(rank), out=out), out)
            entries = list(case.entries(rank))
            self.assertEqual(int(counts.sum()), len(entries))
            for row, (_, source, token, _) in enumerate(entries):
                np.testing.assert_array_equal(rows[row], case.x[source][token])
            self.assertTrue((rows[len(entries) :] == 77).all())
            stream = mscclpp.Stream(group.device)
            y = np.zeros_like(case.x[rank])
            result = experts.combine(buffer, case.indices[rank], weighted=False, out=y, stream=stream.handle)
            self.assertIs(result, y)
            np.testing.assert_array_equal(y, case.x[rank] * (case.indices[rank] >= 0).sum(axis=1)[:, None])

        mscclpp.run_ranks(2, rank_main, device="sim")

    def test_ranks_without_tokens(self):
        case = Case(2)
        case.x[1], case.indices[1], case.weights[1] = (each[1][:0] for each in (case.x, case.indices, case.weights))

        def rank_main(group):
            experts = case.make(group)
            there = experts.dispatch(*case.of(group.my_rank))
            y = experts.combine(there.rows, case.indices[group.my_rank])
            np.testing.assert_array_equal(y, case.sums(group.my_rank, np.ones(8, np.float32)))
            return y.shape[0], int(there.counts.sum())

        (_, first), (tokens, second) = mscclpp.run_ranks(2, rank_main, device="sim")
        self.assertEqual(tokens, 0)
        self.assertEqual(first + second, int((case.indices[0] >= 0).sum()))

    def test_what_it_is(self):
        def rank_main(group):
            experts = Case(2).make(group, wire="float32", blocks=3)
            native = experts.native
            self.assertEqual((experts.rank, experts.size, experts.experts_of_rank), (group.my_rank, 2, 3))
            self.assertEqual((native.experts, native.topk, native.tokens, native.hidden), (5, TOPK, TOKENS, HIDDEN))
            self.assertEqual((native.blocks, native.part_of_each, native.wire.name), (3, False, "float32"))
            self.assertGreater(experts.bytes, 2 * TOKENS * HIDDEN * 4)
            self.assertGreater(len(experts.device_handle().raw), 100)

        mscclpp.run_ranks(2, rank_main, device="sim")


class BadInput(unittest.TestCase):
    def refused(self, call, *words, error=mscclpp.errors.InvalidUsage, **more):
        case = Case(2)

        def rank_main(group):
            call(case.make(group, **more), *case.of(group.my_rank))

        with self.assertRaises(error) as caught:
            mscclpp.run_ranks(2, rank_main, device="sim")
        for word in ("rank", *words):
            self.assertIn(word, str(caught.exception))

    def test_limits(self):
        for more, words in (
            ({"experts": 600}, ("600", "512")),
            ({"topk": 17}, ("17", "16")),
            ({"tokens": -1}, ("tokens=-1",)),
            ({"dtype": "int32"}, ("int32", "bfloat16")),
            ({"wire": "float16"}, ("float16", "float32")),
        ):
            self.refused(lambda *_: None, *words, **more)

    def test_arrays_of_a_dispatch(self):
        long = np.zeros((TOKENS + 1, HIDDEN), np.float32)
        for call, words in (
            (lambda e, x, i, w: e.dispatch(long, i, w), ("dispatch", "x", f"({TOKENS + 1}, {HIDDEN})", "up to 6")),
            (lambda e, x, i, w: e.dispatch(x[:, :9], i, w), ("x", "9", "150")),
            (lambda e, x, i, w: e.dispatch(x.astype(np.float64), i, w), ("x of float64", "float32")),
            (lambda e, x, i, w: e.dispatch(x[::-1], i, w), ("x", "stride")),
            (lambda e, x, i, w: e.dispatch(x, i.astype(np.int32), w), ("indices of int32", "int64")),
            (lambda e, x, i, w: e.dispatch(x, i[:-1], w), ("indices of shape",)),
            (lambda e, x, i, w: e.dispatch(x, i, w.astype(np.float16)), ("weights of float16", "float32")),
            (lambda e, x, i, w: e.dispatch(x, i, w, order="sorted"), ("sorted", "by_token")),
            (lambda e, x, i, w: e.dispatch(x, i, w, alignment=0), ("alignment 0",)),
            (lambda e, x, i, w: e.dispatch(x, i, w, order="padded", rows_per_expert=0), ("rows_per_expert 0",)),
            (lambda e, x, i, w: e.dispatch(x, i, w, order="padded", room=7), ("room for 7", "3 * 12")),
            (lambda e, x, i, w: e.dispatch(x, i, w, room=-1), ("room for -1",)),
            (lambda e, x, i, w: e.dispatch(x, i, w, out=mscclpp.Dispatched(x), room=4), ("`out`", "room")),
            (lambda e, x, i, w: e.dispatch(x, i, w, out=mscclpp.Dispatched(None)), ("`rows` are None",)),
            (lambda e, x, i, w: e.dispatch(x, i, w, out=mscclpp.Dispatched(w)), ("out.rows", "[any][150]")),
            (lambda e, x, i, w: e.dispatch(x, i, w, out=mscclpp.Dispatched(long, counts=w)), ("out.counts", "(3,)")),
            (lambda e, x, i, w: e.dispatch(x, i, w, out=mscclpp.Dispatched(long, experts=i)), ("out.experts", "packed")),
        ):
            self.refused(call, *words)
        self.refused(lambda e, x, i, w: e.dispatch("text", i, w), "no array", error=TypeError)

    def test_rows_that_have_no_room(self):
        self.refused(lambda e, x, i, w: e.dispatch(x, i, w, room=1), "1")

    def test_an_expert_that_does_not_exist(self):
        self.refused(lambda e, x, i, w: e.dispatch(x, np.where(i < 0, 7, i), w), "expert 7", "0 to 4")

    def test_arrays_of_a_combine(self):
        for call, words in (
            (lambda e, x, i, w: e.combine(x[:, :8].copy(), i), ("combine", "8", "150")),
            (lambda e, x, i, w: e.combine(x.astype(np.float16), i), ("results of float16", "float32")),
            (lambda e, x, i, w: e.combine(x, i[:, :2].copy()), ("indices", "[3]")),
            (lambda e, x, i, w: e.combine(x, i, w), ("weights", "part_of_each")),
            (lambda e, x, i, w: e.combine(x, i, out=x[:1].copy()), ("out of shape", "(1, 150)")),
        ):
            self.refused(call, *words)

    def test_fewer_results_than_rows(self):
        def both(experts, x, indices, weights):
            experts.dispatch(x, indices, weights)
            experts.combine(x[:1].copy(), indices)

        self.refused(both, "1")


@unittest.skipUnless(HAS_TORCH, "there is no PyTorch")
class Tensors(unittest.TestCase):
    def test_bfloat16_that_travels_as_fp8(self):
        import torch  # pylint: disable=import-outside-toplevel

        case = Case(2, hidden=256)

        def rank_main(group):
            x, indices, weights = (torch.from_numpy(each) for each in case.of(group.my_rank))
            x = x.bfloat16()
            experts = case.make(group, dtype=torch.bfloat16, wire=torch.float8_e4m3fn)
            there = experts.dispatch(x, indices, weights)
            self.assertEqual(there.rows.dtype, torch.float8_e4m3fn)
            values = there.rows.float() * there.scales.repeat_interleave(GROUP, dim=1)
            for row, (_, source, token, _) in enumerate(case.entries(group.my_rank)):
                wanted = torch.from_numpy(case.x[source][token])
                torch.testing.assert_close(values[row], wanted, rtol=2**-4, atol=0.02)
            y = experts.combine(values.bfloat16(), indices)
            wanted = torch.from_numpy(case.sums(group.my_rank, np.ones(8, np.float32)))
            torch.testing.assert_close(y.float(), wanted, rtol=0.08, atol=0.1)

        mscclpp.run_ranks(2, rank_main, device="sim")


if __name__ == "__main__":
    unittest.main()
