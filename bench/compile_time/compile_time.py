#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What this library costs at compile time, against the budget in budget.json.
#
#   compile_time.py [--nvcc=NVCC] [--cxx=COMPILER] [--include=FOLDER]...
#
# Per compiler: the standard, CCCL and CUDA headers that the umbrella needs, alone; the umbrella; the umbrella and one
# allreduce. `umbrella` is what it adds to the headers that it needs, `instantiation` what the allreduce adds to the
# umbrella. Counted are instructions, in multiples of those of the needed headers; by nvcc those of the device's half, since
# the host's is the C++ compiler's. Exits with 77 where there is no Valgrind.
"""Measures what compilations cost against a budget."""

import argparse
import json
import os
import re
import shutil
import sys
import tempfile

from compilation import instructions_of, source_of

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


def measure(name, command, phase, suffix, kernel, excluded, folders):
    """Returns {what: times the needed headers} for one compiler."""
    includes = "".join(f"#include <{header}>\n" for header in outside_includes(UMBRELLA, folders, excluded))
    empty = f"{kernel} void empty(unsigned* p) {{ *p = 1; }}\n"
    units = {
        "needed headers": includes + empty,
        "with umbrella": f'#include "{UMBRELLA}"\n{empty}',
        "with allreduce": f'#include "{UMBRELLA}"\n{empty}' + ALLREDUCE % kernel,
    }
    command = [*command, "-std=c++20", *[f"-I{folder}" for folder in folders]]
    with tempfile.TemporaryDirectory(prefix="mscclpp-compile-time-") as folder:
        counts = []
        for what, text in units.items():
            counts.append(instructions_of([*command, *source_of(folder, "unit" + suffix, text, phase)]))
            print(f"{name:5} {what:16} {counts[-1] / 1e9:7.2f} G instructions", flush=True)
    headers, umbrella, allreduce = counts
    return {"umbrella": (umbrella - headers) / headers, "instantiation": (allreduce - umbrella) / headers}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nvcc", help="nvcc to measure")
    parser.add_argument("--cxx", help="C++ compiler to measure")
    parser.add_argument("--include", action="append", default=[], help="further include folders (the generated one)")
    arguments = parser.parse_args()
    if not arguments.nvcc and not arguments.cxx:
        parser.error("give --nvcc, --cxx or both")
    if not shutil.which("valgrind"):
        print("skipped: no valgrind here, which counts instructions")
        return 77
    folders = [os.path.join(ROOT, "include"), *[folder for folder in arguments.include if folder]]
    with open(os.path.join(HERE, "budget.json"), encoding="utf-8") as file:
        budget = json.load(file)
    costs = {}
    if arguments.nvcc:
        costs["nvcc"] = measure("nvcc", [arguments.nvcc, "-O2", "-arch=compute_90"], "--ptx", ".cu", "__global__", "/sim/",
                                folders)
    if arguments.cxx:
        costs["c++"] = measure("c++", [arguments.cxx, "-O2"], "-c", ".cpp", "", "/arch/cuda/", folders)
    over = 0
    for name, cost in costs.items():
        for what, times in cost.items():
            limit = budget[name][what]
            too_much = times > limit
            over += too_much
            print(f"{name:5} {what:16} {times:7.3f} of {limit:.3f} times the headers{'   OVER BUDGET' if too_much else ''}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
