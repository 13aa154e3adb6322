# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators of experts: results and derivatives beside a program of one process, eager and compiled.

On tensors of the CPU, by the simulated machine; with MSCCLPP_TEST_DEVICE=cuda on those of a GPU, which ranks may share.
"""

import importlib.util
import os
import textwrap
import unittest

from support import preload, run_processes

HAS_TORCH = importlib.util.find_spec("torch") is not None
preload("torch", "torch._inductor.compile_fx", "torch.distributed")
LIMIT = 300  # seconds; compilers are at work
ON_CUDA = os.environ.get("MSCCLPP_TEST_DEVICE") == "cuda"

# Experts are vectors by which rows are multiplied. Numbers are small, so that float32 is exact.
START = """
import os, torch, torch.distributed as dist
import mscclpp
from mscclpp import expert_ops
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
device = os.environ.get("MSCCLPP_TEST_DEVICE", "cpu")
if device == "cuda":
    torch.cuda.set_device(rank % torch.cuda.device_count())
dist.init_process_group("gloo")
group = mscclpp.CommGroup(torch_group=dist.group.WORLD)
EXPERTS, TOPK, TOKENS, HIDDEN = 5, 3, 6, 150
LOCAL = -(-EXPERTS // size)
LAYOUTS = {"packed": {}, "by fours": {"alignment": 4}, "padded": {"order": "padded"},
           "of seven": {"order": "padded", "rows_per_expert": 7 * size}}

def register(name, **more):
    limits = {"experts": EXPERTS, "topk": TOPK, "tokens": TOKENS, "hidden": HIDDEN, "dtype": "float32"}
    expert_ops.register(name, mscclpp.ExpertParallel(group, **{**limits, **more}))

class Case:
    def __init__(self, seed, repeat=False, dtype=torch.float32):
        random = torch.Generator().manual_seed(seed)
        def some(low, high, *shape):
            return torch.randint(low, high, shape, generator=random)
        self.x, self.indices, self.weights, self.of_y = [], [], [], []
        for of in range(size):
            tokens = TOKENS - of   # each rank has another number
            chosen = torch.stack([torch.randperm(EXPERTS, generator=random)[:TOPK] for _ in range(tokens)])
            if repeat:
                chosen = some(0, EXPERTS, tokens, TOPK)
            self.indices.append(torch.where(some(0, 5, tokens, TOPK) == 0, -1, chosen))
            self.x.append(some(-4, 5, tokens, HIDDEN).to(dtype))
            self.weights.append(some(1, 5, tokens, TOPK) / 4)
            self.of_y.append(some(-2, 3, tokens, HIDDEN).to(dtype))
        self.factors = some(-3, 4, EXPERTS, HIDDEN).to(dtype)

    def own(self):
        x, weights = (each[rank].clone().to(device).requires_grad_() for each in (self.x, self.weights))
        padded = torch.zeros(LOCAL * size, HIDDEN, dtype=self.factors.dtype)
        padded[:EXPERTS] = self.factors
        own = padded[rank * LOCAL : (rank + 1) * LOCAL].clone().to(device).requires_grad_()
        return x, self.indices[rank].to(device), weights, own

    def wanted(self, weighted=True, layers=1):
        # Of this rank: y, and the derivatives of x, weights and its own factors.
        xs, weights = ([each.clone().requires_grad_() for each in of] for of in (self.x, self.weights))
        factors = self.factors.clone().requires_grad_()
        loss, y = 0, None
        for of in range(size):
            y_of = xs[of]
            for _ in range(layers):
                there = (self.indices[of] >= 0).float().to(factors.dtype)
                if weighted:
                    there = there * weights[of].to(factors.dtype)
                of_experts = factors[self.indices[of].clamp(min=0)]
                y_of = (there.unsqueeze(-1) * of_experts * y_of.unsqueeze(1)).sum(1)
            loss = loss + (y_of * self.of_y[of]).sum()
            y = y_of.detach() if of == rank else y
        loss.backward()
        own = torch.zeros(LOCAL * size, HIDDEN, dtype=factors.dtype)
        own[:EXPERTS] = factors.grad
        return y, xs[rank].grad, weights[rank].grad, own[rank * LOCAL : (rank + 1) * LOCAL]

def layer(x, indices, weights, own, name, **how):
    batch = expert_ops.dispatch(x, indices, weights, experts=name, **how)
    if batch.rows.dim() == 3:
        results = batch.rows * own.unsqueeze(1)
    else:
        row = torch.arange(batch.rows.shape[0], dtype=torch.int32, device=x.device)
        results = batch.rows * own[torch.bucketize(row, batch.firsts, right=True) - 1]
    return expert_ops.combine(results, batch)

def same(what, ours, wanted):
    ours = [each.detach().cpu() for each in ours if each is not None]
    wanted = [each for each in wanted if each is not None]
    assert len(ours) == len(wanted), what
    for number, (one, other) in enumerate(zip(ours, wanted)):
        assert one.dtype == other.dtype and torch.equal(one, other), (what, rank, number, (one - other).abs().max())

def gradients(f, case, weighted=True):
    x, indices, weights, own = case.own()
    y = f(x, indices, weights if weighted else None, own)
    (y * case.of_y[rank].to(device)).sum().backward()
    return y, x.grad, weights.grad, own.grad

def refused(words, call, kinds=(ValueError, RuntimeError)):
    try:
        call()
    except kinds as error:
        assert words in str(error), error
    else:
        raise AssertionError("not refused: " + words)
"""


def run(code: str, ranks: int = 2, **environment: str) -> None:
    run_processes(START + textwrap.dedent(code), ranks, LIMIT, **environment)


@unittest.skipUnless(HAS_TORCH, "there is no PyTorch")
class Eager(unittest.TestCase):
    def test_results_and_derivatives(self):
        for ranks in (2, 3):
            run(
                """
                for parts in (False, True):
                    register(f"{parts}", part_of_each=parts)
                    for seed, (what, how) in enumerate(LAYOUTS.items()):
                        for weighted in (True, False):
                            for repeat in (False, True):
                                case = Case(seed, repeat)
                                ours = gradients(lambda *a: layer(*a, f"{parts}", **how), case, weighted)
                                same((what, parts, weighted, repeat), ours, case.wanted(weighted))
                """,
                ranks,
            )

    @unittest.skipIf(ON_CUDA, "nodes are simulated")
    def test_over_nodes(self):
        for node, ranks in (("1", 2), ("2", 4)):
            run(
                """
                for parts in (False, True):
                    register(f"{parts}", part_of_each=parts)
                    for seed, (what, how) in enumerate(LAYOUTS.items()):
                        case = Case(seed)
                        same((what, parts), gradients(lambda *a: layer(*a, f"{parts}", **how), case), case.wanted())
                """,
                ranks,
                MSCCLPP_SIM_DEVICES_PER_NODE=node,
            )

    def test_layers_that_share_their_memory(self):
        run(
            """
            register("shared")
            case = Case(7)
            def layers(x, indices, weights, own):
                return layer(layer(x, indices, weights, own, "shared"), indices, weights, own, "shared", alignment=2)
            same("two layers", gradients(layers, case), case.wanted(layers=2))
            from torch.utils.checkpoint import checkpoint
            def again(*arguments):
                return checkpoint(layers, *arguments, use_reentrant=False)
            same("made again", gradients(again, case), case.wanted(layers=2))
            """
        )

    def test_without_gradients(self):
        run(
            """
            register("plain", dtype="bfloat16", wire="int8")
            case = Case(3, dtype=torch.bfloat16)
            x, indices, weights, own = case.own()
            with torch.no_grad():
                batch = expert_ops.dispatch(x, indices, weights, experts="plain", room=40)
                assert batch.rows.dtype == torch.int8 and batch.rows.shape == (40, HIDDEN)
                assert batch.scales.shape == (40, 2) and batch.dropped is None
                counted = sum(((each // LOCAL == rank) & (each >= 0)).sum() for each in case.indices)
                assert batch.counts.sum() == counted
                values = batch.rows * batch.scales.repeat_interleave(128, 1)[:, :HIDDEN]
                y = expert_ops.combine(values.nan_to_num().bfloat16(), batch)
            there = torch.where(case.indices[rank] >= 0, case.weights[rank], 0).sum(1, keepdim=True)
            torch.testing.assert_close(y.cpu().float(), there * case.x[rank].float(), rtol=0.05, atol=0.1)
            without = expert_ops.dispatch(x.detach(), indices, experts="plain")
            assert without.row_weights is None and without.weights is None
            """
        )

    def test_rows_that_have_no_room(self):
        # y is linear in x, so the sums over all ranks of y * of_y and of x * of_x are equal.
        run(
            """
            register("narrow")
            case = Case(5)
            dropped = []
            def narrow(x, indices, weights, own):
                batch = expert_ops.dispatch(x, indices, weights, experts="narrow", room=9, drop=True)
                dropped.append(int(batch.dropped))
                return expert_ops.combine(batch.rows * 2, batch)
            x, indices, weights, own = case.own()
            y = narrow(x, indices, weights, own)
            of_y = case.of_y[rank].to(device)
            (y * of_y).sum().backward()
            sums = [(y * of_y).sum(), (x * x.grad).sum(), (weights * weights.grad).sum(), torch.tensor(float(dropped[0]))]
            sums = torch.stack([each.detach().cpu() for each in sums])
            dist.all_reduce(sums)
            assert sums[0] != 0 and (sums[:3] == sums[0]).all() and sums[3] > 0, sums
            """
        )

    def test_of_16_bits(self):
        run(
            """
            register("half", dtype="bfloat16")
            case = Case(9, dtype=torch.bfloat16)
            for ours, wanted in zip(gradients(lambda *a: layer(*a, "half"), case), case.wanted()):
                torch.testing.assert_close(ours.detach().cpu(), wanted, rtol=0.05, atol=0.5)
            """
        )


@unittest.skipUnless(HAS_TORCH, "there is no PyTorch")
class Wrong(unittest.TestCase):
    def test_what_is_wrong(self):
        run(
            """
            register("one")
            register("int8", dtype="bfloat16", wire="int8")
            case = Case(1)
            x, indices, weights, own = case.own()
            refused("one called 'one'", lambda: register("one"))
            refused("no ExpertParallel called 'two'", lambda: expert_ops.dispatch(x, indices, experts="two"))
            refused("no ExpertParallel called 'two'", lambda: expert_ops.unregister("two"))
            refused("order 'by_token'", lambda: expert_ops.dispatch(x, indices, experts="one", order="by_token"))
            refused("alignment 0", lambda: expert_ops.dispatch(x, indices, experts="one", alignment=0))
            refused("room for 3 rows", lambda: expert_ops.dispatch(x, indices, experts="one", order="padded", room=3))
            refused("indices of shape", lambda: expert_ops.dispatch(x, indices[:, :2], experts="one"))
            refused("x of float64", lambda: expert_ops.dispatch(x.double(), indices, experts="one"))
            refused("rows of int8 have no derivative",
                    lambda: expert_ops.dispatch(x.bfloat16(), indices, experts="int8"))
            # Derivatives must follow their batch.
            first = expert_ops.dispatch(x, indices, weights, experts="one")
            second = expert_ops.dispatch(x, indices.clone(), weights, experts="one")
            refused(f"rank {rank}: the last dispatch of 'one' was of another batch",
                    lambda: expert_ops.combine(first.rows, first))
            refused("of another batch", lambda: first.rows.sum().backward())
            third = expert_ops.dispatch(x, second.indices, weights * 2, experts="one")
            refused("copies of these indices and weights", lambda: expert_ops.combine(second.rows, second))
            y = expert_ops.combine(third.rows, third)
            refused("results of shape", lambda: expert_ops.combine(third.rows[:, :3], third))
            expert_ops.unregister("one")
            refused("no ExpertParallel called 'one'", lambda: expert_ops.dispatch(x, indices, experts="one"))
            """
        )


@unittest.skipUnless(HAS_TORCH, "there is no PyTorch")
class Compiled(unittest.TestCase):
    def test_checks_of_pytorch(self):
        run(
            """
            from torch.library import opcheck
            register("checked")
            x, indices, weights, own = Case(2).own()
            layout = ("checked", "packed", 1, -1, False)
            raw = torch.ops.mscclpp
            with torch.no_grad():
                rows = torch.empty_like(raw.expert_dispatch(x, indices, weights, *layout, True)[0])
            # That of a combine by itself would be of no batch.
            checks = ("test_schema", "test_faketensor", "test_autograd_registration")
            opcheck(raw.expert_dispatch.default, (x, indices, weights, *layout, True), test_utils=checks)
            opcheck(raw.expert_combine.default, (rows, indices, weights, *layout), test_utils=checks[2:])
            """
        )

    def test_programs_and_their_derivatives(self):
        run(
            """
            register("compiled")
            register("parts", part_of_each=True)
            for seed, (what, how) in enumerate(LAYOUTS.items()):
                def program(x, indices, weights, own, how=how):
                    y = layer(x * 2, indices, weights, own, "compiled", **how)
                    return layer(y, indices, weights, own, "parts", **how) / 2
                torch._dynamo.reset()
                # The compiler of C++ once: what it makes of them is the same.
                backend = "inductor" if what == "by fours" else "aot_eager"
                compiled = torch.compile(program, fullgraph=True, backend=backend)
                for again in range(2):
                    case = Case(seed + again)
                    same((what, again), gradients(compiled, case), case.wanted(layers=2))
            """
        )


if __name__ == "__main__":
    unittest.main()
