# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whether a library takes NCCL's place where it is preloaded."""

import os
import subprocess
import sys

PROGRAM = """
import ctypes
nccl, version = ctypes.CDLL("libnccl.so.2"), ctypes.c_int()
assert nccl.ncclGetVersion(ctypes.byref(version)) == 0 and nccl.mscclppNcclRegister
print(version.value)
"""


def check(library):
    """A program that asks the loader for NCCL gets this library, which needs no GPU for that."""
    assert os.path.isfile(library), f"there is no {library}"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MSCCLPP_")}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env={**environment, "LD_PRELOAD": library}, check=False,
                          capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, f"{library} is not NCCL to a program:\n{done.stderr}"
    assert int(done.stdout) >= 22800, f"{library} has NCCL's version {done.stdout}"
