#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What this library costs at compile time, against the budget in budget.json (seconds).
#
#   compile_time.py [--nvcc=NVCC] [--cxx=COMPILER] [--runs=3] [--include=FOLDER]...
#
# Per compiler: an empty kernel; the standard, CCCL and CUDA headers that the umbrella needs, alone; the umbrella; the
# umbrella and one allreduce. Counted is processor time, the least of the runs, which take turns, so that other work on the
# machine does not show; over the budget all have up to twice as many runs more. `umbrella` is what it adds to the headers
# that it needs, `instantiation` what the allreduce adds to the umbrella. The budget is for a machine on which those
# headers alone take the `headers` of budget.json; a slower one has more.
"""Measures compile time against a budget."""

import argparse
import json
import os
import re
import sys
import tempfile

from compilation import least_in_turn, source_of

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
UMBRELLA = "mscclpp/mscclpp.hpp"

ALLREDUCE = """
using Collective = mscclpp::AllReduce<mscclpp::TwoShot, mscclpp::PacketTransport<mscclpp::LL128>, mscclpp::Sum>;
%s void allReduce(mscclpp::DeviceTeam team, float const* in, float* out, std::size_t count) {
  Collective{team}(mscclpp::thisGrid(), mscclpp::View{in, count}, mscclpp::View{out, count});
}
"""


def outside_includes(umbrella, folders, excluded):
    """The `#include <...>` lines of everything the umbrella reaches, without this library's own headers."""
    found, seen, queue = [], set(), [umbrella]
    while queue:
        header = queue.pop()
        if header in seen or excluded in header:
            continue
        seen.add(header)
        path = next((p for p in (os.path.join(f, header) for f in folders) if os.path.exists(p)), None)
        if path is None:
            raise SystemExit(f"error: {header} is in none of: {', '.join(folders)}")
        with open(path, encoding="utf-8") as file:
            text = file.read()
        queue += re.findall(r'^#include "(mscclpp/[^"]+)"', text, re.MULTILINE)
        found += re.findall(r"^#include <([^>]+)>", text, re.MULTILINE)
    return sorted(set(found))


def measure(name, command, suffix, kernel, excluded, folders, runs, budget):
    """Returns {what: (seconds, limit)} for one compiler."""
    includes = "".join(f"#include <{header}>\n" for header in outside_includes(UMBRELLA, folders, excluded))
    empty = f"{kernel} void empty(unsigned* p) {{ *p = 1; }}\n"
    command = [*command, "-std=c++20", *[f"-I{folder}" for folder in folders]]
    units = {
        "empty": empty,
        "needed headers": includes + empty,
        "with umbrella": f'#include "{UMBRELLA}"\n{empty}',
        "with allreduce": f'#include "{UMBRELLA}"\n{empty}' + ALLREDUCE % kernel,
    }

    def added_of(least):
        seconds = dict(zip(units, (cost.seconds for cost in least)))
        slower = max(1, seconds["needed headers"] / budget["headers"])
        added = {"umbrella": seconds["with umbrella"] - seconds["needed headers"],
                 "instantiation": seconds["with allreduce"] - seconds["with umbrella"]}
        return {what: (cost, budget[what] * slower) for what, cost in added.items()}

    with tempfile.TemporaryDirectory(prefix="mscclpp-compile-time-") as folder:
        commands = [[*command, *source_of(folder, f"unit{number}{suffix}", text)]
                    for number, text in enumerate(units.values())]
        within = lambda least: all(cost <= limit for cost, limit in added_of(least).values())
        least = least_in_turn(commands, within, turns=runs, most=3 * runs)
    for what, cost in zip(units, least):
        print(f"{name:5} {what:16} {cost.seconds:7.2f} s", flush=True)
    return added_of(least)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nvcc", help="nvcc to measure")
    parser.add_argument("--cxx", help="C++ compiler to measure")
    parser.add_argument("--include", action="append", default=[], help="further include folders (the generated one)")
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    if not arguments.nvcc and not arguments.cxx:
        parser.error("give --nvcc, --cxx or both")
    folders = [os.path.join(ROOT, "include"), *[folder for folder in arguments.include if folder]]
    with open(os.path.join(HERE, "budget.json"), encoding="utf-8") as file:
        budget = json.load(file)
    costs = {}
    if arguments.nvcc:
        costs["nvcc"] = measure("nvcc", [arguments.nvcc, "-O2", "-gencode=arch=compute_90,code=sm_90"], ".cu",
                                "__global__", "/sim/", folders, arguments.runs, budget["nvcc"])
    if arguments.cxx:
        costs["c++"] = measure("c++", [arguments.cxx, "-O2"], ".cpp", "", "/arch/cuda/", folders, arguments.runs,
                               budget["c++"])
    over = 0
    for name, cost in costs.items():
        for what, (seconds, limit) in cost.items():
            late = seconds > limit
            over += late
            print(f"{name:5} {what:16} {seconds:7.2f} s of {limit:.2f} s{'   OVER BUDGET' if late else ''}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
