# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Training steps of a transformer as GPT's, its work shared out among the ranks in ways that PyTorch has.

What is trained is the same whatever the way: the same weights, the same batches, the mean over the whole batch. Weights
and gradients are bfloat16 on GPUs, so that is what is communicated. Nothing here knows of the library below.
"""

import math
import re
import statistics
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.profiler import ProfilerActivity, profile

WAYS = ("ddp", "fsdp2", "tensor")
WARMUPS = 3
RATE = 3e-4
KERNELS = r"(nccl|mscclpp)(?!:\w)"  # not nccl:all_reduce, a call's name


class Block(nn.Module):
    def __init__(self, width, head):
        super().__init__()
        self.head = head
        self.before_attention, self.before_ffn = (nn.RMSNorm(width, eps=1e-6) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def attention(self, x):
        batch, length, _ = x.shape
        # Query, key and value of a head are neighbours: by tensor parallelism a rank has some of the heads.
        query, key, value = self.qkv(x).view(batch, length, -1, 3, self.head).permute(3, 0, 2, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, -1))

    def forward(self, x):
        x = x + self.attention(self.before_attention(x))
        return x + self.down(F.gelu(self.up(self.before_ffn(x))))


class Transformer(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.words, self.places = nn.Embedding(options.words, options.width), nn.Embedding(options.length, options.width)
        self.blocks = nn.ModuleList(Block(options.width, options.head) for _ in range(options.blocks))
        self.norm, self.logits = nn.RMSNorm(options.width, eps=1e-6), nn.Linear(options.width, options.words, bias=False)

    def forward(self, tokens):
        x = self.words(tokens) + self.places.weight
        for block in self.blocks:
            x = block(x)
        return self.logits(self.norm(x))


def shared_out(model, way, world):
    """The model as the way has it."""
    if way == "ddp":
        return nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    mesh = init_device_mesh(world.device.type, (world.ranks,))
    if way == "fsdp2":
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return model
    for block in model.blocks:
        parallelize_module(block, mesh, {"qkv": ColwiseParallel(), "out": RowwiseParallel(),
                                         "up": ColwiseParallel(), "down": RowwiseParallel()})  # fmt: skip
    return model


class Training:
    """One way's model, and its steps. By tensor parallelism each rank sees the whole batch, by the others its share."""

    def __init__(self, way, world, options):
        self.way, self.world, self.options = way, world, options
        torch.manual_seed(7)
        with world.device:
            model = Transformer(options)
        self.parameters = sum(each.numel() for each in model.parameters())
        self.model = shared_out(model.to(world.dtype), way, world)
        # A fused optimizer takes tensors of one kind.
        kinds = ([p for p in self.model.parameters() if isinstance(p, DTensor) is kind] for kind in (True, False))
        self.optimizer = torch.optim.AdamW([{"params": kind} for kind in kinds if kind], lr=RATE, fused=True)

    def batch(self, number):
        """Tokens, and what must follow each."""
        source = torch.Generator().manual_seed(1000 + number)
        shape = (self.options.batch * self.world.ranks, self.options.length)
        tokens = torch.randint(0, self.options.words, shape, generator=source)
        both = (tokens, (5 * tokens + 3) % self.options.words)
        if self.way != "tensor":
            both = (part.chunk(self.world.ranks)[self.world.rank] for part in both)
        return tuple(part.to(self.world.device) for part in both)

    def step(self, tokens, wanted):
        loss = F.cross_entropy(self.model(tokens).flatten(0, 1).float(), wanted.flatten())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def timed(self, number):
        """The loss, and the seconds."""
        batch = self.batch(number)
        self.world.meet()
        begin = time.perf_counter()
        loss = self.step(*batch)
        self.world.synchronize()
        return loss.item(), time.perf_counter() - begin


    def gradient_norm(self):
        """Of the last step's gradients. Without a sum over the ranks it would be another."""
        gradients = [p.grad.full_tensor() if isinstance(p.grad, DTensor) else p.grad for p in self.model.parameters()]
        return math.hypot(*(torch.linalg.vector_norm(each, dtype=torch.float32).item() for each in gradients))

    def communication(self, number):
        """Seconds of a step in which kernels of communication run, or None; and what that is, or why there is none."""
        if not self.world.cuda:
            return None, "measured on GPUs only"
        batch = self.batch(number)
        self.world.meet()
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
            self.step(*batch)
            self.world.synchronize()
        spans, note = [], "the profile has no kernel whose name tells of communication"
        try:
            spans = [event.time_range.elapsed_us() for event in seen.events()
                     if event.device_type.name == "CUDA" and not event.is_user_annotation
                     and re.search(KERNELS, event.name, re.IGNORECASE)]  # fmt: skip
        except (AttributeError, RuntimeError) as error:
            note = f"the profile cannot be read: {error}"
        # The rank that waits least tells best what the kernels themselves take.
        [taken] = self.world.combine([sum(spans) * 1e-6], dist.ReduceOp.MIN)
        if taken == 0:
            return None, note
        return taken, f"{len(spans)} kernels, of the rank with the least, waits and what computing hides included"


def train(way, world, options):
    """The figures of one way."""
    training = Training(way, world, options)
    steps = [training.timed(0)]
    norm = training.gradient_norm()
    steps += [training.timed(number) for number in range(1, WARMUPS + options.steps)]
    seconds = statistics.median(world.combine([taken for _, taken in steps[WARMUPS:]], dist.ReduceOp.MAX))
    [memory] = world.combine([torch.cuda.max_memory_allocated() * 1e-9 if world.cuda else 0], dist.ReduceOp.MAX)
    figures = {
        "seconds": seconds, "tokens_per_second": options.batch * world.ranks * options.length / seconds,
        "losses": [total / world.ranks for total in world.combine([loss for loss, _ in steps], dist.ReduceOp.SUM)],
        "gradient_norm": norm, "parameters": training.parameters, "peak_memory_gb": memory or None}  # fmt: skip
    figures["communication_seconds"], figures["communication_note"] = training.communication(len(steps))
    return figures
