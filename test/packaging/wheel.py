#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""pip install, from a copy of the sources into an environment of its own, and a first program on what was installed.

wheel.py --source=FOLDER --work=FOLDER [--define=NAME=VALUE ...]
"""

import argparse
import os
import shutil
import subprocess
import sys

FOLDERS = ("include", "src", "python", "cmake", "share")
FILES = ("CMakeLists.txt", "pyproject.toml", "README.md", "LICENSE")
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


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--define", action="append", default=[])
    options = parser.parse_args()
    # A copy, since pip must not find a build folder beside the sources.
    copy, target = os.path.join(options.work, "source"), os.path.join(options.work, "site")
    for folder in (copy, target):
        shutil.rmtree(folder, ignore_errors=True)
    for folder in FOLDERS:
        shutil.copytree(os.path.join(options.source, folder), os.path.join(copy, folder))
    for file in FILES:
        shutil.copy2(os.path.join(options.source, file), copy)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-build-isolation"]
    command += ["--no-deps", "--target", target, *(f"-Ccmake.define.{each}" for each in options.define), copy]
    subprocess.run(command, check=True)
    environment = {**os.environ, "PYTHONPATH": target}
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=True, env=environment, capture_output=True, text=True)
    if not done.stdout.startswith(target):
        raise SystemExit(f"the package was found in {done.stdout.strip()}, not in {target}")
    said = subprocess.run([sys.executable, "-m", "mscclpp"], check=True, env=environment, capture_output=True, text=True)
    if "built without a CUDA toolkit" not in said.stdout:
        raise SystemExit(f"it does not say that it simulates only: {said.stdout}")


if __name__ == "__main__":
    main()
