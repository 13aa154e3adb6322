#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# exports.py LIBRARY: it has every function of NCCL 2.28.9 and 2.30.7 (functions.txt), each also with a p before its name
# but one, and shows nothing else.
"""Compares what a library exports with NCCL's functions."""

import os
import subprocess
import sys

ALONE = {"ncclResetDebugInitInternal"}
OWN = {"mscclppNcclSimSetDevice"}


def main():
    with open(os.path.join(os.path.dirname(__file__), "functions.txt"), encoding="utf-8") as file:
        names = set(file.read().split())
    wanted = names | {"p" + name for name in names - ALONE}
    listed = subprocess.run(["nm", "-D", "--defined-only", sys.argv[1]], stdout=subprocess.PIPE, text=True, check=True)
    found = {line.split()[-1] for line in listed.stdout.splitlines()}
    missing = sorted(wanted - found)
    foreign = sorted(found - wanted - OWN)
    for name in missing:
        print(f"error: {name} is missing")
    for name in foreign:
        print(f"error: {name} is shown, but none of NCCL's")
    print(f"{len(wanted)} functions wanted, {len(found)} shown")
    return 1 if missing or foreign else 0


sys.exit(main())
