#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Times plans interpreted, compiled at run time, and compiled by nvcc as programs are ahead, and writes Markdown.
#
#   scripts/late_plans.py [--plan=PROGRAM] [--size=64K] [--device=cuda|sim] PLAN.json...
#
# --plan=    default build/gpu/bench/mscclpp-plan
# --size=    of a rank's larger buffer; rounded up to what the plan takes
# --device=  sim: try this script where there is no GPU; the figures mean nothing
#
# A process for each rank; more ranks than GPUs share them (start MPS first). Each plan is compiled into an empty cache,
# which the second run finds. Ends with status 1 where a result is wrong.
"""Plans as tables and as code."""

import argparse
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile

SAFE = {"NCCL_NVLS_ENABLE": "0", "MSCCLPP_NVLS": "0"}  # never through the switch's multicast
LIMIT = 120                                            # seconds of one run
ROUND_UP = re.compile(r"multiple of .* as (\S+) is")


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def run(program, plan, ranks, size, arguments, environment):
    """What rank 0 says; the other ranks' output where one of them fails."""
    base = {**os.environ, **SAFE, **environment}
    command = ["timeout", "--kill-after=5", str(LIMIT), program, "run", plan, f"--size={size}", *arguments]
    if ranks == 1 or "--device=sim" in arguments:
        result = subprocess.run(command, env=base, capture_output=True, text=True, check=False)
        return result.returncode, result.stdout + result.stderr
    base.update({"MSCCLPP_SECRET": os.urandom(8).hex(), "MSCCLPP_WORLD_SIZE": str(ranks), "MSCCLPP_MASTER_ADDR": "127.0.0.1",
                 "MSCCLPP_MASTER_PORT": free_port()})
    started = [subprocess.Popen(command, env={**base, "MSCCLPP_RANK": str(rank)}, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True) for rank in range(ranks)]
    texts = [process.communicate()[0] for process in started]
    failed = [text for process, text in zip(started, texts) if process.returncode != 0]
    return (1, failed[0]) if failed else (0, texts[0])


def measure(options, plan, ranks, folder):
    arguments = [f"--device={options.device}"]
    if options.device == "cuda":
        arguments += ["--iterations=50", "--replays=40"]
    forms = {"table": ([], {}), "late": (["--compiled"], {}), "kept": (["--compiled"], {})}
    if options.device == "cuda":
        forms["nvcc"] = (["--compiled"], {"MSCCLPP_NVCC": os.environ.get("MSCCLPP_NVCC", "nvcc")})
    size, row = options.size, {}
    for form, (more, environment) in forms.items():
        environment = {"MSCCLPP_NVCC": "", **environment, "MSCCLPP_CACHE_DIR": str(folder)}
        status, text = run(options.plan, plan, ranks, size, arguments + more, environment)
        if status == 2 and (fits := ROUND_UP.search(text)):
            size = fits.group(1)
            status, text = run(options.plan, plan, ranks, size, arguments + more, environment)
        if status != 0:
            return None, text.strip().rsplit("\n", 1)[-1]
        median = float(re.search(r" (?:graph|eager)\S*\s+([\d.]+)", text).group(1))
        took = re.search(r"which took (\S+) s", text)
        row[form] = (median, float(took.group(1)) if took else 0)
    row["size"] = size
    return row, ""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plan", default="build/gpu/bench/mscclpp-plan")
    parser.add_argument("--size", default="64K")
    parser.add_argument("--device", default="cuda", choices=("cuda", "sim"))
    parser.add_argument("plans", nargs="+")
    options = parser.parse_args()
    print("Microseconds of a call, the slowest rank's median; seconds that the first and the second process took to have the "
          "kernel.\n")
    print("| plan | ranks | size | interpreted | compiled late | by nvcc | late / nvcc | interpreted / late | first | second |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    wrong = False
    for plan in options.plans:
        ranks = len(json.loads(pathlib.Path(plan).read_text(encoding="utf-8"))["gpus"])
        with tempfile.TemporaryDirectory() as folder:
            row, why = measure(options, plan, ranks, pathlib.Path(folder))
        name = pathlib.Path(plan).stem
        if row is None:
            print(f"| {name} | {ranks} | {why} |||||||||")
            wrong = True
            continue
        table, late, nvcc = row["table"][0], row["kept"][0], row.get("nvcc", (0, 0))[0]
        print(f"| {name} | {ranks} | {row['size']} | {table:.2f} | {late:.2f} | {nvcc:.2f} | "
              f"{late / nvcc if nvcc else 0:.3f} | {table / late:.2f} | {row['late'][1]:.2f} | {row['kept'][1]:.3f} |", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
