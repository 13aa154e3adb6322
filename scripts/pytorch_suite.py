#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# PyTorch's own tests of its process groups (torch.testing._internal.distributed.distributed_test, which is in its wheel)
# on the backend "mscclpp" for tensors of the CPU, which takes gloo's place there: each test that asks for gloo gets it.
#
#   scripts/pytorch_suite.py [--ranks=N] [--at-once=N] [--tests=PATTERN] [--seconds=S]
#
# Run it by a Python that has PyTorch, expecttest and the package mscclpp. --at-once= tests run beside each other; --tests=
# those whose name the regular expression finds; --seconds= after which no further test is begun. Tests that fail are run
# with gloo, too: what fails there as well does not count. The last line is 'N passed, N failed, N skipped'.
"""PyTorch's tests of process groups on the backend mscclpp, on the CPU."""

import argparse
import concurrent.futures
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

# Never through the switch's multicast, which may be forbidden where this runs.
SAFE = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "OMP_NUM_THREADS": "4"}


def run(command, limit, **options):
    """The exit status, None after `limit` seconds, and what was said. Ranks that hang go with whoever started them, or
    they would hold the GPU of what runs next."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
                          **options) as started:
        try:
            text = started.communicate(timeout=limit)[0]
            return started.returncode, text
        except subprocess.TimeoutExpired as late:
            said = (late.stdout or b"").decode(errors="replace")
        for end in (signal.SIGTERM, signal.SIGKILL):  # torchrun ends its own workers
            os.killpg(started.pid, end)
            try:
                started.communicate(timeout=40)
                break
            except subprocess.TimeoutExpired:
                continue
        return None, said + f"\n{limit} s"


SUITE = """
import os, sys
if os.environ.get("MSCCLPP_AS_GLOO"):
    import torch.distributed.distributed_c10d as c10d
    import mscclpp.torch
    c10d.ProcessGroupGloo = mscclpp.torch.build().ProcessGroupMscclpp
from torch.testing._internal.common_utils import run_tests
from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend
class TestDistBackendWithSpawn(TestDistBackend, DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._spawn_processes()
if __name__ == "__main__":
    if sys.argv[1:] == ["list"]:
        print("\\n".join(name for name in dir(TestDistBackendWithSpawn) if name.startswith("test_")))
    else:
        run_tests()
"""


def suite(backend, at_once, ranks, folder, environment, end, names=None, pattern=""):
    """Verdict of each test that is named, or fits the pattern: 'passed', 'skipped: why' or 'failed: its error'."""
    folder.mkdir()
    program = folder / "suite.py"
    program.write_text(SUITE)
    base = {**os.environ, **SAFE, "BACKEND": backend, "WORLD_SIZE": str(ranks), "INIT_METHOD": "env://",
            "MASTER_ADDR": "127.0.0.1"}
    if names is None:
        listed = subprocess.run([sys.executable, str(program), "list"], env={**base, "TEMP_DIR": str(folder)},
                                capture_output=True, text=True, check=False)
        if listed.returncode != 0:
            raise SystemExit(f"error: PyTorch's tests cannot be loaded:\n{listed.stderr[-2000:]}")
        names = [name for name in listed.stdout.split() if re.search(pattern, name)]

    def one(number, name):
        if time.monotonic() > end:
            return name, "not run: no time left"
        own = folder / name
        for part in ("barrier", "test_dir", "init_dir"):
            (own / part).mkdir(parents=True, exist_ok=True)
        variables = {**base, **environment, "TEMP_DIR": str(own), "MASTER_PORT": str(21000 + number)}
        status, text = run([sys.executable, str(program), "-v", f"TestDistBackendWithSpawn.{name}"], 120, env=variables,
                           cwd=own)
        if status is None:
            return name, "failed: 120 s"
        if status != 0:
            errors = re.findall(r"^(?:\w+\.)*\w*(?:Error|Exception)\b.*", text, re.MULTILINE)
            return name, "failed: " + (errors[0] if errors else text.strip().rsplit("\n", 1)[-1])[:160]
        skipped = re.search(r"skipped '?(.*?)'?$", text, re.MULTILINE) or re.search(r"skipped=\d+", text)
        return name, f"skipped: {skipped.group(skipped.lastindex or 0)}"[:160] if skipped else "passed"

    verdicts = {}
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        for name, line in pool.map(one, range(len(names)), names):
            print(f"{folder.name}: {name}: {line}", flush=True)
            verdicts[name] = line
    return verdicts


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--at-once", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument("--tests", default="")
    parser.add_argument("--seconds", type=float, default=3600)
    arguments = parser.parse_args()
    subprocess.run([sys.executable, "-c", "import mscclpp.torch; mscclpp.torch.build()"], check=True)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        end = time.monotonic() + arguments.seconds
        ours = {"MSCCLPP_AS_GLOO": "1", "MSCCLPP_DEVICE": "sim"}
        here = suite("gloo", arguments.at_once, arguments.ranks, folder / "here", ours, end, pattern=arguments.tests)
        wrong = [test for test, line in here.items() if line.startswith("failed")]
        theirs = suite("gloo", arguments.at_once, arguments.ranks, folder / "gloo", {}, end + 120, wrong)
    failed = [test for test in wrong if not theirs[test].startswith("failed")]
    passed = sum(line.startswith("passed") for line in here.values())
    skipped = sum(line.startswith("skipped") for line in here.values())
    print(f"{passed} passed, {len(failed)} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
