# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A mixture of experts, two on each rank, that is trained: tokens go to their experts and home, and the derivatives the
same ways. Beside it a layer that has all experts, which gives the same losses.

    torchrun --nproc-per-node=2 experts_training.py

On GPUs where there are some, else, and with MSCCLPP_DEVICE=sim, on the simulated machine.
"""

import mscclpp
import torch
import torch.distributed as dist
from mscclpp import expert_ops
from setup_comm import init_process_group

TOKENS, HIDDEN, TOPK, EXPERTS_OF_RANK = 16, 32, 2, 2


class Experts(torch.nn.Module):
    def __init__(self, own, experts, wide=64):
        super().__init__()
        everywhere = torch.Generator().manual_seed(1)
        router, up, down = (
            torch.randn(shape, generator=everywhere) / shape[-2] ** 0.5
            for shape in ((HIDDEN, experts), (experts, HIDDEN, wide), (experts, wide, HIDDEN))
        )
        self.router, self.up, self.down = (torch.nn.Parameter(each) for each in (router, up[own], down[own]))

    def route(self, x):
        weights, indices = (x @ self.router).softmax(-1).topk(TOPK)
        return weights, indices

    def work(self, rows):
        """On [expert][row][hidden]."""
        return torch.bmm(torch.bmm(rows, self.up).relu(), self.down)


class Distributed(Experts):
    def forward(self, x):
        weights, indices = self.route(x)
        batch = expert_ops.dispatch(x, indices, weights, experts="moe", order="padded")
        return expert_ops.combine(self.work(batch.rows), batch)


class OnOneRank(Experts):
    def forward(self, x):
        weights, indices = self.route(x)
        everyone = self.work(x.expand(len(self.up), *x.shape)).transpose(0, 1)  # [token][expert][hidden]
        chosen = everyone.gather(1, indices.unsqueeze(-1).expand(-1, -1, HIDDEN))
        return (weights.unsqueeze(-1) * chosen).sum(1)


def losses(layer, x, target, add_up):
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
    result = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = (layer(x) - target).square().mean() / dist.get_world_size()
        loss.backward()
        for each in add_up:  # what every rank has
            dist.all_reduce(each.grad)
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        result.append(total)
    return torch.stack(result)


def main():
    device = init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    experts = EXPERTS_OF_RANK * size
    group = mscclpp.CommGroup(torch_group=dist.group.WORLD)
    limits = {"experts": experts, "topk": TOPK, "tokens": TOKENS, "hidden": HIDDEN, "dtype": "float32"}
    expert_ops.register("moe", mscclpp.ExpertParallel(group, **limits))

    torch.manual_seed(rank)
    x, target = (torch.randn(TOKENS, HIDDEN).to(device) for _ in range(2))
    own = slice(EXPERTS_OF_RANK * rank, EXPERTS_OF_RANK * (rank + 1))
    ours, alone = Distributed(own, experts).to(device), OnOneRank(slice(None), experts).to(device)
    result = losses(ours, x, target, [ours.router])
    torch.testing.assert_close(result, losses(alone, x, target, list(alone.parameters())), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ours.up, alone.up[own], rtol=1e-4, atol=1e-5)
    assert result[-1] < result[0]
    print(f"rank {rank}: losses from {result[0]:.3f} to {result[-1]:.3f} and the experts are right")
    group.barrier()
    expert_ops.unregister("moe")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
