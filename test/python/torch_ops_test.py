# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""torch.ops.mscclpp: each call beside what all ranks' tensors give in rank order, in eager and compiled programs.

On tensors of the CPU, by the simulated machine; with MSCCLPP_TEST_DEVICE=cuda on those of a GPU, which ranks may share.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import textwrap
import unittest

from support import preload, run_processes

HAS_TORCH = importlib.util.find_spec("torch") is not None
preload("torch", "torch._inductor.compile_fx", "torch.utils.cpp_extension")
LIMIT = 300  # seconds; compilers are at work
ON_CUDA = os.environ.get("MSCCLPP_TEST_DEVICE") == "cuda"

START = """
import os, sys, torch, torch.distributed as dist
from datetime import timedelta
import mscclpp, mscclpp.ops as ops, mscclpp.torch
mscclpp.torch.register()
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
device = os.environ.get("MSCCLPP_TEST_DEVICE", "cpu")
raw = torch.ops.mscclpp
if device == "cuda":
    torch.cuda.set_device(rank % torch.cuda.device_count())
def start():
    dist.init_process_group("mscclpp", timeout=timedelta(seconds=30))
    return dist.new_group(backend="gloo")
def here(tensor):
    return tensor.to(device)
def same(ours, expected):
    ours = ours.detach().cpu()
    assert ours.dtype == expected.dtype and ours.shape == expected.shape, (ours.dtype, ours.shape, expected.shape)
    return torch.equal(ours.contiguous().view(torch.uint8), expected.contiguous().view(torch.uint8))
def ramp(count, dtype=torch.float32, of=None, seed=0):
    of = rank if of is None else of
    values = (torch.arange(count) * 7 + of * 3 + seed) % 11 + 1
    return (values / 3).to(dtype) if dtype.is_floating_point else values.to(dtype)
def everyone(make):
    return [make(of) for of in range(size)]
def combined(parts, op):
    dtype = parts[0].dtype
    wide = torch.float32 if dtype.is_floating_point and dtype != torch.float64 else dtype
    total = parts[0].to(wide)
    how = {"sum": torch.add, "avg": torch.add, "min": torch.minimum, "max": torch.maximum, "product": torch.mul}[op]
    for part in parts[1:]:
        total = how(total, part.to(wide))
    if op == "avg":
        total = total / size if dtype.is_floating_point else total // size
    return total.to(dtype)
def refused(words, call, kinds=(ValueError, RuntimeError)):
    try:
        call()
    except kinds as error:
        assert words in str(error), error
    else:
        raise AssertionError("not refused: " + words)
"""


def run(code: str, ranks: int = 3, group: bool = True, **environment: str) -> list[str]:
    body = textwrap.dedent(code)
    begin = "gloo = start()\nname = dist.group.WORLD.group_name\n"
    whole = begin + body + "\ndist.barrier()\ndist.destroy_process_group()\n" if group else body
    return run_processes(START + whole, ranks, LIMIT, **environment)


def on_tearing_links(code: str) -> None:
    """results(call): of call(group) on two simulated ranks whose links tear lines, in groups named by their ranks."""
    if ON_CUDA:
        raise unittest.SkipTest("the package for this device need not simulate")
    begin = """
import tempfile
source = tempfile.NamedTemporaryFile("w", suffix=".cpp")
source.write('#include <pybind11/pybind11.h>\\n#include "mscclpp/sim/runtime.hpp"\\n'
             'PYBIND11_MODULE(tearing, module) { module.def("install", [] {'
             ' mscclpp::sim::install({.devices = 2, .linesArriveWhole = false}); }); }')
source.flush()
mscclpp.compile_native("tearing", source.name).install()
def results(call):
    def main(group):
        name = str(group.my_rank)
        ops.register_group(name, group)
        result = call(group)
        group.barrier()
        ops.unregister_group(name)
        return result
    return mscclpp.run_ranks(2, main, device="sim")
"""
    run(begin + code, ranks=1, group=False, MSCCLPP_DEVICE="sim", MSCCLPP_TEST_DEVICE="cpu")


@unittest.skipUnless(HAS_TORCH, "there is no PyTorch")
class Calls(unittest.TestCase):
    def test_each_beside_rank_order(self):
        run(
            """
            types = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.int8,
                     torch.uint8]
            for dtype in types:
                for op in ("sum", "avg", "min", "max", "product"):
                    if op == "avg" and dtype in (torch.int8, torch.uint8):
                        continue
                    parts = everyone(lambda of: ramp(99, dtype, of))
                    total = combined(parts, op)
                    x = here(parts[rank])
                    assert same(ops.all_reduce(x, op), total), (dtype, op)
                    assert same(x, parts[rank])
                    own = ops.reduce_scatter(x, op)
                    assert same(own, total.chunk(size)[rank]), (dtype, op)
                    assert ops.all_reduce_(x, op) is x
                    assert same(x, total), (dtype, op)
            for dtype in (torch.bfloat16, torch.int16, torch.bool, torch.complex64, torch.float8_e4m3fn):
                for shape in ((size * 2, 5), (size,), (0, 3), (size * 70, 31)):
                    count = torch.Size(shape).numel()
                    kind = torch.float32 if dtype.is_complex else torch.uint8 if dtype == torch.bool else dtype
                    parts = everyone(lambda of: ramp(count, kind, of).reshape(shape).to(dtype))
                    x = here(parts[rank])
                    assert same(ops.all_gather(x), torch.cat(parts)), (dtype, shape)
                    assert same(ops.all_to_all(x), torch.cat([part.reshape(size, -1)[rank] for part in parts]).reshape(shape))
                    for root in range(size):
                        y = x.clone()
                        assert same(ops.broadcast(y, root), parts[root]) and same(y, parts[rank])
                        assert same(ops.broadcast_(y, root), parts[root])
            large = everyone(lambda of: ramp(70001, torch.float32, of))
            assert same(ops.all_reduce(here(large[rank])), combined(large, "sum"))
            """
        )

    def test_messages(self):
        run(
            """
            after, before = (rank + 1) % size, (rank - 1) % size
            for count in (1, 1000, 300000):
                x, want = here(ramp(count)), ramp(count, of=before)
                def send():
                    ops.send(x, after)
                def receive():
                    return ops.recv(x, before), ops.recv_(torch.empty_like(x), before)
                # A message waits for the other rank.
                if rank == 0:
                    send(); send(); got = receive()
                else:
                    got = receive(); send(); send()
                assert all(same(each, want) for each in got), count
            """
        )

    def test_fused(self):
        run(
            """
            def expected(parts, op, scale, residual, dtype):
                total = combined(parts, op)
                wide = torch.float64 if total.dtype == torch.float64 else torch.float32
                result = total.to(wide) * scale
                return (result if residual is None else result + residual.to(wide)).to(dtype)
            def close(ours, want):
                if device == "cpu":
                    return same(ours, want)
                # There the product and the sum are one operation.
                near = 2.0 ** -2 if want.itemsize == 1 else 2.0 ** -6
                return torch.allclose(ours.cpu().double(), want.double(), rtol=near)
            cases = [(torch.float32, torch.float32), (torch.bfloat16, torch.bfloat16), (torch.float16, torch.float32),
                     (torch.float32, torch.bfloat16), (torch.bfloat16, torch.float8_e4m3fn),
                     (torch.float64, torch.float32)]
            for dtype, out in cases:
                # Of each way that the library has for a size; each takes a kernel of its own, hence few on the CPU.
                more = (60001, 1500001) if device == "cuda" else (20001, 270001)
                if device != "cuda" and (dtype, out) not in cases[1:3]:
                    more = more[:1] if dtype != out else ()
                for count in (1, 37, 2000, *more):
                    parts = everyone(lambda of: ramp(count, dtype, of))
                    x = here(parts[rank])
                    r = ramp(count, torch.bfloat16 if out == torch.bfloat16 else dtype, seed=5)
                    got = ops.fused_all_reduce(x, scale=0.375, residual=here(r), dtype=out)
                    assert close(got, expected(parts, "sum", 0.375, r, out)), (dtype, out, count)
                    assert same(x, parts[rank])
            parts = everyone(lambda of: ramp(555, torch.bfloat16, of).reshape(5, 111))
            x, wide = here(parts[rank]), ramp(555).reshape(5, 111)
            for op in ("avg", "max"):
                assert close(ops.fused_all_reduce(x, op), expected(parts, op, 1.0, None, torch.bfloat16)), op
            many = everyone(lambda of: ramp(17001, torch.bfloat16, of))
            assert close(ops.fused_all_reduce(here(many[rank]), "max"), expected(many, "max", 1.0, None, torch.bfloat16))
            got = ops.fused_all_reduce(x, residual=here(wide), dtype=torch.float32)
            assert close(got, expected(parts, "sum", 1.0, wide, torch.float32))
            """
        )

    def test_fused_where_links_tear_lines(self):
        """Where packets of whole lines do not arrive as such, as over PCIe, other ways are taken."""
        on_tearing_links(
            """
x = ramp(20001, torch.bfloat16)
def call(group):
    x_here = x * (group.my_rank + 1)
    return ops.fused_all_reduce(x_here, group=str(group.my_rank), scale=0.5, residual=x, dtype=torch.float32)
want = (x.float() + (x * 2).float()).bfloat16().float() * 0.5 + x.float()
assert all(same(result, want) for result in results(call))
"""
        )

    def test_what_is_wrong(self):
        run(
            """
            x = here(ramp(6))
            refused("there is no group named \\"nobody\\"", lambda: ops.all_reduce(x, group="nobody"))
            if device == "cpu":
                refused("backend for them is gloo", lambda: ops.all_reduce(x, group=gloo))
            refused("there is no operation \\"xor\\"", lambda: ops.all_reduce(x, "xor"))
            refused("cannot be combined", lambda: ops.all_reduce(x.to(torch.int16)))
            turned = x.reshape(2, 3).t()
            refused("rank %d: a tensor of shape [3, 2] is not contiguous" % rank, lambda: ops.all_gather(turned))
            refused("dimension 0 of shape [7] does not divide by 3 ranks", lambda: ops.reduce_scatter(here(ramp(7))))
            refused("dimension 0 of shape [4, 2]", lambda: ops.all_to_all(here(ramp(8).reshape(4, 2))))
            refused("without dimensions", lambda: ops.all_gather(here(torch.tensor(1.0))))
            refused("there is no rank 3; there are ranks 0 to 2", lambda: ops.broadcast_(x, 3))
            refused("there is no rank -1", lambda: ops.send(x, -1))
            refused("of shape [3] for an input of shape [6]", lambda: ops.fused_all_reduce(x, residual=here(ramp(3))))
            refused("the type of the input", lambda: ops.fused_all_reduce(x, residual=here(ramp(6, torch.float64))))
            refused("floating numbers", lambda: ops.fused_all_reduce(here(ramp(6, torch.int32))))
            refused("floating numbers", lambda: ops.fused_all_reduce(x, dtype=torch.int32))
            refused("have no derivative", lambda: ops.all_reduce_(here(ramp(6)).requires_grad_().clone()))
            if device == "cuda":
                refused("there is no group named", lambda: ops.all_reduce(x, group="cpu"))
                refused("CUDA and of the CPU", lambda: ops.fused_all_reduce(x, residual=ramp(6)))
            # None of it has harmed the group.
            assert same(ops.all_reduce(x), combined(everyone(lambda of: ramp(6, of=of)), "sum"))
            """
        )

    def test_groups(self):
        run(
            """
            x = here(torch.full((5,), float(rank + 1)))
            pair = dist.new_group([0, 2])
            if rank != 1:
                assert (ops.all_reduce(x, group=pair) == 4).all()
                assert (ops.all_gather(x, pair.group_name)[5:] == 3).all()
            dist.all_reduce(x)
            assert (ops.all_reduce(x) == 18).all()   # calls of the backend and these, in one order
            if rank != 1:
                ended = pair.group_name
                dist.destroy_process_group(pair)
                refused("there is no group named", lambda: ops.all_reduce(x, group=ended))
            dist.destroy_process_group()
            refused("there is no default process group", lambda: ops.all_reduce(x))
            refused("there is no group named", lambda: ops.all_reduce(x, group=name))
            os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 1)
            start()
            assert dist.group.WORLD.group_name == name
            assert (ops.all_reduce(here(torch.ones(3))) == size).all()
            """
        )

    def test_a_group_without_torch_distributed(self):
        run(
            """
            group = mscclpp.CommGroup(device="cuda:%d" % torch.cuda.current_device() if device == "cuda" else None)
            ops.register_group("mine", group)
            refused("named \\"mine\\" for", lambda: ops.register_group("mine", group))
            total = combined(everyone(lambda of: ramp(100, of=of)), "sum")
            assert same(ops.all_reduce(here(ramp(100)), group="mine"), total)
            compiled = torch.compile(lambda x: ops.all_gather(x + 1, "mine").sum(), fullgraph=True)
            assert compiled(here(torch.ones(4))).item() == 8 * size
            group.barrier()
            ops.unregister_group("mine")
            refused("no group was registered", lambda: ops.unregister_group("mine"))
            refused("there is no group named \\"mine\\"", lambda: ops.all_reduce(here(ramp(3)), group="mine"))
            """,
            group=False,
        )

    def test_streams_of_several_threads(self):
        run(
            """
            import contextlib, threading
            on_cuda = device == "cuda"
            pair = [dist.new_group(), dist.new_group()]
            for group in pair:
                ops.all_reduce(here(ramp(4)), group=group)
            results = [None, None]
            def calls(which):   # each in a stream of its own: in one they would have to come in one order on all ranks
                with torch.cuda.stream(torch.cuda.Stream()) if on_cuda else contextlib.nullcontext():
                    x = here(ramp(3000, seed=which))
                    for _ in range(10):
                        results[which] = ops.all_reduce(x, group=pair[which])
                    if on_cuda: torch.cuda.current_stream().synchronize()
            threads = [threading.Thread(target=calls, args=(which,)) for which in range(2)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
            for which in range(2):
                assert same(results[which], combined(everyone(lambda of: ramp(3000, of=of, seed=which)), "sum"))
            """
        )


# What all_reduce_rms_norm() gives; `rounded`: behind an all-reduce of its own.
NORM = """
def normed(parts, weight, residual, eps=1e-6, rounded=False):
    dtype = parts[0].dtype
    new = parts[0].float()
    for part in parts[1:]:
        new = new + part.float()
    if rounded:
        new = new.to(dtype).float()
    if residual is not None:
        new = new + residual.float()
    y = new * (new.square().mean(-1, keepdim=True) + eps).rsqrt() * weight.float()
    return y.to(dtype), new.to(dtype)
def check_norm(dtype, shape, residual=True, eps=1e-6, rounded=False, lead=0):
    count = torch.Size(shape).numel()
    def tensor(of=0, seed=0):   # `lead`: elements ahead of it, so that it lies otherwise
        return ramp(lead + count, dtype, of, seed)[lead:].reshape(shape)
    parts = everyone(tensor)
    r = tensor(seed=5) if residual else None
    weight = ramp(shape[-1], dtype, of=0, seed=2)
    there = here(ramp(lead + count, dtype))[lead:].reshape(shape)
    kept = None if r is None else here(r)
    y, new = ops.all_reduce_rms_norm(there, here(weight), kept, eps)
    want_y, want_new = normed(parts, weight, r, eps, rounded)
    assert same(new, want_new), (dtype, shape, residual, "the new residual")
    near = {torch.float32: 2.0 ** -18, torch.float16: 2.0 ** -10, torch.bfloat16: 2.0 ** -7}[dtype]
    assert y.dtype == dtype and y.shape == want_y.shape
    assert torch.allclose(y.cpu().double(), want_y.double(), rtol=near, atol=0), (dtype, shape, residual)
    assert same(there, parts[rank]) and (r is None or same(kept, r))
"""


@unittest.skipUnless(HAS_TORCH, "there is no PyTorch")
class Norm(unittest.TestCase):
    def test_shapes_and_types(self):
        for ranks in (1, 2, 3):
            with self.subTest(ranks=ranks):
                run(
                    NORM
                    + """
for shape in ((3, 64), (1, 1), (5, 111), (2, 3, 40), (7,), (1, 4096), (0, 16), (4, 0)):
    check_norm(torch.bfloat16, shape)
for dtype in (torch.float16, torch.float32):
    for shape in ((3, 64), (5, 111)):
        check_norm(dtype, shape)
check_norm(torch.bfloat16, (5, 111), residual=False, eps=0.5)
check_norm(torch.float32, (2, 96), residual=False)
check_norm(torch.bfloat16, (4, 64), lead=1)
""",
                    ranks=ranks,
                )

    def test_many_and_long_rows(self):
        """More rows than one exchange takes; rows of more than a thread's two payloads, and of more than a block has."""
        run(
            NORM
            + """
check_norm(torch.bfloat16, (300, 17), rounded=True)
# Several times what a grid has blocks; one simulated row takes a millisecond.
check_norm(torch.bfloat16, (70000 if device == "cuda" else 3000, 1), rounded=True)
check_norm(torch.bfloat16, (3, 12001))
check_norm(torch.bfloat16, (2, 40001), rounded=True)
check_norm(torch.bfloat16, (2, 40001), residual=False, rounded=True)
for _ in range(20):   # rounds of one team, with grids of any size
    check_norm(torch.bfloat16, (3, 64))
    check_norm(torch.bfloat16, (40, 64))
""",
            ranks=2,
        )

    def test_where_links_tear_lines(self):
        on_tearing_links(
            NORM
            + """
x, r = ramp(3 * 12001, torch.bfloat16).reshape(3, 12001), ramp(3 * 12001, torch.bfloat16, seed=5).reshape(3, 12001)
def call(group, part):
    return ops.all_reduce_rms_norm(x[:, part] * (group.my_rank + 1), x[0, part], r[:, part].contiguous(), group=str(group.my_rank))
for part in (slice(0, 1000), slice(None)):
    want, new = normed([x[:, part], x[:, part] * 2], x[0, part], r[:, part])
    for got in results(lambda group: call(group, part)):
        assert same(got[1], new) and torch.allclose(got[0].float(), want.float(), rtol=2.0 ** -7)
"""
        )

    def test_what_is_wrong(self):
        run(
            """
            x, w = here(ramp(12).reshape(3, 4)), here(ramp(4))
            norm = ops.all_reduce_rms_norm
            refused("rank %d: a weight of shape [3] for rows of 4 elements" % rank, lambda: norm(x, w[:3]))
            refused("a weight of shape [2, 2]", lambda: norm(x, w.reshape(2, 2)))
            refused("the weight has the type of the input", lambda: norm(x, w.half()))
            refused("a residual of shape [4, 3] for an input of shape [3, 4]", lambda: norm(x, w, x.reshape(4, 3)))
            refused("the residual has the type", lambda: norm(x, w, x.bfloat16()))
            refused("there are float16, bfloat16 and float32", lambda: norm(x.double(), w.double()))
            refused("there are float16", lambda: norm(x.int(), w.int()))
            refused("rank %d: a tensor of shape [4, 3] is not contiguous" % rank, lambda: norm(x.t(), w[:3]))
            refused("without dimensions", lambda: norm(here(torch.tensor(1.0)), w))
            refused("eps of -1; it is 0 or more", lambda: norm(x, w, eps=-1.0))
            refused("there is no group named", lambda: norm(x, w, group="nobody"))
            if device == "cuda":
                refused("CUDA and of the CPU", lambda: norm(x, w.cpu()))
            assert same(norm(x, w)[1], combined(everyone(lambda of: ramp(12, of=of).reshape(3, 4)), "sum"))
            """
        )

    def test_compiled(self):
        run(
            """
            from torch.library import opcheck
            def x(*shape):
                return here(torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape)).requires_grad_()
            opcheck(raw.all_reduce_rms_norm.default, (x(3, 4), x(4), name, x(3, 4), 1e-5))
            opcheck(raw.all_reduce_rms_norm.default, (x(3, 4), x(4), name))
            def layer(x, w, r):
                y, r = ops.all_reduce_rms_norm(x, w, r)
                y, r = ops.all_reduce_rms_norm(y * 2, w, r, eps=1e-5)
                return ops.all_reduce(y), r
            compiled = torch.compile(layer, fullgraph=True)
            for rows in (3, 3, 5):
                inputs = [here(ramp(count).reshape(shape)) for count, shape in ((rows * 8, (rows, 8)), (8, (8,)))]
                inputs.append(here(ramp(rows * 8, of=0, seed=3).reshape(rows, 8)))
                for ours, eager in zip(compiled(*inputs), layer(*inputs)):
                    assert same(ours, eager.cpu())
            """
        )

    def test_derivatives(self):
        run(
            """
            def fused(x, w, r):
                return ops.all_reduce_rms_norm(x, w, r, eps=1e-3)
            def steps(x, w, r):
                new = ops.all_reduce(x) if r is None else ops.all_reduce(x) + r
                return torch.nn.functional.rms_norm(new, w.shape, w, 1e-3), new
            def gradients(f, *inputs):
                leaves = [None if t is None else t.clone().requires_grad_() for t in inputs]
                for result, factor in zip(f(*leaves), (1, 2)):
                    weights = torch.arange(1, result.numel() + 1, device=device).reshape(result.shape)
                    (result * weights * factor * (rank + 1)).sum().backward(retain_graph=True)
                return [t.grad.cpu() for t in leaves if t is not None]
            x, w, r = here(ramp(15).reshape(3, 5)), here(ramp(5, of=0)), here(ramp(15, of=0, seed=4).reshape(3, 5))
            for inputs in ((x, w, r), (x, w, None), (x[0], w, r[0])):
                want = gradients(steps, *inputs)
                for f in (fused, torch.compile(fused, fullgraph=True, backend="aot_eager")):
                    for got, expected in zip(gradients(f, *inputs), want):
                        assert torch.allclose(got, expected, rtol=1e-4, atol=1e-4), (got, expected)
            """
        )


@unittest.skipUnless(HAS_TORCH, "there is no PyTorch")
class Compiled(unittest.TestCase):
    def test_checks_of_pytorch(self):
        run(
            """
            from torch.library import opcheck
            def x(*shape):
                return here(torch.arange(float(torch.Size(shape).numel())).reshape(shape)).requires_grad_()
            opcheck(raw.all_reduce.default, (x(6), "sum", name))
            opcheck(raw.fused_all_reduce.default, (x(6), "sum", name, 0.5, x(6)))
            opcheck(raw.all_gather.default, (x(2, 3), name))
            opcheck(raw.reduce_scatter.default, (x(6), "avg", name))
            opcheck(raw.all_to_all.default, (x(3, 2), name))
            opcheck(raw.broadcast.default, (x(4), 1, name))
            opcheck(raw.all_reduce_.default, (x(6).detach(), "sum", name))
            opcheck(raw.broadcast_.default, (x(6).detach(), 2, name))
            """,
        )

    def test_fullgraph(self):
        run(
            """
            def layer(x, w, r):
                y = ops.all_reduce(x @ w)
                z = ops.fused_all_reduce(y, scale=0.5, residual=r, dtype=torch.float32)
                own = ops.reduce_scatter(z, "avg")
                ops.all_reduce_(own.mul_(2), "max")
                return ops.all_to_all(ops.all_gather(own).relu())
            torch.manual_seed(rank)
            x, w, r = (here(torch.randint(-4, 5, shape).float()) for shape in ((6, 8), (8, 4), (6, 4)))
            compiled = torch.compile(layer, fullgraph=True)
            for _ in range(3):
                assert same(compiled(x, w, r), layer(x, w, r).cpu())
            more = here(torch.randint(-4, 5, (9, 8)).float())
            assert same(compiled(more, w, here(torch.ones(9, 4))), layer(more, w, here(torch.ones(9, 4))).cpu())
            # The operators themselves, in place.
            @torch.compile(fullgraph=True)
            def changed(x):
                y = x + 1
                raw.all_reduce_(y, "sum", name)
                return y * 2
            assert (changed(here(torch.ones(4))) == 4 * size).all()
            """
        )

    def test_ranks_whose_programs_differ_keep_the_order(self):
        run(
            """
            # Results are used in another order than they are asked for, and by each rank otherwise.
            def program(x, big):
                a = ops.all_reduce(x)
                b = ops.all_gather(big)
                if rank % 2 == 0:
                    ops.send(x + 5, (rank + 1) % 2) if rank < 2 else None
                    c = ops.reduce_scatter(big * 2)
                    return c.sum() + b.sum() + a.sum(), a
                extra = (big.sin() * 0).sum()
                got = ops.recv(x, 0)
                unused = ops.reduce_scatter(big * 2)
                return b.sum() + extra + got.sum() * 0, a
            # What is kept is not asked for how operators are registered.
            torch.compiler.config.force_disable_caches = True
            compiled = torch.compile(program, fullgraph=True)
            for _ in range(4):
                x = here(torch.ones(6))
                result, a = compiled(x, here(torch.ones(300, 3)))
                assert (a == size).all() and result.item() > 0
            """
        )

    def test_derivatives(self):
        run(
            """
            def loss_of(y):
                weights = torch.arange(1, y.numel() + 1, device=y.device, dtype=y.dtype).reshape(y.shape) * (rank + 1)
                return (y * weights).sum()
            def gradient(f, x, *more):
                x = x.clone().requires_grad_()
                loss_of(f(x, *more)).backward()
                return x.grad.cpu()
            x = torch.arange(1.0, 7.0)
            sum_of_ranks = size * (size + 1) / 2
            every = {
                "all_reduce": (lambda x: ops.all_reduce(x), x * sum_of_ranks),
                "avg": (lambda x: ops.all_reduce(x, "avg"), x * sum_of_ranks / size),
                "fused": (lambda x: ops.fused_all_reduce(x, scale=0.5, residual=x), x * (sum_of_ranks * 0.5 + rank + 1)),
                "all_gather": (lambda x: ops.all_gather(x), (x + 6 * rank) * sum_of_ranks),
                "reduce_scatter": (lambda x: ops.reduce_scatter(x), torch.cat([x[:2] * (of + 1) for of in range(size)])),
                "all_to_all": (lambda x: ops.all_to_all(x),
                               torch.cat([(x[:2] + 2 * rank) * (of + 1) for of in range(size)])),
                "broadcast": (lambda x: ops.broadcast(x, 1), x * sum_of_ranks if rank == 1 else x * 0),
            }
            for what, (f, want) in every.items():
                assert torch.allclose(gradient(f, here(x)), want), (what, gradient(f, here(x)), want)
                compiled = torch.compile(f, fullgraph=True, backend="aot_eager")
                assert torch.allclose(gradient(compiled, here(x)), want), ("compiled", what)
            y = here(x).requires_grad_()
            refused("there is no derivative of max", lambda: ops.all_reduce(y, "max").sum().backward())
            """
        )


@unittest.skipUnless(HAS_TORCH, "there is no PyTorch")
class Library(unittest.TestCase):
    def test_it_is_made_of_the_stable_interface_alone(self):
        """So that it fits every PyTorch from 2.10 on."""
        code = "import mscclpp.ops; print(mscclpp.ops._library())"
        asked = {"capture_output": True, "text": True, "timeout": LIMIT, "check": True}
        path = subprocess.run([sys.executable, "-B", "-c", code], **asked)
        nm = shutil.which("nm")
        if nm is None:
            self.skipTest("there is no nm")
        said = subprocess.run([nm, "-DC", "--undefined-only", path.stdout.strip()], **asked)
        names = [line.split(None, 1)[1] for line in said.stdout.splitlines()]
        of_torch = [name for name in names if "torch" in name and not name.startswith("mscclpp::")]
        self.assertIn("torch_library_impl", of_torch)
        strange = [name for name in of_torch if not name.startswith(("aoti_torch_", "torch_"))]
        strange += [name for name in names if "at::" in name or "c10::" in name]
        self.assertEqual(strange, [])


@unittest.skipUnless(HAS_TORCH and ON_CUDA, "tensors of a GPU are tested with MSCCLPP_TEST_DEVICE=cuda")
class OnCuda(unittest.TestCase):
    def test_graphs_and_streams(self):
        run(
            """
            x, r = here(torch.zeros(5000, dtype=torch.bfloat16)), here(torch.ones(5000, dtype=torch.bfloat16))
            def step():
                y = ops.all_reduce(x)
                z = ops.fused_all_reduce(y, scale=0.5, residual=r, dtype=torch.float32)
                return ops.all_gather(z)
            step()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out = step()
            for turn in range(100):
                x.fill_(turn % 7)
                graph.replay()
                eager = step()
                torch.cuda.synchronize()
                want = size * size * (turn % 7) * 0.5 + 1
                assert (out == want).all() and (eager == want).all(), (turn, out[0].item(), eager[0].item(), want)
            side = torch.cuda.Stream()
            for turn in range(20):
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    y = ops.all_reduce(x + turn)
                torch.cuda.current_stream().wait_stream(side)
                z = ops.all_reduce(y)
                assert (z == size * size * (x + turn)).all()
            few, many = (here(torch.ones(rows, 64, dtype=torch.bfloat16)) for rows in (3, 400))
            w = here(torch.ones(64, dtype=torch.bfloat16))
            def norms():
                y, r = ops.all_reduce_rms_norm(few, w, few)
                for _ in range(3):
                    y, r = ops.all_reduce_rms_norm(y, w, r)
                return y, r, *ops.all_reduce_rms_norm(many, w)
            norms()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out = norms()
            for turn in range(50):
                few.fill_(turn % 5)
                graph.replay()
                eager = norms()
                torch.cuda.synchronize()
                assert all(same(ours, want.cpu()) for ours, want in zip(out, eager)), turn
            compiled = torch.compile(lambda x: ops.all_reduce(x * 2) + 1, fullgraph=True, mode="reduce-overhead")
            for turn in range(5):
                torch.compiler.cudagraph_mark_step_begin()
                assert (compiled(here(torch.full((64,), float(turn)))) == 2 * size * turn + 1).all()
            """
        )


if __name__ == "__main__":
    unittest.main()
