# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tokens to their experts and home from Python, beside what NumPy gives; and the calls that engines make of DeepEP."""

import importlib.util
import os
import subprocess
import sys
import unittest

import mscclpp
import numpy as np
from support import run_processes

HAS_TORCH = importlib.util.find_spec("torch") is not None
HIDDEN, TOPK, TOKENS = 150, 3, 6
GROUP = 128  # columns that share a scale
NODE = int(os.environ.get("MSCCLPP_SIM_DEVICES_PER_NODE", "0"))  # ranks of each; 0: there is one


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

    def test_by_memory_as_by_packets(self):
        case = Case(2, seed=7)

        def rank_main(group):
            rank, found = group.my_rank, []
            for transport in ("memory", "packets", "automatic"):
                experts = case.make(group, transport=transport)
                self.assertEqual(experts.native.by_packets, transport != "memory")
                there = experts.dispatch(*case.of(rank))
                rows = int(there.firsts[-1] + there.counts[-1])
                y = experts.combine(np.nan_to_num(there.rows), case.indices[rank])
                found.append((there.rows[:rows], there.origins[:rows], there.weights[:rows], y))
            for each in found[1:]:
                for here, before in zip(each, found[0]):
                    np.testing.assert_array_equal(here, before)
            np.testing.assert_array_equal(found[0][-1], case.sums(rank, np.ones(8, np.float32)))

        mscclpp.run_ranks(2, rank_main, device="sim")

    def test_without_a_rank_that_has_failed(self):
        ranks, gone = 3, 1
        case = Case(ranks, experts=6, seed=3)

        def rank_main(group):
            rank = group.my_rank
            experts = case.make(group, transport="packets")
            failed = np.zeros(ranks, np.int32)
            lost = case.indices[rank] // case.local == gone
            self.assertTrue(lost.any())
            for layer in range(3):
                if layer == 1:
                    failed[gone] = 1
                if rank == gone and layer != 0:
                    continue
                there = experts.dispatch(*case.of(rank), failed=failed)
                np.testing.assert_array_equal(there.unsent, lost if layer != 0 else np.zeros_like(lost))
                here = [each for each in case.entries(rank) if layer == 0 or each[1] != gone]
                self.assertEqual(int(there.counts.sum()), len(here))
                y = experts.combine(there.rows, case.indices[rank], failed=failed)
                factors = np.ones(8, np.float32)
                if layer != 0:
                    factors[gone * case.local : (gone + 1) * case.local] = 0
                np.testing.assert_array_equal(y, case.sums(rank, factors))

        mscclpp.run_ranks(ranks, rank_main, device="sim")

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
    def refused(self, call, *words, error=mscclpp.errors.InvalidUsage, ranks=2, **more):
        case = Case(ranks)

        def rank_main(group):
            call(case.make(group, **more), *case.of(group.my_rank))

        with self.assertRaises(error) as caught:
            mscclpp.run_ranks(ranks, rank_main, device="sim")
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

    def test_transports(self):
        self.refused(lambda *_: None, "transport='links'", "'packets'", transport="links")
        self.refused(
            lambda e, x, i, w: e.dispatch(x, i, w, failed=np.zeros(2, np.int32)), "rows go by memory", transport="memory"
        )
        self.refused(lambda e, x, i, w: e.dispatch(x, i, w, failed=np.zeros(3, np.int32)), "failed", "(2,)")
        self.refused(lambda e, x, i, w: e.combine(x, i, failed=np.zeros(2)), "failed", "int32")

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

    # By kernels: one rank alone, since the first to be refused ends the others' waits.

    def test_rows_that_have_no_room(self):
        self.refused(lambda e, x, i, w: e.dispatch(x, i, w, room=1), "there is room for 1", ranks=1)

    def test_an_expert_that_does_not_exist(self):
        self.refused(lambda e, x, i, w: e.dispatch(x, np.where(i < 0, 7, i), w), "expert 7", "0 to 4", ranks=1)

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

        self.refused(both, "there is room for 1", ranks=1)


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

    def test_gradients(self):
        import torch  # pylint: disable=import-outside-toplevel

        def rank_main(group):
            experts = mscclpp.ExpertParallel(group, experts=2, topk=1, tokens=2, hidden=8, dtype="float32")
            x, indices = torch.ones((2, 8), requires_grad=True), torch.tensor([[0], [1]])
            with self.assertRaisesRegex(mscclpp.errors.InvalidUsage, f"rank {group.my_rank}: dispatch with x .*detach"):
                experts.dispatch(x, indices)
            with torch.no_grad():
                there = experts.dispatch(x, indices)
                self.assertTrue(torch.equal(experts.combine(there.rows, indices), x))

        mscclpp.run_ranks(2, rank_main, device="sim")


def difference(one, other):
    """0 for equal tensors, in the measure of DeepEP's tests."""
    one, other = one.double(), other.double()
    return float(1 - 2 * (one * other).sum() / (one * one + other * other).sum())


@unittest.skipUnless(HAS_TORCH, "there is no PyTorch")
class DeepEp(unittest.TestCase):
    """What DeepEP's tests of one host ask of it, small."""

    tokens, hidden, topk = 9, 256, 4

    def run_ranks(self, ranks, rank_main):
        import torch  # pylint: disable=import-outside-toplevel
        from mscclpp.deep_ep import Buffer  # pylint: disable=import-outside-toplevel

        torch.set_num_threads(1)
        return mscclpp.run_ranks(ranks, lambda group: rank_main(torch, group, Buffer(group)), device="sim")

    def sources(self, ranks):
        """Ranks in the order of their rows: over several nodes by the rank of the node that brings them."""
        return sorted(range(ranks), key=lambda rank: rank % (NODE or ranks))

    def routing(self, torch, ranks, experts):
        """By rank: indices and weights. Each rank has another number of tokens."""
        random = torch.Generator().manual_seed(7)
        every = []
        for rank in range(ranks):
            shape = self.tokens - rank, experts
            indices = torch.rand(shape, generator=random).topk(self.topk).indices
            indices[rank, rank] = -1
            every.append((indices, torch.rand(indices.shape, generator=random)))
        return every

    def test_layout(self):
        def rank_main(torch, group, buffer):
            experts, ranks = 6, group.nranks
            indices, _ = self.routing(torch, ranks, experts)[group.my_rank]
            per_rank, other, per_expert, in_rank, event = buffer.get_dispatch_layout(indices, experts)
            event.current_stream_wait()
            self.assertIsNone(other)
            for expert in range(experts):
                self.assertEqual(int(per_expert[expert]), int((indices == expert).sum()))
            for rank in range(ranks):
                here = ((indices >= 0) & (indices // (experts // ranks) == rank)).any(dim=1)
                self.assertTrue(torch.equal(in_rank[:, rank], here))
                self.assertEqual(int(per_rank[rank]), int(here.sum()))
            self.assertEqual((per_rank.dtype, per_expert.dtype), (torch.int32, torch.int32))

        self.run_ranks(3, rank_main)

    def test_many_tokens(self):
        def rank_main(torch, group, buffer):
            rank, ranks, experts = group.my_rank, group.nranks, 8
            local = experts // ranks
            every = self.routing(torch, ranks, experts)
            indices, weights = every[rank]
            layouts = [buffer.get_dispatch_layout(each, experts) for each, _ in every]
            per_rank, _, per_expert, in_rank, _ = layouts[rank]
            came = [int(layout[0][rank]) for layout in layouts]
            each_expert = sum(layout[2] for layout in layouts)[rank * local : (rank + 1) * local].tolist()
            ways = {"num_tokens_per_rank": per_rank, "num_tokens_per_expert": per_expert, "is_token_in_rank": in_rank}
            ones = torch.full((indices.shape[0], self.hidden), rank + 1.0, dtype=torch.bfloat16)
            noise = torch.randn(ones.shape, generator=torch.Generator().manual_seed(rank)).bfloat16()
            scales = torch.full((ones.shape[0], self.hidden // GROUP), 0.5)
            pair = (2 * ones.float()).to(torch.float8_e4m3fn), scales

            def by_source(rows):
                source = torch.cat([torch.full((came[of],), of + 1.0) for of in self.sources(ranks)])
                self.assertTrue(torch.equal(rows.float(), source[:, None].expand(rows.shape)))

            for x in (noise, ones, pair):
                for with_topk in (False, True):
                    options = dict(ways, expert_alignment=4, async_finish=True, previous_event=buffer.capture())
                    if with_topk:
                        options.update(topk_idx=indices, topk_weights=weights)
                    rows, topk_idx, topk_weights, counts, handle, event = buffer.dispatch(x, **options)
                    event.current_stream_wait()
                    self.assertEqual(counts, [-(-count // 4) * 4 for count in each_expert])
                    if x is pair:
                        self.assertEqual((rows[0].dtype, rows[1].dtype), (torch.float8_e4m3fn, torch.float32))
                        rows = (rows[0].float() * rows[1].repeat_interleave(GROUP, dim=1)).bfloat16()
                    self.assertEqual(rows.shape, (sum(came), self.hidden))
                    node = NODE or ranks
                    firsts = [sum(came[of] for of in range(ranks) if of % node < rail) for rail in range(node + 1)]
                    self.assertEqual(handle.first_rows.tolist(), firsts)
                    if x is not noise:
                        by_source(rows)
                    if with_topk:
                        self.assertEqual(topk_idx.dtype, torch.int64)
                        for expert, count in enumerate(each_expert):
                            self.assertEqual(int((topk_idx == expert).sum()), count)
                        self.assertEqual(int((topk_idx >= local).sum()) + int((topk_idx < -1).sum()), 0)
                        self.assertFalse(topk_weights[topk_idx < 0].any())
                    else:
                        self.assertIsNone(topk_idx)
                        again, *nothing, event = buffer.dispatch(x, handle=handle)
                        self.assertEqual(nothing, [None] * 4)
                        self.assertTrue(torch.equal((again[0] if x is pair else again).float().abs() > 0, rows != 0))
                    y, sums, event = buffer.combine(rows, handle, topk_weights=topk_weights)
                    event.current_stream_wait()
                    mean = y.float() / in_rank.sum(dim=1, keepdim=True)
                    self.assertLess(difference(mean, noise if x is noise else ones), 5e-6)
                    if with_topk:
                        self.assertTrue(torch.equal(sums, torch.where(indices >= 0, weights, 0)))

        self.run_ranks(4 if NODE else 2, rank_main)

    def test_a_group_of_torch(self):
        run_processes(
            """
            import torch, torch.distributed as dist
            from mscclpp.deep_ep import Buffer
            dist.init_process_group("gloo")
            rank, buffer = dist.get_rank(), Buffer(dist.group.WORLD)
            assert (buffer.rank, buffer.group_size) == (rank, 2)
            x, indices = torch.full((3, 128), rank + 1.0, dtype=torch.bfloat16), torch.tensor([[0], [1], [1]])
            per_rank, _, per_expert, in_rank, _ = buffer.get_dispatch_layout(indices, 2)
            rows, _, _, counts, handle, _ = buffer.dispatch(
                x, num_tokens_per_rank=per_rank, is_token_in_rank=in_rank, num_tokens_per_expert=per_expert)
            assert counts == [2 * (rank + 1)] and rows[:, 0].tolist() == [1.0] * (rank + 1) + [2.0] * (rank + 1)
            assert torch.equal(buffer.combine(rows, handle)[0], x)
            buffer.destroy()
            dist.destroy_process_group()
            """,
            2,
        )

    def test_overtaken_handles_and_more_tokens(self):
        def rank_main(torch, group, buffer):
            experts, held = 4, []
            for tokens in (2, 5, 3):
                x = torch.randn((tokens + group.my_rank, 128), generator=torch.Generator().manual_seed(tokens))
                indices = torch.arange(4).repeat(x.shape[0], 1)
                layout = buffer.get_dispatch_layout(indices, experts)
                rows, _, _, _, handle, _ = buffer.dispatch(
                    x, topk_idx=indices, num_tokens_per_rank=layout[0], num_tokens_per_expert=layout[2],
                    is_token_in_rank=layout[3],
                )
                held.append((x, rows, handle))
            for x, rows, handle in held:
                y, _, _ = buffer.combine(rows, handle)
                torch.testing.assert_close(y, 2 * x)
            buffer.destroy()

        self.run_ranks(2, rank_main)

    def test_no_wait_for_numbers(self):
        def rank_main(torch, group, buffer):
            indices, weights = self.routing(torch, 2, 4)[group.my_rank]
            x = torch.ones((indices.shape[0], 128), dtype=torch.bfloat16)
            per_rank, _, per_expert, in_rank, _ = buffer.get_dispatch_layout(indices, 4)
            rows, topk_idx, topk_weights, counts, handle, _ = buffer.dispatch(
                x, topk_idx=indices, topk_weights=weights, num_tokens_per_rank=per_rank, is_token_in_rank=in_rank,
                num_tokens_per_expert=per_expert, num_worst_tokens=2 * self.tokens,
            )
            self.assertEqual((rows.shape[0], counts), (2 * self.tokens, []))
            received = int(handle.first_rows[-1])
            self.assertTrue((topk_idx[received:] == -1).all())
            self.assertTrue((topk_idx[:received] >= 0).any(dim=1).all())
            self.assertFalse(topk_weights[received:].any())
            y, _, _ = buffer.combine(rows, handle)
            self.assertTrue(torch.equal(y.float(), in_rank.sum(dim=1, keepdim=True).expand(y.shape).float()))

        self.run_ranks(2, rank_main)

    def test_few_tokens(self):
        def rank_main(torch, group, buffer):
            rank, ranks, local = group.my_rank, group.nranks, 2
            experts = local * ranks
            every = self.routing(torch, ranks, experts)
            indices, weights = every[rank]
            x = torch.full((indices.shape[0], self.hidden), rank + 1.0, dtype=torch.bfloat16)
            x[:, -GROUP:] = torch.arange(x.shape[0])[:, None]
            noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(rank)).bfloat16() / 10
            for current in (x, noise):
                for fp8 in (False, True):
                    stats = torch.zeros(local, dtype=torch.int32)
                    came, counts, handle, event, hook = buffer.low_latency_dispatch(
                        current, indices, self.tokens, experts, cumulative_local_expert_recv_stats=stats, use_fp8=fp8,
                        return_recv_hook=True,
                    )
                    hook()
                    event.current_stream_wait()
                    rows = came
                    if fp8:
                        self.assertEqual(came[1].shape, (local, ranks * self.tokens, self.hidden // GROUP))
                        self.assertEqual(came[1].stride(1), 1)
                        rows = (came[0].float() * came[1].repeat_interleave(GROUP, dim=-1)).bfloat16()
                    self.assertEqual(rows.shape, (local, ranks * self.tokens, self.hidden))
                    self.assertTrue(torch.equal(stats, counts))
                    for expert in range(local):
                        number = int(counts[expert])
                        order = self.sources(ranks)
                        wanted = [every[of][0] == rank * local + expert for of in order]
                        self.assertEqual(number, sum(int(each.sum()) for each in wanted))
                        origins = handle.origins[expert, :number].long()
                        sources = torch.cat([torch.full((int(each.sum()),), of) for of, each in enumerate(wanted)])
                        self.assertTrue(torch.equal(origins // self.tokens, sources))
                        if current is x:
                            here = rows[expert, :number].float()
                            torch.testing.assert_close(
                                here[:, 0], torch.tensor(order)[sources] + 1.0, rtol=1e-2, atol=0
                            )
                            torch.testing.assert_close(here[:, -1], (origins % self.tokens).float(), rtol=1e-2, atol=0)
                    results = rows.nan_to_num()
                    for zero_copy in (False, True):
                        if zero_copy:
                            buffer.get_next_low_latency_combine_buffer(handle)[:] = results
                        out = torch.empty_like(current)
                        y, _, hook = buffer.low_latency_combine(
                            results.new_zeros(results.shape) if zero_copy else results, indices, weights, handle,
                            zero_copy=zero_copy, return_recv_hook=True, out=out,
                        )
                        hook()
                        self.assertIs(y, out)
                        wanted = current.float() * torch.where(indices >= 0, weights, 0).sum(dim=1, keepdim=True)
                        self.assertLess(difference(wanted, y), 7e-4 if fp8 else 1e-5)

        self.run_ranks(4 if NODE == 2 else 3, rank_main)

    def test_two_batches_of_few_tokens(self):
        def rank_main(torch, group, buffer):
            indices = torch.arange(4).repeat(3, 1)
            weights = torch.full(indices.shape, 0.25)
            x = [torch.full((3, 128), number + group.my_rank, dtype=torch.bfloat16) for number in (1, 5, 9)]
            sent = [buffer.low_latency_dispatch(each, indices, 3, 4, use_fp8=False) for each in x]
            for which in (1, 2):
                y, _, _ = buffer.low_latency_combine(sent[which][0].nan_to_num(), indices, weights, sent[which][2])
                self.assertTrue(torch.equal(y, x[which]))
            with self.assertRaisesRegex(mscclpp.errors.InvalidUsage, "rank .: .*two may be"):
                buffer.low_latency_combine(sent[0][0], indices, weights, sent[0][2])

        self.run_ranks(2, rank_main)

    def test_few_tokens_without_a_rank(self):
        from mscclpp.deep_ep import Buffer

        def rank_main(torch, group, _):
            buffer = Buffer(group, low_latency_mode=True, enable_shrink=True)
            rank, ranks = group.my_rank, group.nranks
            indices = torch.arange(ranks).repeat(2, 1)
            weights = torch.ones(indices.shape)
            x = torch.full((2, 128), rank + 1, dtype=torch.bfloat16)
            state = torch.empty(ranks, dtype=torch.int32)
            for step in range(6):
                if step == 2:
                    if rank != 1:
                        buffer.low_latency_update_mask_buffer(1, True)
                        buffer.low_latency_query_mask_buffer(state)
                        self.assertEqual(state.tolist(), [int(of == 1) for of in range(ranks)])
                elif step == 4:
                    buffer.low_latency_clean_mask_buffer()
                left_out = step in (2, 3)
                if left_out and rank == 1:
                    continue
                rows, counts, handle, _, _ = buffer.low_latency_dispatch(x, indices, 2, ranks, use_fp8=False)
                left = ranks - 1 if left_out else ranks
                self.assertEqual(counts.tolist(), [2 * left])
                y, _, _ = buffer.low_latency_combine(rows.nan_to_num(), indices, weights, handle)
                self.assertTrue(torch.equal(y, x * left))
            with self.assertRaisesRegex(mscclpp.errors.InvalidUsage, f"rank {rank}: .*mask=False"):
                buffer.low_latency_update_mask_buffer(1 - rank % 2, False)
            with self.assertRaisesRegex(mscclpp.errors.InvalidUsage, f"rank {rank}: .*enable_shrink"):
                Buffer(group).low_latency_query_mask_buffer(state)

        self.run_ranks(3, rank_main)

    def test_what_is_refused(self):
        def rank_main(torch, group, buffer):
            indices = torch.zeros((2, 1), dtype=torch.int64)
            x = torch.zeros((2, 128), dtype=torch.bfloat16)
            layout = buffer.get_dispatch_layout(indices, 2)
            ways = {"num_tokens_per_rank": layout[0], "num_tokens_per_expert": layout[2], "is_token_in_rank": layout[3]}
            handle = buffer.dispatch(x, **ways)[4]
            batch = buffer.low_latency_dispatch(x, indices, 2, 2)[2]
            for call, words in (
                (lambda: buffer.get_dispatch_layout(indices, 3), "3 experts over 2 ranks"),
                (lambda: buffer.get_dispatch_layout(indices.int(), 2), "torch.int64"),
                (lambda: buffer.dispatch(x, topk_idx=indices), "num_tokens_per_rank"),
                (lambda: buffer.dispatch(x, handle=handle, topk_idx=indices), "handle"),
                (lambda: buffer.dispatch((x, x), **ways), "float8_e4m3fn"),
                (lambda: buffer.dispatch(x, **ways, num_worst_tokens=2), "up to 1"),
                (lambda: buffer.combine(x, handle, bias=x), "bias"),
                (lambda: buffer.low_latency_dispatch(x, indices, 2, 2, round_scale=True), "round_scale"),
                (lambda: buffer.low_latency_combine(x, indices, indices, batch, use_logfmt=True), "use_logfmt"),
            ):
                with self.assertRaisesRegex(mscclpp.Error, f"rank {group.my_rank}: .*{words}"):
                    call()
            self.assertEqual(buffer.get_low_latency_rdma_size_hint(128, 7168, 2, 256), 0)
            self.assertEqual(buffer.get_dispatch_config(2).get_nvl_buffer_size_hint(7168 * 2, 2), 0)
            buffer.clean_low_latency_buffer(2, 128, 2)

        self.run_ranks(2, rank_main)


@unittest.skipUnless(HAS_TORCH and NODE == 0, "there is no PyTorch, or these are the nodes")
class OverNodes(unittest.TestCase):
    """The same calls between simulated nodes."""

    def check(self, node, *tests):
        done = subprocess.run(
            [sys.executable, "-B", __file__, *(f"DeepEp.test_{each}" for each in tests)],
            capture_output=True, text=True, timeout=300, check=False,
            env={**os.environ, "MSCCLPP_SIM_DEVICES_PER_NODE": str(node)},
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"Ran {len(tests)} test", done.stderr)

    def test_nodes_of_two(self):
        self.check(2, "many_tokens", "few_tokens")

    def test_nodes_of_one(self):
        self.check(1, "many_tokens", "few_tokens", "two_batches_of_few_tokens", "overtaken_handles_and_more_tokens")


if __name__ == "__main__":
    unittest.main()
