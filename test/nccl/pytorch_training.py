#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Trains one small transformer for 20 steps, its work shared out among the ranks in one of the ways that PyTorch has, and
# prints the losses. What is trained is the same whatever the way: the same weights, the same batches, the mean over the
# whole batch. scripts/pytorch_nccl.sh runs it with gloo for what the losses must be, then on libmscclpp_nccl.so.
#
#   torchrun --nproc-per-node=2 pytorch_training.py WAY --backend=nccl --output=losses.json
#
# Plain PyTorch: nothing here knows of the library under it.
"""Losses of one small transformer, trained in many ways."""

import argparse
import ctypes
import json
import os
import pathlib

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh

STEPS, BATCH, LENGTH, WIDTH, HEADS, BLOCKS, WORDS = 20, 16, 32, 64, 4, 2, 96
RATE = 0.05


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.exchange = None  # moves a (batch, length, heads, each) tensor between the ranks' shares of length and heads

    def forward(self, x):
        batch, length, _ = x.shape
        # By tensor parallelism a rank has some of the heads.
        parts = [p(x).view(batch, length, -1, WIDTH // HEADS) for p in (self.query, self.key, self.value)]
        if self.exchange:
            parts = [self.exchange(part, True) for part in parts]
        result = F.scaled_dot_product_attention(*(part.transpose(1, 2) for part in parts)).transpose(1, 2)
        if self.exchange:
            result = self.exchange(result, False)
        return self.out(result.reshape(batch, length, -1))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        x = x + self.attention(self.first(x))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Begin(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)

    def forward(self, tokens):
        return self.words(tokens)


class End(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.logits = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, x):
        return self.logits(self.norm(x))


def transformer():
    torch.manual_seed(7)
    return nn.Sequential(Begin(), *(Block() for _ in range(BLOCKS)), End())


def batch_of(step):
    """Tokens and what must follow each, of the whole batch."""
    source = torch.Generator().manual_seed(1000 + step)
    tokens = torch.randint(0, WORDS, (BATCH, LENGTH), generator=source)
    return tokens, (5 * tokens + tokens.roll(1, 1) + 3) % WORDS


def loss_of(logits, wanted):
    return F.cross_entropy(logits.flatten(0, 1), wanted.flatten())


class Training:
    """What the ways share. train(way) gives the losses of the whole batch, step by step."""

    def __init__(self, device):
        self.device, self.rank, self.ranks = device, dist.get_rank(), dist.get_world_size()
        self.losses = []

    def share(self, tensor, dim=0):
        return tensor.chunk(self.ranks, dim)[self.rank].to(self.device).contiguous()

    def whole(self, step):
        return tuple(part.to(self.device) for part in batch_of(step))

    def keep_mean(self, loss):
        total = loss.detach().clone()
        dist.all_reduce(total, op=dist.ReduceOp.AVG if self.device.type == "cuda" else dist.ReduceOp.SUM)
        self.losses.append(total.item() / (1 if self.device.type == "cuda" else self.ranks))

    def steps(self, model, of_rank, keep, after=lambda: None):
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE, foreach=False)  # some are DTensors, some not
        for step in range(STEPS):
            tokens, wanted = of_rank(step)
            loss = loss_of(model(tokens), wanted)
            optimizer.zero_grad()
            loss.backward()
            after()
            optimizer.step()
            keep(loss)

    def by_rows(self, step):
        return tuple(self.share(part) for part in batch_of(step))

    def keep_own(self, loss):
        self.losses.append(loss.item())

    def ddp(self):
        model = nn.parallel.DistributedDataParallel(transformer().to(self.device), bucket_cap_mb=0.05)
        self.steps(model, self.by_rows, self.keep_mean)

    def compiled(self):
        model = nn.parallel.DistributedDataParallel(transformer().to(self.device))
        self.steps(torch.compile(model), self.by_rows, self.keep_mean)

    def functional(self):
        """Collectives inside of compiled code."""
        model = transformer().to(self.device)

        @torch.compile(fullgraph=True)
        def average(gradients):
            summed = funcol.all_reduce_coalesced(gradients, "sum", dist.group.WORLD)
            return [each / self.ranks for each in summed]

        def after():
            parameters = list(model.parameters())
            for parameter, mean in zip(parameters, average([p.grad for p in parameters])):
                parameter.grad = mean

        self.steps(model, self.by_rows, self.keep_mean, after)

    def fsdp(self):
        from torch.distributed.fsdp import fully_shard
        model = transformer().to(self.device)
        mesh = init_device_mesh(self.device.type, (self.ranks,))
        for part in model:
            fully_shard(part, mesh=mesh)
        fully_shard(model, mesh=mesh)
        self.steps(model, self.by_rows, self.keep_mean)

    def tensor(self):
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
        model = transformer().to(self.device)
        mesh = init_device_mesh(self.device.type, (self.ranks,))
        for block in list(model)[1:-1]:
            parallelize_module(block, mesh, {
                **{f"attention.{name}": ColwiseParallel() for name in ("query", "key", "value")},
                "attention.out": RowwiseParallel(), "up": ColwiseParallel(), "down": RowwiseParallel()})
        self.steps(model, self.whole, self.keep_own)

    def sequence(self):
        """Each rank has a piece of every sequence; all-to-alls hand its heads round for the attention."""
        from torch.distributed.nn.functional import all_to_all_single
        model = transformer().to(self.device)

        def exchange(part, to_heads):
            batch, length, heads, each = part.shape
            if to_heads:  # (batch, length / ranks, heads) to (batch, length, heads / ranks)
                sent = part.view(batch, length, self.ranks, heads // self.ranks, each).permute(2, 0, 1, 3, 4)
            else:
                sent = part.view(batch, self.ranks, length // self.ranks, heads, each).transpose(0, 1)
            sent = sent.contiguous()
            got = all_to_all_single(torch.empty_like(sent), sent)
            if to_heads:
                return got.transpose(0, 1).reshape(batch, length * self.ranks, heads // self.ranks, each)
            return got.permute(1, 2, 0, 3, 4).reshape(batch, length // self.ranks, heads * self.ranks, each)

        for block in list(model)[1:-1]:
            block.attention.exchange = exchange

        def after():
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= self.ranks

        self.steps(model, lambda step: tuple(self.share(part, 1) for part in batch_of(step)), self.keep_mean, after)

    def pipeline(self):
        from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
        parts = list(transformer())
        first, end = self.rank * len(parts) // self.ranks, (self.rank + 1) * len(parts) // self.ranks
        model = nn.Sequential(*parts[first:end]).to(self.device)
        stage = PipelineStage(model, self.rank, self.ranks, self.device)
        schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=loss_of)
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
        for step in range(STEPS):
            tokens, wanted = self.whole(step)
            losses = []
            optimizer.zero_grad()
            if self.rank == 0:
                schedule.step(tokens)
            elif self.rank == self.ranks - 1:
                schedule.step(target=wanted, losses=losses)
            else:
                schedule.step()
            optimizer.step()
            mean = torch.stack(losses).mean() if losses else torch.zeros((), device=self.device)
            dist.broadcast(mean, src=self.ranks - 1)
            self.losses.append(mean.item())

    def graph(self):
        """Each step a replayed CUDA graph with its all-reduces, between calls that are none."""
        model = transformer().to(self.device)
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
        tokens, wanted = (part.clone() for part in self.by_rows(0))

        def step():
            loss = loss_of(model(tokens), wanted)
            optimizer.zero_grad(set_to_none=False)
            loss.backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= self.ranks
            return loss

        before = [parameter.detach().clone() for parameter in model.parameters()]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            loss = step()
        for parameter, value in zip(model.parameters(), before):
            assert torch.equal(parameter, value)
        for number in range(STEPS):
            for buffer, part in zip((tokens, wanted), self.by_rows(number)):
                buffer.copy_(part)
            captured.replay()
            optimizer.step()
            self.keep_mean(loss)


WAYS = ("ddp", "compiled", "functional", "fsdp", "tensor", "sequence", "pipeline", "graph")


def provider():
    """The file whose ncclAllReduce PyTorch calls. It loads its own library as well, which then nobody asks."""
    address = ctypes.cast(ctypes.CDLL(None).ncclAllReduce, ctypes.c_void_p).value
    for line in pathlib.Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(part, 16) for part in line.split(maxsplit=1)[0].split("-"))
        if begin <= address < end:
            return line.split(maxsplit=5)[-1]
    return "no file"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ways", nargs="+", choices=WAYS)
    parser.add_argument("--backend", default="nccl")
    parser.add_argument("--output", required=True, help="JSON: the losses of each way, and the file of NCCL")
    arguments = parser.parse_args()
    if arguments.backend == "gloo":
        device = torch.device("cpu")
    else:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        torch.cuda.set_device(device)
    dist.init_process_group(arguments.backend, device_id=device if device.type == "cuda" else None)
    result = {}
    for way in arguments.ways:
        training = Training(device)
        getattr(training, way)()
        result[way] = training.losses
    if dist.get_rank() == 0:
        pathlib.Path(arguments.output).write_text(json.dumps({"losses": result, "nccl": provider() if device.type == "cuda" else ""}))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
