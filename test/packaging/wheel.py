#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""pip install, from the sources or of a wheel, and a first program on what was installed.

wheel.py --source=FOLDER --work=FOLDER [--define=NAME=VALUE ...]
wheel.py --wheel=FILE --work=FOLDER [--kind=cuda|sim]    into a fresh environment
"""

import argparse
import os
import re
import shutil
import subprocess
import sys

import preload

PROGRAM = """
import mscclpp, numpy
from mscclpp.language import AllReduce
def rank(group):
    return group.all_reduce(numpy.full(1000, group.my_rank + 1.0)).sum()
assert mscclpp.run_ranks(4, rank, device="sim") == [10000.0] * 4
import os
assert os.path.isfile(os.path.join(mscclpp.include_path(), "mscclpp", "mscclpp.hpp"))
print(mscclpp.__file__)
"""


def from_source(options):
    """Installs it; which Python has it, in which environment, and in which folder."""
    target = os.path.join(options.work, "site")
    shutil.rmtree(target, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-build-isolation"]
    command += ["--no-deps", "--target", target, f"-Cbuild-dir={os.path.join(options.work, 'build')}"]
    # Where they lie: under another name a compiler's cache would know none of them.
    command += [*(f"-Ccmake.define.{each}" for each in options.define), options.source]
    subprocess.run(command, check=True)
    return sys.executable, {**os.environ, "PYTHONPATH": target}, target


def from_wheel(options):
    """The same of a wheel and what it needs."""
    shutil.rmtree(options.work, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", options.work], check=True)
    python = os.path.join(options.work, "bin", "python")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, options.wheel], check=True)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return python, environment, os.path.realpath(options.work)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--source")
    what.add_argument("--wheel")
    parser.add_argument("--work", required=True)
    parser.add_argument("--kind", choices=("cuda", "sim"), default="sim")
    parser.add_argument("--define", action="append", default=[])
    options = parser.parse_args()
    python, environment, target = from_source(options) if options.source else from_wheel(options)
    done = subprocess.run([python, "-c", PROGRAM], check=True, env=environment, capture_output=True, text=True)
    if not os.path.realpath(done.stdout.strip()).startswith(os.path.realpath(target)):
        raise SystemExit(f"the package was found in {done.stdout.strip()}, not in {target}")
    said = subprocess.run([python, "-m", "mscclpp"], check=True, env=environment, capture_output=True, text=True)
    if ("built without a CUDA toolkit" in said.stdout) != (options.kind == "sim"):
        raise SystemExit(f"it does not say whether it simulates only: {said.stdout}")
    library = re.search(r"LD_PRELOAD=(.*)", said.stdout)
    if (library is not None) != (options.kind == "cuda"):
        raise SystemExit(f"NCCL's interface comes with CUDA alone: {said.stdout}")
    if library:
        preload.check(library.group(1))


if __name__ == "__main__":
    main()
