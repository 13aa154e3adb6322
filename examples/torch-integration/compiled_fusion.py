# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A fused all-reduce within a program that torch.compile makes one graph of: the norm behind it is PyTorch's own
kernel, and derivatives go through both.

    torchrun --nproc-per-node=2 compiled_fusion.py

On GPUs where there are some, else, and with MSCCLPP_DEVICE=sim, on the simulated machine.
"""

import mscclpp.ops
import torch
import torch.distributed as dist
from setup_comm import init_process_group


def block(partial, residual, weight):
    """The new residual, in float32, and its norm."""
    residual = mscclpp.ops.fused_all_reduce(partial, residual=residual, dtype=torch.float32)
    return residual, residual * torch.rsqrt(residual.pow(2).mean(-1, keepdim=True) + 1e-5) * weight


def plain(partial, residual, weight):
    """The same, one after the other."""
    total = mscclpp.ops.all_reduce(partial)
    residual = total.float() + residual
    return residual, residual * torch.rsqrt(residual.pow(2).mean(-1, keepdim=True) + 1e-5) * weight


def main():
    device = init_process_group()
    rank = dist.get_rank()

    torch.manual_seed(rank)
    partial = torch.randn(6, 64, dtype=torch.bfloat16, device=device)
    residual = torch.ones(6, 64, device=device)
    weight = torch.linspace(0.5, 1.5, 64, device=device)
    compiled = torch.compile(block, fullgraph=True)

    def results(function):
        inputs = [each.clone().requires_grad_() for each in (partial, residual, weight)]
        outputs = function(*inputs)
        outputs[1].sum().backward()
        return [each.detach() for each in outputs] + [each.grad for each in inputs]

    for ours, expected in zip(results(compiled), results(plain)):
        torch.testing.assert_close(ours, expected, rtol=1e-2, atol=1e-3)
    print(f"rank {rank}: the compiled block's outputs and gradients are right")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
