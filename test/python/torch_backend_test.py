# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""torch.distributed over the backend: each call beside gloo's of the same tensors, and training.

On tensors of the CPU, by the simulated machine; with MSCCLPP_TEST_DEVICE=cuda on those of a GPU, which ranks may share.
"""

import importlib.util
import os
import signal
import unittest

from support import finish, run_processes, start_ranks

HAS_TORCH = importlib.util.find_spec("torch") is not None

START = """
import os, torch, torch.distributed as dist
from datetime import timedelta
import mscclpp.torch
mscclpp.torch.register()
dist.init_process_group("mscclpp", timeout=timedelta(seconds=30))
rank, size = dist.get_rank(), dist.get_world_size()
gloo = dist.new_group(backend="gloo")
device = os.environ.get("MSCCLPP_TEST_DEVICE", "cpu")
def here(*tensors):
    moved = [each.to(device) for each in tensors]
    return moved[0] if len(moved) == 1 else moved
def zeros(*shape):
    return torch.zeros(*shape, device=device)
def same(ours, theirs):
    return torch.equal(ours.cpu(), theirs.cpu())
def ramp(count, dtype=torch.float32, seed=0):
    return ((torch.arange(count) * 7 + rank * 3 + seed) % 11 + 1).to(dtype)
"""


def run(code: str, ranks: int = 3, **environment: str) -> list[str]:
    lines = code.splitlines()
    indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    body = "\n".join(line[indent:] for line in lines)
    return run_processes(START + body + "\ndist.barrier()\ndist.destroy_process_group()\n", ranks, **environment)


@unittest.skipUnless(HAS_TORCH, "there is no PyTorch")
class Calls(unittest.TestCase):
    def test_collectives_beside_gloo(self):
        run(
            """
            ops = [dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX]
            for dtype in (torch.float32, torch.float64, torch.int32, torch.int64, torch.int8, torch.uint8, torch.float16):
                for op in ops:
                    ours, theirs = here(ramp(1001, dtype)), ramp(1001, dtype)
                    dist.all_reduce(ours, op)
                    dist.all_reduce(theirs, op, group=gloo)
                    assert same(ours, theirs), (dtype, op)
            for shape in ((5, 4), (1,), (0,), (3, 1, 2)):
                count = torch.Size(shape).numel()
                own_x = ramp(count).reshape(shape)
                x = here(own_x)
                ours, theirs = [zeros(shape) for _ in range(size)], [torch.zeros(shape) for _ in range(size)]
                dist.all_gather(ours, x)
                dist.all_gather(theirs, own_x, group=gloo)
                assert all(map(same, ours, theirs)), shape
                whole = zeros((size * shape[0], *shape[1:]))
                dist.all_gather_into_tensor(whole, x)
                assert same(whole, torch.cat(theirs)), shape
                for root in range(size):
                    ours, theirs = x.clone(), own_x.clone()
                    dist.broadcast(ours, root)
                    dist.broadcast(theirs, root, group=gloo)
                    assert same(ours, theirs)
                    ours, theirs = x.clone(), own_x.clone()
                    dist.reduce(ours, root)
                    dist.reduce(theirs, root, group=gloo)
                    assert rank != root or same(ours, theirs)
                    parts = [zeros(shape) for _ in range(size)] if rank == root else None
                    dist.gather(x, parts, root)
                    assert rank != root or same(torch.cat(parts), whole)
                    own = zeros(shape)
                    dist.scatter(own, [x + i for i in range(size)] if rank == root else None, root)
                    sent = [zeros(shape) for _ in range(size)]
                    dist.all_gather(sent, x)
                    assert same(own, sent[root] + rank)
            total = ramp(size * 6).reshape(size * 2, 3)
            x, own = here(total), zeros(2, 3)
            dist.reduce_scatter_tensor(own, x)
            total = total.clone()
            dist.all_reduce(total, group=gloo)
            assert same(own, total[rank * 2 : rank * 2 + 2])
            own.zero_()
            dist.reduce_scatter(own, list(x.chunk(size)))
            assert same(own, total[rank * 2 : rank * 2 + 2])
            average = x.clone()
            dist.all_reduce(average, dist.ReduceOp.AVG)
            assert torch.allclose(average.cpu(), total / size)
            flag = here(torch.tensor([rank == 1, False, True]))
            dist.all_reduce(flag)
            assert flag.tolist() == [True, False, True]
            z = torch.complex(ramp(5), ramp(5, seed=1))
            mine, theirs = here(z.clone()), z.clone()
            dist.all_reduce(mine)
            dist.all_reduce(theirs, group=gloo)
            assert same(mine, theirs)
            """
        )

    def test_all_to_all_and_messages(self):
        run(
            """
            x = here(ramp(size * 4) + 100 * rank)
            out = zeros(size * 4)
            dist.all_to_all_single(out, x)
            lists = [zeros(size * 4) for _ in range(size)]
            dist.all_gather(lists, x)
            assert same(out, torch.cat([each.reshape(size, 4)[rank] for each in lists]))
            splits = [i + rank + 1 for i in range(size)]
            inputs = here(torch.full((sum(splits), 2), float(rank)))
            from_each = [rank + peer + 1 for peer in range(size)]
            received = zeros(sum(from_each), 2)
            dist.all_to_all_single(received, inputs, from_each, splits)
            assert same(received[:, 0], torch.cat([torch.full((n,), float(p)) for p, n in enumerate(from_each)]))
            outs = [zeros(2) for _ in range(size)]
            dist.all_to_all(outs, [here(torch.full((2,), 10.0 * rank + peer)) for peer in range(size)])
            assert [each[0].item() for each in outs] == [10.0 * peer + rank for peer in range(size)]
            after, before = (rank + 1) % size, (rank - 1) % size
            for count in (1, 1000, 200000):
                got = zeros(count)
                works = [dist.isend(here(ramp(count)), after), dist.irecv(got, before)]
                for work in works:
                    work.wait()
                want = ((torch.arange(count) * 7 + before * 3) % 11 + 1).float()
                assert same(got, want), count
                got.zero_()
                batch = [dist.P2POp(dist.isend, here(ramp(count)), after), dist.P2POp(dist.irecv, got, before)]
                for work in dist.batch_isend_irecv(batch):
                    work.wait()
                assert same(got, want), count
            things = [None] * size
            dist.all_gather_object(things, {"rank": rank})
            assert things == [{"rank": r} for r in range(size)]
            """
        )

    def test_works_futures_and_groups(self):
        run(
            """
            x = here(ramp(1000))
            work = dist.all_reduce(x, async_op=True)
            assert work.wait()
            if device == "cuda":
                torch.cuda.synchronize()
            assert work.is_completed()
            doubled = dist.all_reduce(x.clone(), async_op=True).get_future().then(lambda f: f.value()[0] * 2).wait()
            y = x.cpu().clone()
            dist.all_reduce(y, group=gloo)
            assert same(doubled, 2 * y)
            pair = dist.new_group([0, 2])
            if rank in (0, 2):
                z = here(torch.full((4,), float(rank + 1)))
                dist.all_reduce(z, group=pair)
                assert (z == 4).all()
            with dist._coalescing_manager():
                parts = [here(torch.full((3,), float(rank + i))) for i in range(4)]
                for part in parts:
                    dist.all_reduce(part)
            assert [each[0].item() for each in parts] == [size * i + sum(range(size)) for i in range(4)]
            import torch.distributed._functional_collectives as functional
            out = functional.all_reduce(here(ramp(10)), "sum", dist.group.WORLD)
            want = ramp(10)
            dist.all_reduce(want, group=gloo)
            assert same(out.wait() if hasattr(out, "wait") else out, want)
            """
        )

    def test_wrong_calls(self):
        run(
            """
            def refused(words, call):
                try:
                    call()
                except (ValueError, TypeError, RuntimeError) as error:
                    assert words in str(error), error
                else:
                    raise AssertionError("not refused: " + words)
            refused("cannot be combined", lambda: dist.all_reduce(here(torch.zeros(3, dtype=torch.int16))))
            refused("sparse", lambda: dist.all_reduce(here(torch.eye(3).to_sparse())))
            refused("elements from each of", lambda: dist.all_gather_into_tensor(zeros(5), zeros(3)))
            refused("not possible", lambda: dist.recv(zeros(3)))
            refused("splits", lambda: dist.all_to_all_single(zeros(4), zeros(4), [4, 0, 0], [1, 1, 1]))
            refused("bits", lambda: dist.all_reduce(here(torch.zeros(3, dtype=torch.int32)), dist.ReduceOp.BXOR))
            """
        )

    def test_a_rank_that_is_killed(self):
        code = (
            START
            + """
import signal
dist.all_reduce(here(torch.ones(10)))
dist.barrier(group=gloo)
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    for _ in range(3):
        print(dist.all_reduce(here(torch.ones(10))))
        here(torch.ones(1)).item()
except Exception as error:
    print(error)
os._exit(0)
"""
        )
        results = finish(start_ranks(code, 3))
        self.assertEqual(results[1][0], -signal.SIGKILL)
        for rank in (0, 2):
            self.assertIn("rank 1", results[rank][1], results[rank][2])


TRAIN = """
torch.manual_seed(1)
def here_module(net):
    return net.to(device)
def model():
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 8))
def train(wrap, where=device):
    net = wrap(model().to(where))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for step in range(20):
        generator = torch.Generator().manual_seed(100 * step + rank)
        x, y = (torch.randn(8, count, generator=generator).to(where) for count in (16, 8))
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
"""


ON_CUDA = os.environ.get("MSCCLPP_TEST_DEVICE") == "cuda"


@unittest.skipUnless(HAS_TORCH and ON_CUDA, "tensors of a GPU are tested with MSCCLPP_TEST_DEVICE=cuda")
class OnCuda(unittest.TestCase):
    def test_graphs_and_streams(self):
        run(
            """
            x = here(torch.full((5000,), float(rank + 1)))
            total = float(sum(range(1, size + 1)))
            for _ in range(3):
                dist.all_reduce(x.clone())
            torch.cuda.synchronize()
            graph, out = torch.cuda.CUDAGraph(), x.clone()
            with torch.cuda.graph(graph):
                out.copy_(x)
                dist.all_reduce(out)
                work = dist.all_reduce(out, async_op=True)
                work.wait()
            for turn in range(50):
                x.fill_(rank + 1 + turn)
                graph.replay()
                eager = x.clone()
                dist.all_reduce(eager)
                torch.cuda.synchronize()
                want = total + size * turn
                assert (eager == want).all() and (out == want * size).all(), (turn, out[0].item(), eager[0].item())
            side = torch.cuda.Stream()
            for turn in range(20):
                y = x.clone()
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    work = dist.all_reduce(y, async_op=True)
                    work.wait()
                    y.mul_(2)
                torch.cuda.current_stream().wait_stream(side)
                assert (y == 2 * (total + size * 49)).all()
            @torch.compile(fullgraph=True)
            def compiled(z):
                import torch.distributed._functional_collectives as functional
                return functional.all_reduce(z * 2, "sum", dist.group.WORLD) + 1
            assert (compiled(here(torch.ones(64))) == 2 * size + 1).all()
            """
        )


    def test_an_algorithm_in_a_stream_that_is_first_seen_captured(self):
        run(
            """
            import mscclpp
            group = mscclpp.CommGroup(device="cuda:0")
            x = torch.zeros(3000, device="cuda")
            graph, out, side = torch.cuda.CUDAGraph(), torch.zeros_like(x), torch.cuda.Stream()
            with torch.cuda.graph(graph, stream=side):
                group.all_reduce(x, out, stream=side.cuda_stream)
            for turn in range(20):
                x.fill_(rank + turn)
                graph.replay()
                torch.cuda.synchronize()
                assert (out == sum(range(size)) + size * turn).all(), (turn, out[0].item())
            """
        )


@unittest.skipUnless(HAS_TORCH, "there is no PyTorch")
class Training(unittest.TestCase):
    def test_ddp(self):
        code = TRAIN + """
from torch.nn.parallel import DistributedDataParallel as DDP
ours = train(lambda net: DDP(net))
again = train(lambda net: DDP(net, bucket_cap_mb=0.001))
theirs = train(lambda net: DDP(net, process_group=gloo), "cpu")
assert torch.allclose(torch.tensor(ours), torch.tensor(theirs), rtol=1e-5), (ours, theirs)
assert ours == train(lambda net: DDP(net))
print(ours[-1])
"""
        self.assertEqual(len(run(code)), 3)

    def test_fsdp2_and_tensor_parallel(self):
        code = TRAIN + """
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel as DDP
mesh = init_device_mesh(device, (size,))
theirs = train(lambda net: DDP(net, process_group=gloo), "cpu")
ours = train(lambda net: fully_shard(net, mesh=mesh))
assert torch.allclose(torch.tensor(ours), torch.tensor(theirs), rtol=1e-5), (ours, theirs)
plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
torch.manual_seed(3)
net = parallelize_module(here_module(model()), mesh, plan)
x = torch.randn(8, 16, generator=torch.Generator().manual_seed(5))
assert torch.allclose(net(here(x)).cpu(), model()(x), rtol=1e-5, atol=1e-6)
"""
        self.assertEqual(len(run(code, ranks=2)), 2)


if __name__ == "__main__":
    unittest.main()
