#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What each composition of each collective costs: registers, stack and shared memory of its kernel, and the time to
# compile it, against the budget in budget.json.
#
#   kernel_cost.py --nvcc=NVCC --cxx=COMPILER [--include=FOLDER]... [--architecture=90] [--only=SUBSTRING]... [--write=FILE]
#
# One source per composition, with one kernel for bfloat16 (bytes where data is only moved) and any number of ranks. The
# time is processor time beyond that of the headers alone; its budget is in times of that, since machines, and what else
# they do, differ by more than twice.
"""Measures what kernels cost and compares it with a budget."""

import argparse
import dataclasses
import json
import os
import re
import sys
import tempfile

from compilation import cost_of, least_in_turn, source_of

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))

HEADERS = """#include "mscclpp/algorithms/catalogue.hpp"
#include "mscclpp/algorithms/collective/send_recv.hpp"
using namespace mscclpp;
"""

# Element of each collective that is measured.
ELEMENTS = {"allReduce": "bf16", "reduceScatter": "bf16", "reduce": "bf16", "allGather": "std::uint8_t",
            "allToAll": "std::uint8_t", "broadcast": "std::uint8_t", "gather": "std::uint8_t", "scatter": "std::uint8_t"}

KERNEL = """
using C = CompositionOf<Collective::%s, "%s">;
using Made = CollectiveOf<Collective::%s, C::Schedule, C::Transport>;
using T = %s;
__global__ void __launch_bounds__(512) measured(T const* in, T* out, std::size_t count, int root, __grid_constant__ const DeviceTeam team,
                         __grid_constant__ const layout::WindowHandle inWindow,
                         __grid_constant__ const layout::WindowHandle outWindow) {
  if constexpr (needsInWindow<Made> || needsOutWindow<Made>) {
    DirectKernel<Made, T>{}(in, out, count, root, team, inWindow, outWindow);
  } else {
    CollectiveKernel<Made, T>{}(in, out, count, root, team);
  }
}
static_assert(sharedBytesOf<C::Transport>() == %s);
"""

MESSAGES = """
__global__ void __launch_bounds__(512) measured(__grid_constant__ const layout::PointToPointHandle links,
                         __grid_constant__ const layout::Messages messages) {
  SendRecv<%s>{links}(thisGrid(), messages);
}
"""


@dataclasses.dataclass
class Cost:
    """Of one kernel."""
    collective: str
    algorithm: str
    registers: int
    stack: int
    shared: int
    seconds: float
    times: float


def catalogue(cxx, folders, work):
    """{collective: [(name, dynamic shared bytes)]}, as the headers have them; without what needs a switch."""
    text = "#include <cstdio>\n" + HEADERS + "int main() {\n"
    for one in ELEMENTS:
        text += (f'  Catalogue::forEachOf<Collective::{one}>([]<class C>() {{ if (!throughSwitch<typename C::Transport>) '
                 f'std::printf("{one} %.*s %zu\\n", int(C::name.size()), C::name.data(), '
                 "sharedBytesOf<typename C::Transport>()); });\n")
    text += "}\n"
    source, program = os.path.join(work, "names.cpp"), os.path.join(work, "names")
    with open(source, "w", encoding="utf-8") as file:
        file.write(text)
    cost_of([cxx, "-std=c++20", *folders, source, "-o", program])
    found = {one: [] for one in ELEMENTS}
    for line in cost_of([program]).output.splitlines():
        one, name, shared = line.split()
        found[one].append((name, int(shared)))
    return found


def units(known):
    """(collective, algorithm, dynamic shared bytes, source) of everything that is measured."""
    for collective, element in ELEMENTS.items():
        for name, shared in known[collective]:
            yield (collective.lower(), name, shared,
                   HEADERS + KERNEL % (collective, name, collective, element, shared))
    for name, packets in (("ll16", "LL16"), ("ll128", "LL128")):
        yield "sendrecv", name, 0, HEADERS + MESSAGES % packets


def resources_of(output):
    """Registers, stack and static shared bytes, of what ptxas printed."""
    used = re.search(r"Used (\d+) registers", output)
    stack = re.search(r"Function properties for \S*measured\S*\n\s*(\d+) bytes stack frame", output)
    shared = re.search(r"(\d+) bytes smem", output)
    number = lambda match: int(match.group(1)) if match else 0
    return number(used), number(stack), number(shared)


def limits_of(algorithm, budget):
    return {**budget["all"], **budget.get(algorithm, {})}


def measure(arguments, folders, budget):
    """Costs of all units that are asked for. Over its budget of time, a unit is measured again, in turn with the headers."""
    command = [arguments.nvcc, "-std=c++20", "-O2", f"-arch=sm_{arguments.architecture}", "-Xptxas=-v", *folders]
    costs = []
    with tempfile.TemporaryDirectory(prefix="mscclpp-kernel-cost-") as work:
        headers_alone = [*command, *source_of(work, "headers.cu", HEADERS)]
        headers = cost_of(headers_alone)
        for collective, algorithm, dynamic, source in units(catalogue(arguments.cxx, folders, work)):
            if arguments.only and not any(part in f"{collective}/{algorithm}" for part in arguments.only):
                continue
            unit = [*command, *source_of(work, "unit.cu", source)]
            limit = limits_of(algorithm, budget)["times"]
            within = lambda pair: pair[1].seconds - pair[0].seconds <= limit * pair[0].seconds
            pair = headers, cost_of(unit)
            if not within(pair):
                pair = least_in_turn([headers_alone, unit], within)
            registers, stack, shared = resources_of(pair[1].output)
            added = max(0.0, pair[1].seconds - pair[0].seconds)
            cost = Cost(collective, algorithm, registers, stack, shared + dynamic, added, added / pair[0].seconds)
            costs.append(cost)
            print(f"{collective:14} {algorithm:20} {registers:4} registers {stack:5} B stack {cost.shared:7} B shared "
                  f"{cost.seconds:6.2f} s, {cost.times:.2f} times the headers'", flush=True)
    return costs


def excesses(costs, budget):
    """Sentences about what is over its budget."""
    for cost in costs:
        key = f"{cost.collective}/{cost.algorithm}"
        limits = limits_of(cost.algorithm, budget)
        for what, value, unit in (("registers", cost.registers, ""), ("stack", cost.stack, " B"),
                                  ("shared", cost.shared, " B"), ("times", cost.times, "")):
            if value > limits[what]:
                yield f"{key}: {what} {value:g}{unit}, budget {limits[what]:g}{unit}"


def page(costs, budget, arguments):
    """The table, in Markdown."""
    version = cost_of([arguments.nvcc, "--version"]).output.split("release ")[-1].split(",")[0]
    limits = budget["all"]
    lines = [
        "# What the kernels cost",
        "",
        f"Written by `bench/compile_time/kernel_cost.py`: nvcc {version}, sm_{arguments.architecture}, bfloat16 sums, or bytes "
        "where data is only moved, for any number of ranks, in blocks of up to 512 threads; a user's own epilogue comes on top. Seconds are processor time "
        "beyond that of the headers. Budget, unless `budget.json` says otherwise: "
        f"{limits['registers']} registers, {limits['stack']} bytes of stack, {limits['shared']} bytes of shared memory, "
        f"{limits['times']} times the headers' own time.",
        "",
        "| collective | algorithm | registers | stack, bytes | shared memory, bytes | compile time, s |",
        "|---|---|---|---|---|---|",
    ]
    lines += [f"| {c.collective} | `{c.algorithm}` | {c.registers} | {c.stack} | {c.shared} | {c.seconds:.1f} |" for c in costs]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--cxx", default="c++")
    parser.add_argument("--include", action="append", default=[], help="further include folders (the generated one)")
    parser.add_argument("--architecture", default="90")
    parser.add_argument("--only", action="append", default=[], help="only where collective/algorithm contains this")
    parser.add_argument("--write", help="write the table as a page")
    arguments = parser.parse_args()
    folders = [f"-I{folder}" for folder in [os.path.join(ROOT, "include"), *arguments.include] if folder]
    with open(os.path.join(HERE, "budget.json"), encoding="utf-8") as file:
        budget = json.load(file)["kernels"]
    costs = measure(arguments, folders, budget)
    if not costs:
        raise SystemExit("error: nothing is called like that")
    over = list(excesses(costs, budget))
    for sentence in over:
        print(f"OVER BUDGET: {sentence}")
    if arguments.write:
        with open(arguments.write, "w", encoding="utf-8") as file:
            file.write(page(costs, budget, arguments))
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
