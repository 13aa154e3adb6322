# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""python -m mscclpp: what this installation has; with --install it makes the default plans."""

from __future__ import annotations

import argparse
import os

from . import _mscclpp
from . import Device, __version__, include_path
from .default_algos import allreduce_multi_nodes
from .language import AllReduce, AlgoSpec

_PER_NODE = 8
# Nodes, bytes of a message from and to, and the blocks that share a step.
_DEFAULTS = ((2, 1 << 10, 64 << 10, 1), (2, 128 << 10, 2 << 20, 4), (4, 1 << 10, 64 << 10, 1), (4, 128 << 10, 2 << 20, 4))


def _text(size: int) -> str:
    return f"{size >> 20}M" if size >= 1 << 20 else f"{size >> 10}K"


def install(folder: str) -> list[str]:
    """Writes the default plans into a folder and returns their files. What is there under other names stays."""
    os.makedirs(folder, exist_ok=True)
    files = []
    for nodes, least, most, group in _DEFAULTS:
        name = f"allreduce_{nodes}nodes_{_text(least)}_{_text(most)}"
        spec = AlgoSpec(
            name=name,
            collective=AllReduce(_PER_NODE, 1, True),
            nranks_per_node=_PER_NODE,
            world_size=nodes * _PER_NODE,
            in_place=True,
            instances=1,
            protocol="LL",
            use_double_scratch_buffer=True,
            min_message_size=least,
            max_message_size=most,
        )
        plan = allreduce_multi_nodes(spec, thread_block_group_size=group).to_json()
        path = os.path.join(folder, name + ".json")
        with open(path + ".part", "w", encoding="utf-8") as file:
            file.write(plan)
        os.replace(path + ".part", path)
        files.append(path)
    return files


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m mscclpp", description=__doc__)
    parser.add_argument("--install", action="store_true", help="make the default plans, under MSCCLPP_CACHE_DIR")
    options = parser.parse_args()
    if options.install:
        cache = _mscclpp.cache_folder()
        if not cache:
            parser.error("there is no home folder; name one for plans in MSCCLPP_CACHE_DIR")
        for path in install(os.path.join(cache, "default")):
            print(path)
        return
    gpus = Device.count("cuda")
    if _mscclpp.has_cuda:
        machines = f"{gpus} GPUs, {Device.count('sim')} simulated ones"
    else:
        machines = f"{Device.count('sim')} simulated GPUs; built without a CUDA toolkit, so that it uses no real ones"
    print(f"mscclpp {__version__}: {machines}")
    print(f"headers: {include_path()}")
    library = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", "nccl", "libmscclpp_nccl.so")
    if os.path.exists(library):
        print(f"programs of NCCL run with LD_PRELOAD={library}")


if __name__ == "__main__":
    main()
