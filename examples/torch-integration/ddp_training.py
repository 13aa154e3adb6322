# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Data-parallel training over the backend mscclpp: each rank has a part of every batch, DDP averages the gradients.

    torchrun --nproc-per-node=2 ddp_training.py

On GPUs where there are some, else, and with MSCCLPP_DEVICE=sim, on the simulated machine. Each rank also trains a copy
of the network on whole batches, and compares the losses.
"""

import torch
import torch.distributed as dist
from setup_comm import init_process_group
from torch.nn.parallel import DistributedDataParallel

STEPS = 20
BATCH = 8  # of one rank


def network(device):
    torch.manual_seed(7)
    layers = torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 4)
    return torch.nn.Sequential(*layers).to(device)


def batch(step, ranks, device):
    """What all ranks together learn from in a step."""
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(ranks * BATCH, 16, generator=generator)
    return x.to(device), x[:, :4].sin().to(device)


def train(net, part, ranks, device):
    """The losses."""
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    losses = []
    for step in range(STEPS):
        x, y = batch(step, ranks, device)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(net(x[part]), y[part])
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def main():
    device = init_process_group()
    rank, ranks = dist.get_rank(), dist.get_world_size()

    losses = train(DistributedDataParallel(network(device)), slice(rank * BATCH, (rank + 1) * BATCH), ranks, device)
    dist.all_reduce(losses, dist.ReduceOp.AVG)  # of the parts: that of the whole batch
    alone = train(network(device), slice(None), ranks, device)
    torch.testing.assert_close(losses, alone, rtol=1e-4, atol=1e-6)
    print(f"rank {rank}: {STEPS} losses, from {losses[0]:.4f} to {losses[-1]:.4f}, are right")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
