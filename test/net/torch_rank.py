#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# One rank of torch.distributed over several hosts, on the CPU's tensors: the backend mscclpp beside gloo. Started with
# what torchrun sets. Ends with 0 where all was well, else prints what was not and ends with 1.
#
#   torch_rank.py calls    each call once or more, training, what is refused; prints how much was compared
#   torch_rank.py programs what stands on the calls: messages from any rank, monitored barriers, FSDP2, tensor parallel,
#                          compiled functions; prints how much was compared
#   torch_rank.py steps    trains until something fails, which it prints
"""A rank of torch.distributed."""

import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import mscclpp.torch

# Of waits, and of meetings: ranks share few processors.
LIMIT = timedelta(seconds=100)
COUNTS = (1, 1001, 70000)
TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8)


def model(width=65):
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(33, width), torch.nn.GELU(), torch.nn.Linear(width, 5))


def train(net, steps, seed=None):
    """The losses of each step, of data that differs by this number, or by rank."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(steps):
        generator = torch.Generator().manual_seed(100 * step + (dist.get_rank() if seed is None else seed))
        x, y = (torch.randn(8, columns, generator=generator) for columns in (33, 5))
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        yield loss.item()


def train_copies(group, steps):
    return train(torch.nn.parallel.DistributedDataParallel(model(), process_group=group), steps)


class Comparison:
    """Calls of the default group beside those of one of gloo."""

    def __init__(self):
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.gloo = dist.new_group(backend="gloo")
        self.compared = self.wrong = 0

    def check(self, name, right):
        self.compared += 1
        if not right:
            self.wrong += 1
            print(f"{name} is wrong", flush=True)

    def ramp(self, count, dtype=torch.float32, seed=0):
        """Small whole numbers, whose sums are the same in any order; they differ by rank."""
        return ((torch.arange(count) * 7 + self.rank * 3 + seed) % 11 + 1).to(dtype)

    def beside(self, name, call, *shape_of_output, used=True):
        """`call(out, group)` fills `out`, in the one group and in the other."""
        ours, theirs = (torch.zeros(*shape_of_output) for _ in range(2))
        call(ours, None)
        call(theirs, self.gloo)
        self.check(name, not used or torch.equal(ours, theirs))

    def reductions(self):
        for count in COUNTS:
            for dtype in TYPES:
                for op in (dist.ReduceOp.SUM, dist.ReduceOp.MIN, dist.ReduceOp.MAX):
                    ours, theirs = self.ramp(count, dtype), self.ramp(count, dtype)
                    dist.all_reduce(ours, op)
                    dist.all_reduce(theirs, op, group=self.gloo)
                    self.check(f"all_reduce {op} of {count} {dtype}", torch.equal(ours, theirs))
            for dtype in (torch.float32, torch.float64):   # gloo has no mean
                ours, theirs = self.ramp(count, dtype), self.ramp(count, dtype)
                dist.all_reduce(ours, dist.ReduceOp.AVG)
                dist.all_reduce(theirs, group=self.gloo)
                self.check(f"mean of {count} {dtype}", torch.allclose(ours, theirs / self.size, rtol=1e-6))
            whole = self.ramp(count * self.size)
            total = whole.clone()
            dist.all_reduce(total, group=self.gloo)
            own = torch.zeros(count)
            dist.reduce_scatter_tensor(own, whole)
            self.check(f"reduce_scatter_tensor of {count}", torch.equal(own, total.chunk(self.size)[self.rank]))
            own = torch.zeros(count)
            dist.reduce_scatter(own, list(whole.chunk(self.size)))
            self.check(f"reduce_scatter of {count}", torch.equal(own, total.chunk(self.size)[self.rank]))

    def rooted(self):
        for count in COUNTS:
            for root in range(self.size):
                at_root = self.rank == root
                parts = [self.ramp(count, seed=part) for part in range(self.size)]
                ours, theirs = self.ramp(count), self.ramp(count)
                dist.broadcast(ours, root)
                dist.broadcast(theirs, root, group=self.gloo)
                self.check(f"broadcast of {count} by {root}", torch.equal(ours, theirs))
                ours, theirs = self.ramp(count), self.ramp(count)
                dist.reduce(ours, root)
                dist.reduce(theirs, root, group=self.gloo)
                self.check(f"reduce of {count} to {root}", not at_root or torch.equal(ours, theirs))
                self.beside(f"gather of {count} to {root}",
                            lambda out, group: dist.gather(parts[0], list(out) if at_root else None, root, group=group),
                            self.size, count, used=at_root)
                self.beside(f"scatter of {count} by {root}",
                            lambda out, group: dist.scatter(out, parts if at_root else None, root, group=group), count)

    def exchanges(self):
        for count in COUNTS:
            x, parts = self.ramp(count), [self.ramp(count, seed=part) for part in range(self.size)]
            whole = torch.cat(parts)
            self.beside(f"all_gather of {count}", lambda out, group: dist.all_gather(list(out), x, group=group),
                        self.size, count)
            self.beside(f"all_gather_into_tensor of {count}",
                        lambda out, group: dist.all_gather_into_tensor(out, x, group=group), self.size * count)
            self.beside(f"all_to_all_single of {count}",
                        lambda out, group: dist.all_to_all_single(out, whole, group=group), self.size * count)
            # gloo has no lists of them.
            gathered = torch.zeros(self.size, self.size * count)
            dist.all_gather(list(gathered), whole, group=self.gloo)
            ours = torch.zeros(self.size, count)
            dist.all_to_all(list(ours), parts)
            self.check(f"all_to_all of {count}",
                       torch.equal(ours, gathered[:, self.rank * count:(self.rank + 1) * count]))
            after, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
            theirs = gathered[before, self.rank * count:(self.rank + 1) * count]
            ours = torch.zeros(count)
            works = [dist.isend(parts[after], after), dist.irecv(ours, before)]
            for work in works:
                work.wait()
            self.check(f"messages of {count}", torch.equal(ours, theirs))
        splits = [self.rank + peer for peer in range(self.size)]   # rank 0 sends nothing to itself
        uneven = self.ramp(sum(splits))
        self.beside("all_to_all_single of different counts",
                    lambda out, group: dist.all_to_all_single(out, uneven, splits, splits, group=group), sum(splits))
        token = torch.zeros(1)
        if self.rank == 0:
            token += 1
            dist.send(token, self.size - 1)
            dist.recv(token, self.size - 1)
        elif self.rank == self.size - 1:
            dist.recv(token, 0)
            token += 1
            dist.send(token, 0)
        self.check("a message there and back", token.item() == (2 if self.rank in (0, self.size - 1) else 0))
        things = [None] * self.size
        dist.all_gather_object(things, {"rank": self.rank, "text": "x" * (10 + self.rank)})
        self.check("all_gather_object",
                   things == [{"rank": peer, "text": "x" * (10 + peer)} for peer in range(self.size)])

    def barrier(self):
        """Nobody leaves before the last has come."""
        store = dist.PrefixStore("barrier", dist.distributed_c10d._get_default_store())
        came = []
        for turn in range(5):
            store.add(str(turn), 1)
            dist.barrier()
            came.append(store.add(str(turn), 0))
        self.check(f"barrier, left when {came} had come", came == [self.size] * 5)

    def losses(self, name, ours, theirs):
        for own, other in zip(ours, theirs, strict=True):
            self.check(f"loss {own} of {name}, gloo's {other}", abs(own - other) <= 1e-5 * abs(other))

    def training(self):
        self.losses("DDP", train_copies(None, 5), train_copies(self.gloo, 5))

    def operators(self):
        import mscclpp.ops as ops  # compiled when it is imported

        count = 1001
        x, whole = self.ramp(count), self.ramp(count * self.size)
        self.beside("ops.all_gather", lambda out, group: dist.all_gather_into_tensor(out, x, group=group) if group
                    else out.copy_(ops.all_gather(x)), self.size * count)
        self.beside("ops.all_to_all", lambda out, group: dist.all_to_all_single(out, whole, group=group) if group
                    else out.copy_(ops.all_to_all(whole)), self.size * count)
        total = whole.clone()
        dist.all_reduce(total, group=self.gloo)
        self.check("ops.all_reduce", torch.equal(ops.all_reduce(whole), total))
        self.check("ops.reduce_scatter", torch.equal(ops.reduce_scatter(whole), total.chunk(self.size)[self.rank]))
        self.beside("ops.broadcast", lambda out, group: dist.broadcast(out.copy_(x), 1, group=group) if group
                    else out.copy_(ops.broadcast(x, 1)), count)
        self.refused("fused_all_reduce", lambda: ops.fused_all_reduce(x, scale=0.5))
        rows = self.ramp(4 * 16).reshape(4, 16)
        self.refused("all_reduce_rms_norm", lambda: ops.all_reduce_rms_norm(rows, torch.ones(16)))
        # Nothing of what was refused has been started.
        self.check("all_reduce behind what was refused", torch.equal(ops.all_reduce(whole), total))

    def groups(self):
        """Of the first and the last rank, which are on different hosts; and of each host, where fused calls work."""
        import mscclpp.ops as ops

        ends = dist.new_group([0, self.size - 1])
        if self.rank in (0, self.size - 1):
            x = torch.full((1001,), float(self.rank + 1))
            dist.all_reduce(x, group=ends)
        self.check("all_reduce of two ranks", self.rank not in (0, self.size - 1) or bool((x == self.size + 1).all()))
        firsts = [None] * self.size
        dist.all_gather_object(firsts, self.rank - int(os.environ["LOCAL_RANK"]))
        members = [[rank for rank in range(self.size) if firsts[rank] == first] for first in sorted(set(firsts))]
        of_hosts = [dist.new_group(ranks) for ranks in members]
        own = next(i for i, ranks in enumerate(members) if self.rank in ranks)
        x = torch.full((1001,), float(self.rank + 1))
        fused = ops.fused_all_reduce(x, scale=0.5, residual=x, group=of_hosts[own])
        self.check("fused_all_reduce on one host", torch.equal(fused, x + 0.5 * sum(rank + 1 for rank in members[own])))

    def refused(self, name, call):
        try:
            call()
        except (ValueError, RuntimeError) as error:
            print(f"{name}: {error}", flush=True)
            self.check(f"what {name} says",
                       f"{name} runs where all ranks reach each other's memory, which these do not" in str(error))
        else:
            self.check(f"{name} over several hosts was not refused, which", False)

    # ---- programs

    def any_source(self):
        """All wait for any while all send; of each other rank two messages, one of all of them by name."""
        others = [peer for peer in range(self.size) if peer != self.rank]

        def message(turn, peer, part):
            return torch.full((COUNTS[1],), 1000.0 * turn + 10 * peer + part)

        for turn in range(5):
            came = [torch.zeros(COUNTS[1]) for _ in range(2 * len(others))]
            works = [dist.irecv(each) for each in came[:2]]
            sent = [dist.isend(message(turn, self.rank, part), peer) for part in (0, 1) for peer in others]
            for work in works:
                work.wait()
            sources = [work.source_rank() for work in works]
            name = next(peer for peer in others if sources.count(peer) < 2)
            sources.append(dist.recv(came[2], name))
            sources += [dist.recv(each) for each in came[3:]]
            for work in sent:
                work.wait()
            for peer in others:
                own = [each for each, source in zip(came, sources) if source == peer]
                self.check(f"what rank {peer} sent to any in turn {turn}, of {sources},", len(own) == 2 and
                           all(torch.equal(each, message(turn, peer, part)) for part, each in enumerate(own)))
            dist.barrier(group=self.gloo)   # else a rank that is through sends here before one that is late

    def monitored_barrier(self):
        """All come, then all but the last rank, which is on another host than rank 0."""
        world = dist.group.WORLD
        for wait_for_all in (False, True, False):
            world.monitored_barrier(LIMIT, wait_for_all)
        late, words, said = self.size - 1, "waiting for send/recv from rank 0", "nothing"
        if self.rank == 0:
            words = f"Rank {late} failed to pass monitoredBarrier in 1000 ms"
        try:
            if self.rank != late:
                world.monitored_barrier(timedelta(seconds=1 if self.rank == 0 else 20))
        except RuntimeError as error:
            said = str(error)
        self.check(f"monitored_barrier, which says {said},", self.rank == late or words in said)
        dist.barrier(group=self.gloo)

    def sharded(self):
        """FSDP2 over all ranks, then within each host, with a copy on each."""
        theirs = list(train_copies(self.gloo, 5))
        for mesh in self.meshes():
            net = model()
            for part in (net[0], net[2], net):
                fully_shard(part, mesh=mesh)
            self.losses(f"FSDP2 over {mesh}", train(net, 5), theirs)

    def tensor_parallel(self):
        """Over all ranks; then within each host, with FSDP2 between hosts."""
        def split(net, mesh):
            return parallelize_module(net, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})

        width = 16 * self.size
        theirs = list(train(model(width), 5, seed=0))
        self.losses("tensor parallel", train(split(model(width), self.meshes()[0]), 5, seed=0), theirs)
        self.losses("tensor parallel by gloo",
                    train(split(model(width), DeviceMesh.from_group(self.gloo, "cpu")), 5, seed=0), theirs)
        for mesh in self.meshes()[1:]:
            host = mesh["hosts"].get_local_rank()
            copies = torch.nn.parallel.DistributedDataParallel(model(width), process_group=self.gloo)
            net = fully_shard(split(model(width), mesh["ranks"]), mesh=mesh["hosts"])
            self.losses("tensor parallel on hosts", train(net, 5, seed=host), train(copies, 5, seed=host))

    def compiled(self):
        """Functional collectives and this library's operators in one graph."""
        import mscclpp.ops as ops

        def calls(x, group):
            total = functional.all_reduce(x, "sum", group)
            whole = functional.all_gather_tensor(total + x, 0, group)
            own = functional.reduce_scatter_tensor(whole * 2, "sum", 0, group)
            mixed = functional.all_to_all_single(whole + 1, None, None, group)
            return own - 1, functional.broadcast(mixed, self.size - 1, group)

        def ours(x):
            first, second = calls(x, dist.group.WORLD)
            return ops.all_reduce(first), second

        compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
        for seed in range(3):
            x = self.ramp(COUNTS[1], seed=seed)
            theirs = calls(x, self.gloo)
            dist.all_reduce(theirs[0], group=self.gloo)
            for name, own, other in zip(("sums", "parts"), compiled(x), theirs):
                self.check(f"compiled, {name}", torch.equal(own, other))

    def meshes(self):
        """Of all ranks; and of hosts and their ranks, where all have as many."""
        meshes = [init_device_mesh("cpu", (self.size,))]
        locals_ = [None] * self.size
        dist.all_gather_object(locals_, int(os.environ["LOCAL_RANK"]))
        hosts = locals_.count(0)
        if locals_ == list(range(self.size // hosts)) * hosts:
            meshes.append(init_device_mesh("cpu", (hosts, self.size // hosts), mesh_dim_names=("hosts", "ranks")))
        return meshes

    def run(self, what):
        programs = (self.any_source, self.sharded, self.tensor_parallel, self.compiled, self.monitored_barrier)
        calls = (self.reductions, self.rooted, self.exchanges, self.barrier, self.training, self.operators, self.groups)
        for part in programs if what == "programs" else calls:
            part()
        print(f"rank {self.rank} of {self.size}: {self.compared} compared, {self.wrong} wrong", flush=True)
        return 0 if self.wrong == 0 else 1


def main():
    torch.set_num_threads(1)
    mscclpp.torch.register()
    dist.init_process_group("mscclpp", timeout=LIMIT)
    if sys.argv[1:] == ["steps"]:
        try:
            for step, _ in enumerate(train_copies(None, 10**9)):
                if step == 2:
                    print("begins", flush=True)
        except RuntimeError as error:
            print(f"{type(error).__name__}: {error}", flush=True)
            os._exit(1)   # nothing that the interpreter's end may wait for
    status = Comparison().run(sys.argv[1])
    dist.barrier()
    dist.destroy_process_group()
    return status


if __name__ == "__main__":
    sys.exit(main())
