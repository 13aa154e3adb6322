# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decode steps of a transformer as Llama's: a token for each sequence of a batch, by tensor parallelism.

Weights are random and divided by hand: columns of query, key, value, gate and up, rows of out and down. So a layer has two
all-reduces, each with the residual's addition and the norm behind it. On GPUs the step is one CUDA graph.
"""

import statistics
import time
from types import SimpleNamespace

import torch
import torch.distributed as dist
import torch.nn.functional as F

EPSILON = 1e-6
REPLAYS = 10  # in a sample


def add_norm(x, weight, residual):
    """The norm of the sum, and the sum."""
    total = (x.float() + residual.float()).to(x.dtype)
    wide = total.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPSILON)
    return (wide * scale * weight.float()).to(x.dtype), total


def gated(both):
    gate, up = both.chunk(2, -1)
    return F.silu(gate) * up


class Decoder:
    """This rank's part of the weights and of the cache."""

    def __init__(self, world, options):
        self.world, self.options = world, options
        ranks, hidden, each = world.ranks, options.hidden, options.hidden // options.heads
        if options.kv_heads % ranks or options.heads % options.kv_heads or options.ffn % ranks:
            raise ValueError(f"{options.heads} heads, {options.kv_heads} of keys, and FFN {options.ffn}: the ranks, {ranks}, "
                             "must divide the heads of keys and the FFN, and the heads of keys the heads")  # fmt: skip
        self.heads, self.kv_heads, ffn = options.heads // ranks, options.kv_heads // ranks, options.ffn // ranks
        common, own = (torch.Generator(world.device).manual_seed(seed) for seed in (7, 100 + world.rank))

        def random(*shape, source=own, inputs=1):
            values = torch.randn(*shape, generator=source, device=world.device, dtype=world.dtype)
            return values.mul_(inputs**-0.5)

        def norm():
            return 1 + random(hidden, source=common, inputs=16)

        def layer():
            caches = (max(options.batches), self.kv_heads, options.cache, each)
            return SimpleNamespace(
                qkv=random((self.heads + 2 * self.kv_heads) * each, hidden, inputs=hidden),
                out=random(hidden, self.heads * each, inputs=hidden), after_attention=norm(),
                gate_up=random(2 * ffn, hidden, inputs=hidden), down=random(hidden, ffn, inputs=options.ffn),
                after_ffn=norm(), keys=random(*caches), values=random(*caches))  # fmt: skip

        self.first, self.layers = norm(), [layer() for _ in range(options.layers)]
        self.signs = (torch.randint(0, 2, (hidden, 8), generator=torch.Generator().manual_seed(3)) * 2 - 1).double()
        # One kernel each, as an engine has it.
        self.add_norm, self.gated = add_norm, gated
        if world.cuda:
            torch._dynamo.config.recompile_limit = max(64, torch._dynamo.config.recompile_limit)
            self.add_norm, self.gated = (torch.compile(f, dynamic=False) for f in (add_norm, gated))

    def summed(self, x, weight, residual):
        """add_norm() of all ranks' x."""
        if self.options.fused:
            import mscclpp.ops  # pylint: disable=import-outside-toplevel

            return mscclpp.ops.all_reduce_rms_norm(x, weight, residual, EPSILON)
        dist.all_reduce(x)
        return self.add_norm(x, weight, residual)

    def attention(self, x, layer):
        batch = len(x)
        heads = F.linear(x, layer.qkv).view(batch, self.heads + 2 * self.kv_heads, -1)
        query, key, value = heads.split((self.heads, self.kv_heads, self.kv_heads), 1)
        keys, values = layer.keys[:batch], layer.values[:batch]
        keys[:, :, -1], values[:, :, -1] = key, value  # the new token is the last
        # Heads that share keys stand as if they were tokens: each sees the whole cache.
        mixed = F.scaled_dot_product_attention(query.unflatten(1, (self.kv_heads, -1)), keys, values)
        return F.linear(mixed.reshape(batch, -1), layer.out)

    def step(self, x, add_norm_of):
        """What the last norm gives, of tokens' vectors. `add_norm_of` is called with each partial product."""
        x, residual = self.add_norm(x, self.first, torch.zeros_like(x))
        for layer in self.layers:
            x, residual = add_norm_of(self.attention(x, layer), layer.after_attention, residual)
            x = F.linear(self.gated(F.linear(x, layer.gate_up)), layer.down)
            x, residual = add_norm_of(x, layer.after_ffn, residual)
        return x

    def repeated(self, step):
        """A call that does a step and returns its output."""
        if not self.world.cuda:
            return step
        spare = torch.cuda.Stream()
        spare.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(spare):
            for _ in range(3):  # compiles, and makes what calls need
                step()
        torch.cuda.current_stream().wait_stream(spare)
        self.world.meet()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            output = step()

        def replay():
            graph.replay()
            return output

        return replay

    def sample(self, call):
        """Microseconds of a call on this rank. The one before has the ranks begin together."""
        self.world.meet()
        call()
        if not self.world.cuda:
            begin = time.perf_counter()
            for _ in range(REPLAYS):
                call()
            return (time.perf_counter() - begin) * 1e6 / REPLAYS
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(REPLAYS):
            call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e3 / REPLAYS

    def time(self, call):
        """The median of the slowest rank's."""
        samples = [self.sample(call) for _ in range(self.options.samples)]
        return statistics.median(self.world.combine(samples, dist.ReduceOp.MAX))

    def wrong(self, batch):
        """Elements that summed() has wrong, of all ranks, by what the CPU makes of data that gloo has gathered."""
        world, shape = self.world, (batch, self.options.hidden)
        own, common = (torch.Generator().manual_seed(seed) for seed in (1000 + world.rank, 999))
        x, residual = (torch.randn(shape, generator=source).to(world.dtype) for source in (own, common))
        everyone = [torch.empty(shape) for _ in range(world.ranks)]
        dist.all_gather(everyone, x.float(), group=world.meeting)
        y, total = self.summed(*(part.to(world.device) for part in (x, self.first, residual)))
        terms = torch.stack([*everyone, residual.float()])
        wanted, magnitude = terms.sum(0), terms.abs().sum(0)
        # Each partial sum may be rounded, in any order.
        slack = len(terms) * torch.finfo(world.dtype).eps / 2 * magnitude
        scale = torch.rsqrt(wanted.square().mean(-1, keepdim=True) + EPSILON) * self.first.float().cpu()
        normed = wanted * scale
        right = (total.float().cpu() - wanted).abs() <= slack
        # The mean square is that of rounded sums.
        right &= (y.float().cpu() - normed).abs() <= slack * scale.abs() + 4 * torch.finfo(world.dtype).eps * normed.abs()
        return int(world.combine([(~right).sum().item()], dist.ReduceOp.SUM)[0])

    @torch.no_grad()
    def measure(self, batch):
        """The figures of one batch."""
        source = torch.Generator().manual_seed(batch)
        x = torch.randn(batch, self.options.hidden, generator=source).to(self.world.device, self.world.dtype)
        figures = {"wrong": self.wrong(batch)}
        together = self.repeated(lambda: self.step(x, self.summed))
        output = together().double().cpu()
        projections = (output @ self.signs).sum(0).tolist()
        figures["sum_of_magnitudes"], figures["projections"] = output.abs().sum().item(), projections
        figures["same_on_all_ranks"] = all(each == projections for each in self.world.everyones(projections))
        figures["microseconds"] = self.time(together)
        del together  # with its graph
        figures["microseconds_alone"] = self.time(self.repeated(lambda: self.step(x, self.add_norm)))
        figures["microseconds_of_communication"] = figures["microseconds"] - figures["microseconds_alone"]
        figures["tokens_per_second"] = batch * 1e6 / figures["microseconds"]
        return figures
