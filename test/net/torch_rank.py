#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# One rank of torch.distributed over several hosts, on the CPU's tensors: the backend mscclpp beside gloo. Started with
# what torchrun sets. Ends with 0 where all was well, else prints what was not and ends with 1.
#
#   torch_rank.py calls    each call once or more, training, what is refused; prints how much was compared
#   torch_rank.py steps    trains until something fails, which it prints
"""A rank of torch.distributed."""

import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

import mscclpp.torch

# Of waits, and of meetings: ranks share few processors.
LIMIT = timedelta(seconds=100)
COUNTS = (1, 1001, 70000)
TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8)


def model():
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(33, 65), torch.nn.GELU(), torch.nn.Linear(65, 5))


def train(group, steps):
    """The losses of each step, of data that differs by rank."""
    net = torch.nn.parallel.DistributedDataParallel(model(), process_group=group)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(steps):
        generator = torch.Generator().manual_seed(100 * step + dist.get_rank())
        x, y = (torch.randn(8, columns, generator=generator) for columns in (33, 5))
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        yield loss.item()


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

    def training(self):
        for ours, theirs in zip(train(None, 5), train(self.gloo, 5)):
            self.check(f"loss {ours}, gloo's {theirs}", abs(ours - theirs) <= 1e-5 * abs(theirs))

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

    def run(self):
        for part in (self.reductions, self.rooted, self.exchanges, self.barrier, self.training, self.operators,
                     self.groups):
            part()
        print(f"rank {self.rank} of {self.size}: {self.compared} compared, {self.wrong} wrong", flush=True)
        return 0 if self.wrong == 0 else 1


def main():
    torch.set_num_threads(1)
    mscclpp.torch.register()
    dist.init_process_group("mscclpp", timeout=LIMIT)
    if sys.argv[1:] == ["steps"]:
        try:
            for step, _ in enumerate(train(None, 10**9)):
                if step == 2:
                    print("begins", flush=True)
        except RuntimeError as error:
            print(f"{type(error).__name__}: {error}", flush=True)
            os._exit(1)   # nothing that the interpreter's end may wait for
    status = Comparison().run()
    dist.barrier()
    dist.destroy_process_group()
    return status


if __name__ == "__main__":
    sys.exit(main())
