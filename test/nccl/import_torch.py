#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# PyTorch is imported with the library loaded first, and finds every function it links there: also where there is no GPU.
#
#   import_torch.py LIBRARY PYTHON
"""import torch on libmscclpp_nccl.so."""

import os
import pathlib
import subprocess
import sys

PROGRAM = """
import ctypes, pathlib, torch
address = ctypes.cast(ctypes.CDLL(None).ncclAllReduce, ctypes.c_void_p).value
for line in pathlib.Path("/proc/self/maps").read_text().splitlines():
    first, end = (int(part, 16) for part in line.split(maxsplit=1)[0].split("-"))
    if first <= address < end:
        print(torch.__version__, torch.distributed.is_nccl_available(), line.split(maxsplit=5)[-1])
"""


def main():
    library, python = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
    done = subprocess.run([python, "-c", PROGRAM], env={**os.environ, "LD_PRELOAD": str(library)}, capture_output=True,
                          text=True, check=False)
    print(done.stdout + done.stderr)
    words = done.stdout.split()
    if done.returncode != 0 or len(words) != 3 or words[1] != "True" or pathlib.Path(words[2]).resolve() != library:
        raise SystemExit(f"PyTorch did not start on {library}")


if __name__ == "__main__":
    main()
