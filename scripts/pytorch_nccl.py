#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Runs PyTorch, unmodified, on this library's libmscclpp_nccl.so, and fails where training comes out otherwise than by gloo.
#
#   scripts/pytorch_nccl.py [--library=FOLDER] [--ranks=N] [--ways=LIST] [--behind=FILE] [--suite=N] [--files=FOLDER]
#                           [--tests=PATTERN] [--seconds=S] [--limit=S] [--pretend=N] [--keep=FOLDER] [--list]
#
# --library=  where libmscclpp_nccl.so is; default build/gpu/apps/nccl
# --ranks=    default: one for each GPU, at least 2; more than there are GPUs share them (start MPS first)
# --ways=     of test/nccl/pytorch_training.py, separated by commas; default all
# --behind=   NVIDIA's libnccl.so.2, for what this library does not do (MSCCLPP_NCCL_LIB_PATH)
# --suite=N   also PyTorch's own tests of its process groups (torch.testing._internal.distributed.distributed_test, which
#             its wheel has), N at a time; what fails with PyTorch's own NCCL too is listed, not counted. Without MPS,
#             whose server takes all its clients along when one of them fails
# --files=    PyTorch's test/distributed, of its sources: its files of tests for NCCL, composable FSDP and tensors
#             (pytorch_files.py), as many at a time as --suite= says (default 4), with a table at the end. What fails
#             with PyTorch's own NCCL too is listed, not counted, where each rank has a GPU: ranks that share one, NCCL
#             refuses
# --tests=    of those, the ones in whose name the regular expression is found
# --seconds=  after which no further test of the suite is begun
# --limit=    seconds of one test of a file
# --pretend=  how many GPUs these tests are told of; default 2 where there is one, else those that there are
# --keep=     what each of these tests has said, in a file of its own, and the table
# --list      just names the tests of --files=, which needs no GPU
#
# One line a way: 'right' where all 20 losses are gloo's within 1e-5 and this library was the one called. The last line is
# 'N passed, N failed'.
"""PyTorch on libmscclpp_nccl.so."""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from pytorch_files import files_suite, table, tests_of, FILES
from pytorch_suite import SAFE, end_all, environment_of, run, suite

ROOT = pathlib.Path(__file__).resolve().parent.parent
TRAINING = ROOT / "test" / "nccl" / "pytorch_training.py"
TOLERANCE = 1e-5  # relative, of a loss

def train(way, backend, ranks, folder, environment):
    """The losses, the file of the NCCL that was called, and what was said."""
    output = folder / f"{way}_{backend}.json"
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}", "--master-port=0",
               "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "--no-python", "env",
               *(f"{name}={value}" for name, value in environment.items()), sys.executable, str(TRAINING), way,
               f"--backend={backend}", f"--output={output}"]
    status, said = run(command, 300, env={**os.environ, **SAFE})
    if status != 0 or not output.exists():
        return None, "", said[-4500:]
    found = json.loads(output.read_text())
    return found["losses"][way], found["nccl"], ""


def verdict(losses, expected, called, library):
    furthest = max(abs(a - b) / abs(b) for a, b in zip(losses, expected))
    if len(losses) != len(expected) or not furthest <= TOLERANCE:
        return f"WRONG: a loss is {furthest:.1e} from gloo's"
    if not pathlib.Path(called).resolve().is_relative_to(library):
        return f"WRONG: what was called is {called}"
    return f"right, {furthest:.1e} from gloo's, {expected[0]:.4f} to {expected[-1]:.4f}"


def compared(here, theirs):
    """(passed, failed) of tests; names those that failed, and what PyTorch's own NCCL does with them."""
    passed = failed = 0
    for test, line in here.items():
        passed += line.startswith("passed")
        if not line.startswith("failed"):
            continue
        there = theirs.get(test, "not run")
        same = there.startswith("failed")
        failed += not same
        print(f"{'as with NCCL' if same else 'here alone'}: {test}: {line}; NCCL: {there}")
    return passed, failed


def list_files(source, pretended):
    """Names the tests of the files."""
    with tempfile.TemporaryDirectory() as name:
        variables = environment_of(pathlib.Path(name), pretended, {})
        found = [(file, *tests_of(source, file, variables)) for file in FILES if (source / file).exists()]
    for file, names, why in found:
        print(f"{file}: {len(names)} tests{': ' + why if why else ''}")
        for each in names:
            print(f"  {each}")
    return 1 if not found or any(why for _, _, why in found) else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", default="build/gpu/apps/nccl")
    parser.add_argument("--ranks", type=int)
    parser.add_argument("--ways", default="ddp,compiled,functional,fsdp,tensor,sequence,pipeline,graph")
    parser.add_argument("--behind")
    parser.add_argument("--suite", type=int, default=0)
    parser.add_argument("--files")
    parser.add_argument("--limit", type=int, default=90)
    parser.add_argument("--pretend", type=int)
    parser.add_argument("--keep")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--tests", default="")
    parser.add_argument("--seconds", type=float, default=1800)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, end_all)
    if arguments.list:
        return list_files(pathlib.Path(arguments.files or "."), arguments.pretend or 2)
    library = pathlib.Path(arguments.library).resolve()
    preload = library / "libnccl.so.2"
    if not preload.exists():
        raise SystemExit(f"error: --library={library} holds no libnccl.so.2; build the target mscclpp_nccl")
    gpus = int(subprocess.run([sys.executable, "-c", "import torch; print(torch.cuda.device_count())"],
                              capture_output=True, text=True, check=True).stdout)
    if gpus == 0:
        raise SystemExit("error: PyTorch sees no GPU here")
    ranks = arguments.ranks or max(gpus, 2)
    preloaded = {"LD_PRELOAD": str(preload)}
    if arguments.behind:
        preloaded["MSCCLPP_NCCL_LIB_PATH"] = arguments.behind
    passed = failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        ways = [way for way in arguments.ways.split(",") if way]
        expected, _, said = train("ddp", "gloo", ranks, folder, {}) if ways else ([], "", "")
        if expected is None:
            raise SystemExit(f"error: gloo does not train here:\n{said}")
        for way in ways:
            start = time.monotonic()
            losses, called, said = train(way, "nccl", ranks, folder, preloaded)
            line = verdict(losses, expected, called, library) if losses else f"WRONG:\n{said}"
            passed, failed = (passed + 1, failed) if line.startswith("right") else (passed, failed + 1)
            print(f"{way:12} {ranks} ranks, {time.monotonic() - start:3.0f} s: {line}", flush=True)
        here, theirs = {}, {}
        if arguments.files:
            source = pathlib.Path(arguments.files).resolve()
            keep = pathlib.Path(arguments.keep).resolve() if arguments.keep else folder / "files"
            pretended = arguments.pretend or (2 if gpus == 1 else 0)
            end = time.monotonic() + arguments.seconds
            given = {"at_once": arguments.suite or 4, "pattern": arguments.tests, "pretended": pretended,
                     "limit": arguments.limit}
            here = files_suite(source, folder=keep, end=end,
                               preloaded={**preloaded, "MSCCLPP_KERNEL_TIMEOUT": "60"}, **given)
            wrong = [test for test, line in here.items() if line.startswith("failed")]
            if wrong and pretended <= gpus:
                theirs = files_suite(source, folder=folder / "theirs", end=end + 60, preloaded={}, only=wrong, **given)
            lines = table(here)
            print("\n".join(lines))
            (keep / "table.md").write_text("\n".join([*lines, ""]), encoding="utf-8")
        elif arguments.suite:
            end = time.monotonic() + arguments.seconds
            here = suite("nccl", arguments.suite, ranks, folder / "here", {**preloaded, "MSCCLPP_KERNEL_TIMEOUT": "60"}, end,
                         pattern=arguments.tests)
            wrong = [test for test, line in here.items() if line.startswith("failed")]
            theirs = suite("nccl", arguments.suite, ranks, folder / "theirs", {}, end + 60, wrong)
        more = compared(here, theirs)
        passed, failed = passed + more[0], failed + more[1]
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
