# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensor-parallel inference: each rank has a part of every weight, and one fused call makes the layer's output of the
ranks' partial products: their sum, scaled, and the residual.

    torchrun --nproc-per-node=2 tensor_parallel.py

On GPUs the step is captured into a CUDA graph and replayed; where there are none, and with MSCCLPP_DEVICE=sim, it runs
on the simulated machine as it is. The outputs are compared with those of whole weights.
"""

import mscclpp.ops
import torch
import torch.distributed as dist
from setup_comm import init_process_group

HIDDEN, WIDE, LAYERS, TOKENS = 32, 96, 2, 4
SCALE = 0.5


class Layer:
    """x + SCALE * gelu(x @ up) @ down, of weights of which this rank has its columns and rows."""

    def __init__(self, up, down, rank, ranks):
        self.up = up.chunk(ranks, dim=1)[rank].contiguous()
        self.down = down.chunk(ranks, dim=0)[rank].contiguous()

    def __call__(self, x):
        partial = torch.nn.functional.gelu(x @ self.up) @ self.down
        return mscclpp.ops.fused_all_reduce(partial, scale=SCALE, residual=x)


def main():
    device = init_process_group()
    rank, ranks = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(3)
    weights = [(torch.randn(HIDDEN, WIDE) / 6, torch.randn(WIDE, HIDDEN) / 10) for _ in range(LAYERS)]
    layers = [Layer(up.to(device), down.to(device), rank, ranks) for up, down in weights]

    def step(x):
        for layer in layers:
            x = layer(x)
        return x

    def whole(x):
        for up, down in weights:
            x = x + SCALE * (torch.nn.functional.gelu(x @ up) @ down)
        return x

    x = torch.zeros(TOKENS, HIDDEN, device=device)
    run = step
    if device == "cuda":
        step(x)  # what calls need is made before the capture
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = step(x)

        def run(_):
            graph.replay()
            return out

    for turn in range(5):
        tokens = torch.randn(TOKENS, HIDDEN, generator=torch.Generator().manual_seed(turn))
        x.copy_(tokens)
        torch.testing.assert_close(run(x).cpu(), whole(tokens), rtol=2e-3, atol=2e-3)
    how = "replayed" if device == "cuda" else "without a graph"
    print(f"rank {rank}: 5 steps of {LAYERS} layers, {how}, are right")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
