#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# exports.py LIBRARY COMPILER: it has every function of NCCL 2.28.9 and 2.30.7 (functions.txt), each also with a p before
# its name but one, and shows nothing else; built by g++ it needs no library that a machine may lack.
"""Compares what a library exports with NCCL's functions."""

import os
import re
import subprocess
import sys

ALONE = {"ncclResetDebugInitInternal"}
EVERYWHERE = ("libc.so", "libm.so", "libdl.so", "librt.so", "libpthread.so", "ld-linux", "libgcc_s.so",
              "libboost_context.so")  # the last of the simulated machine
OWN = {"mscclppNcclRegister", "mscclppNcclUnregister", "mscclppNcclSimSetDevice", "mscclppNcclSimCreateStream",
       "mscclppNcclSimSynchronizeStream", "mscclppNcclSimDestroyStream"}


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
    dynamic = subprocess.run(["readelf", "-d", sys.argv[1]], stdout=subprocess.PIPE, text=True, check=True).stdout
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
    rare = [name for name in needed if not name.startswith(EVERYWHERE)] if sys.argv[2] == "GNU" else []
    for name in rare:
        print(f"error: it needs {name}")
    print(f"{len(wanted)} functions wanted, {len(found)} shown; needs {', '.join(needed)}")
    return 1 if missing or foreign or rare else 0


sys.exit(main())
