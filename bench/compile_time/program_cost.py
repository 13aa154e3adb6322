#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What it costs to compile a kernel from a program: to prove the program and to turn its steps into code, against the
# budget in budget.json.
#
#   program_cost.py [--nvcc=NVCC] [--cxx=COMPILER] [--include=FOLDER]... [--architecture=90] [--only=SUBSTRING]...
#                   [--write=FILE]
#
# Counted are processor time, headers included, and the memory of the largest process. The budget is in times of what the
# same source takes without the kernel, since machines, and what else they do, differ by more than twice.
"""Measures what programs cost to compile and compares it with a budget."""

import argparse
import json
import os
import sys
import tempfile

from compilation import least_in_turn, source_of

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))

SOURCE = """#include "dsl/programs.hpp"
#include "mscclpp/dsl/kernel.hpp"
#include "mscclpp/launch/launch.hpp"
using namespace mscclpp;
#ifdef MSCCLPP_WITH_KERNEL
void start(Stream const& stream, float const* in, float* out, layout::PlanHandle const& plan,
           layout::WindowHandle const& window) {
  launch(stream, {.blocks = 1, .threads = 32}, dsl::Kernel<dsl_test::%s, float>{}, in, out, std::uint64_t{1}, plan,
         window, window);
}
#endif
"""

# What it is called, the type in test/dsl/programs.hpp, ranks, steps of a rank.
PROGRAMS = (
    ("two-shot all-reduce by packets, 4 ranks", "TwoShotPackets<4>", 4, 8),
    ("the same, 8 ranks", "TwoShotPackets<8>", 8, 16),
    ("the same, 8 ranks, 13 instances", "TwoShotPackets<8, 13>", 8, 208),
    ("the same, 32 ranks, 3 instances", "TwoShotPackets<32, 3>", 32, 192),
)

# Programs of this size are more than the compilers evaluate by themselves.
GCC_LIMITS = ("-fconstexpr-ops-limit=10000000000", "-fconstexpr-loop-limit=100000000")
NVCC_LIMITS = ("-Xcudafe", "--max_cost_constexpr_call=1000000000", *(f"-Xcompiler={flag}" for flag in GCC_LIMITS))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nvcc", help="nvcc to measure")
    parser.add_argument("--cxx", help="C++ compiler to measure")
    parser.add_argument("--include", action="append", default=[], help="further include folders (the generated one)")
    parser.add_argument("--architecture", default="90")
    parser.add_argument("--only", action="append", default=[], help="only programs whose name contains this")
    parser.add_argument("--write", metavar="FILE", help="write the table as a page")
    arguments = parser.parse_args()
    if not arguments.nvcc and not arguments.cxx:
        parser.error("give --nvcc, --cxx or both")
    with open(os.path.join(HERE, "budget.json"), encoding="utf-8") as file:
        budget = json.load(file)["programs"]
    folders = [f"-I{folder}" for folder in (os.path.join(ROOT, "include"), os.path.join(ROOT, "test"), *arguments.include)]
    compilers = {}
    if arguments.cxx:
        compilers["c++"] = (".cpp", [arguments.cxx, "-std=c++20", "-O2", *GCC_LIMITS, *folders])
    if arguments.nvcc:
        compilers["nvcc"] = (".cu", [arguments.nvcc, "-std=c++20", "-O2", f"-arch=sm_{arguments.architecture}",
                                     *NVCC_LIMITS, *folders])
    lines, over = [], 0
    with tempfile.TemporaryDirectory(prefix="mscclpp-program-cost-") as work:
        for title, program, ranks, steps in PROGRAMS:
            if arguments.only and not any(part in program for part in arguments.only):
                continue
            cells = []
            for name, (suffix, command) in compilers.items():
                limit = budget[name][program]
                headers = [*command, *source_of(work, "unit" + suffix, SOURCE % program)]
                times_of = lambda least: least[1].seconds / least[0].seconds
                least = least_in_turn([headers, [*headers, "-DMSCCLPP_WITH_KERNEL"]],
                                      lambda costs: times_of(costs) <= limit["times"])
                times, cost = times_of(least), least[1]
                late = times > limit["times"] or cost.megabytes > limit["megabytes"]
                over += late
                print(f"{program:22} {name:5} {cost.seconds:7.1f} s, {times:4.1f} times its headers of {limit['times']}, "
                      f"{cost.megabytes:6.0f} MB of {limit['megabytes']}{'   OVER BUDGET' if late else ''}", flush=True)
                cells.append(f"{cost.seconds:.1f} s, {times:.1f}, {cost.megabytes:.0f} MB")
            lines.append(f"| {title} | {steps} | {ranks * steps} | {' | '.join(cells)} |")
    if arguments.write:
        with open(arguments.write, "w", encoding="utf-8") as file:
            file.write("# What programs cost to compile\n\nWritten by `bench/compile_time/program_cost.py`: one source "
                       "with one kernel of a program of `test/dsl/programs.hpp`, proved and turned into code; processor "
                       "time, headers included, in times of the headers alone, and the memory of the largest process. "
                       "g++ 12 for the simulated machine, "
                       f"nvcc 13.0 for sm_{arguments.architecture}.\n\n"
                       f"| program | steps of a rank | in all | {' | '.join(compilers)} |\n|---|---|---|{'---|' * len(compilers)}\n")
            file.write("\n".join(lines) + "\n")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
