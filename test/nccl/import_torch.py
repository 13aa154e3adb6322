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
import pytorch_training, torch
print(torch.__version__, torch.distributed.is_nccl_available(), pytorch_training.provider())
"""


def main():
    library, python = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
    done = subprocess.run([python, "-B", "-c", PROGRAM], cwd=pathlib.Path(__file__).resolve().parent,
                          env={**os.environ, "LD_PRELOAD": str(library)}, capture_output=True, text=True, check=False)
    print(done.stdout + done.stderr)
    words = done.stdout.split()
    if done.returncode != 0 or len(words) != 3 or words[1] != "True" or pathlib.Path(words[2]).resolve() != library:
        raise SystemExit(f"PyTorch did not start on {library}")


if __name__ == "__main__":
    main()
