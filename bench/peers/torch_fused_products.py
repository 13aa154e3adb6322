#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Times PyTorch's products that are fused with a collective by symmetric memory, and its pairs of cuBLAS and NCCL, on the
# shapes of mscclpp-bench-parallel and in its way: dependent only by the stream, in a CUDA graph, the slowest rank of each
# replay, median and p99 over replays.
#
#   torchrun --nproc_per_node=2 bench/peers/torch_fused_products.py [--rows=LIST] [--layers=TEXT] [--operations=N]
#     [--replays=N]
#
# Multicast must stay off; the script refuses to run without the variables that keep it off. Fails where a result is wrong.
"""A peer of mscclpp-bench-parallel: PyTorch's fused products."""

import argparse
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

from torch_symmetric_memory import graph_times, quantile, refuse_multicast

MODELS = {"8B": (4096, 4096, 2048, 14336), "70B": (8192, 8192, 2048, 28672)}  # hidden, attention, keys and values, inner


def shapes_of(ranks, rows):
    """(layer, whether it gathers, rows, columns, inner) as of mscclpp-bench-parallel."""
    for name, (hidden, attention, keys_and_values, inner) in MODELS.items():
        for m in rows:
            m = -(-m // ranks) * ranks
            yield f"{name} qkv", True, m, (attention + keys_and_values) // ranks, hidden
            yield f"{name} o", False, m, hidden, attention // ranks
            yield f"{name} gate, up", True, m, 2 * inner // ranks, hidden
            yield f"{name} down", False, m, hidden, inner // ranks


class Bench:
    """This rank."""

    def __init__(self, options):
        self.options = options
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.group = dist.group.WORLD.group_name
        self.stream = torch.cuda.Stream()
        torch.manual_seed(100 + self.rank)

    def whole_numbers(self, rows, columns):
        """-1, 0 and 1, of which a product is the same in any order."""
        return torch.randint(-1, 2, (rows, columns), device="cuda").bfloat16()

    def arms(self, gathers, x, w):
        """By name: what one operation does, and returns."""
        out_rows = x.shape[0] * self.ranks if gathers else x.shape[0] // self.ranks
        if gathers:
            whole = torch.empty(out_rows, x.shape[1], dtype=x.dtype, device="cuda")

            def pair():
                dist.all_gather_into_tensor(whole, x)
                return whole @ w.t()

            def fused():
                return torch.ops.symm_mem.fused_all_gather_matmul(x, [w.t()], 0, self.group)[1][0]
        else:
            own = torch.empty(out_rows, w.shape[0], dtype=x.dtype, device="cuda")

            def pair():
                dist.reduce_scatter_tensor(own, x @ w.t())
                return own

            def fused():
                return torch.ops.symm_mem.fused_matmul_reduce_scatter(x, w.t(), "sum", 0, self.group)

        return {"PyTorch, cuBLAS and NCCL": pair, "PyTorch, fused": fused}

    def wrong(self, gathers, x, w, result):
        """Elements of the result that are wrong, on all ranks."""
        if gathers:
            whole = torch.empty(x.shape[0] * self.ranks, x.shape[1], dtype=x.dtype, device="cuda")
            dist.all_gather_into_tensor(whole, x)
            wanted = whole.float() @ w.float().t()
            slack = 2.0**-8 * wanted.abs()
        else:
            wanted = x.float() @ w.float().t()
            slack = wanted.abs()
            dist.all_reduce(wanted)
            dist.all_reduce(slack)
            own = slice(self.rank * result.shape[0], (self.rank + 1) * result.shape[0])
            # Each of the ranks' partial sums may be rounded to bfloat16, in any order.
            wanted, slack = wanted[own], slack[own] * (self.ranks * 2.0**-8)
        count = (~((result.float() - wanted).abs() <= slack)).sum()
        dist.all_reduce(count)
        return int(count.item())

    def run(self):
        """Prints a line for each arm of each shape; how many elements were wrong."""
        total = 0
        for layer, gathers, rows, columns, inner in shapes_of(self.ranks, self.options.rows):
            if self.options.layers not in layer:
                continue
            x = self.whole_numbers(rows // self.ranks if gathers else rows, inner)
            w = self.whole_numbers(columns, inner)
            for arm, operate in self.arms(gathers, x, w).items():
                head = f"| {layer} | {rows} x {columns} x {inner} | {arm} |"
                try:
                    wrong = self.wrong(gathers, x, w, operate())
                    times = graph_times(self.stream, lambda _: operate(), self.options.operations,
                                        self.options.replays, lead=1)
                except (RuntimeError, AttributeError, NotImplementedError, TypeError, ValueError) as error:
                    line = f"{head} not measured: {str(error).strip().splitlines()[0]} | | |"
                else:
                    line = f"{head} {quantile(times, 0.5):.1f} | {quantile(times, 0.99):.1f} | {wrong} |"
                    total += wrong
                if self.rank == 0:
                    print(line, flush=True)
        return total


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=lambda text: [int(each) for each in text.split(",")],
                        default=[512, 1024, 2048, 4096, 8192])
    parser.add_argument("--layers", default="")
    parser.add_argument("--operations", type=int, default=5)
    parser.add_argument("--replays", type=int, default=30)
    options = parser.parse_args()
    refuse_multicast()
    bench = Bench(options)
    symm_mem.enable_symm_mem_for_group(bench.group)
    if bench.rank == 0:
        print(f"PyTorch {torch.__version__}, NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}, {bench.ranks} x "
              f"{torch.cuda.get_device_name()}; us per operation in a graph of {options.operations}, median and p99 of "
              f"{options.replays}.\n\n| product | rows x columns x inner | arm | us | p99 | wrong |\n|---|---|---|---|---|---|")
    wrong = bench.run()
    dist.destroy_process_group()
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
