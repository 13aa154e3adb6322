#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Times training steps and decode steps of a transformer on several GPUs of one host, by one way of communicating.
#
#   torchrun --nproc-per-node=4 bench/torch/transformer.py --backend=nccl --way=NCCL --output=nccl.json
#     --train=ddp,fsdp2,tensor --decode
#   LD_PRELOAD=FOLDER/libnccl.so.2 torchrun ... --backend=nccl --way=preloaded     libmscclpp_nccl below NCCL's calls
#   torchrun ... --backend=mscclpp --way=backend
#   torchrun ... --backend=mscclpp --way=fused --fused --decode                    all-reduce and norm in one kernel
#   bench/torch/transformer_table.py nccl.json preloaded.json ...                  compares them
#
# --way is only a name. Without GPUs it runs on the CPU, by gloo or on the simulated machine (MSCCLPP_DEVICE=sim), to be
# tried with small numbers: the defaults are for GPUs of 80 GB. The file is written after each part; of a part that fails
# it has the reason, and the others go on. Exit status 1: one has failed.
"""What steps of a transformer take, by one way of communicating."""

import argparse
import ctypes
import datetime
import gc
import json
import os
import pathlib
import sys
import traceback

os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # two small functions

import torch
import torch.distributed as dist

import decode
import training

LIMIT = datetime.timedelta(seconds=120)  # of a collective: ranks do not wait longer for one that has failed


class World:
    """This rank, its device, and a group over gloo by which the ranks meet beside what is measured."""

    def __init__(self, backend):
        if backend == "mscclpp":
            import mscclpp.torch  # pylint: disable=import-outside-toplevel

            mscclpp.torch.register()
        self.cuda = backend != "gloo" and torch.cuda.is_available() and os.environ.get("MSCCLPP_DEVICE") != "sim"
        self.device, self.dtype = torch.device("cpu"), torch.float32
        if self.cuda:
            self.device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
            self.dtype = torch.bfloat16
            torch.cuda.set_device(self.device)
        dist.init_process_group(backend, timeout=LIMIT)
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.meeting = dist.new_group(backend="gloo", timeout=LIMIT)

    def synchronize(self):
        if self.cuda:
            torch.cuda.synchronize()

    def meet(self):
        """No device has anything left to do."""
        self.synchronize()
        dist.barrier(group=self.meeting)

    def combine(self, numbers, op):
        """Those of all ranks."""
        combined = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(combined, op=op, group=self.meeting)
        return combined.tolist()

    def everyones(self, value):
        """Each rank's value."""
        values = [None] * self.ranks
        dist.all_gather_object(values, value, group=self.meeting)
        return values

    def clean(self):
        """Frees what an earlier part has left."""
        gc.collect()
        if self.cuda:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()


def nccl_file():
    """The file whose ncclAllReduce is called. PyTorch loads its own as well, which nobody asks where another is ahead."""
    maps = pathlib.Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    try:
        address = ctypes.cast(ctypes.CDLL(None).ncclAllReduce, ctypes.c_void_p).value
    except AttributeError:  # none that everybody sees: PyTorch's own
        return next((line.split(maxsplit=5)[-1] for line in maps if "libnccl" in line), "")
    for line in maps:
        begin, end = (int(part, 16) for part in line.split(maxsplit=1)[0].split("-"))
        if begin <= address < end:
            return line.split(maxsplit=5)[-1]
    return ""


class Report:
    """The figures of all parts, in a file that tells at any time how far the run has come."""

    def __init__(self, world, options):
        self.world = world
        self.values = {
            "way": options.way, "backend": options.backend, "fused": options.fused, "ranks": world.ranks,
            "device": torch.cuda.get_device_name() if world.cuda else "CPU", "torch": torch.__version__,
            "nccl": nccl_file() if options.backend == "nccl" else "", "options": vars(options),
            "training": {}, "decode": {}, "errors": {}}  # fmt: skip

    def write(self):
        if self.world.rank == 0:
            text = json.dumps(self.values, indent=1) + "\n"
            pathlib.Path(self.values["options"]["output"]).write_text(text, encoding="utf-8")

    def part(self, kind, name, call):
        """Keeps what call() returns, or why it failed on some rank; whether it did not."""
        part, errors = f"{kind} {name}", self.values["errors"]
        errors[part] = "begun, and not ended"
        self.write()
        figures, error = None, ""
        try:
            self.world.clean()
            figures = call()
        except Exception as caught:  # pylint: disable=broad-exception-caught
            traceback.print_exc()
            error = f"rank {self.world.rank}: {type(caught).__name__}: {(str(caught).strip() or '-').splitlines()[0]}"
            errors[part] = error
            self.write()  # where others hang, the ranks do not meet again
        errors[part] = "; ".join(each for each in self.world.everyones(error) if each)
        said = errors[part] or (json.dumps(figures) if figures else "ready")
        if not errors[part]:
            del errors[part]
            if figures:
                self.values[kind][name] = figures
        self.write()
        if self.world.rank == 0:
            print(f"{self.values['way']}: {part}: {said}", flush=True)
        return part not in errors


def listed(text):
    for each in text.split(","):
        if each not in training.WAYS:
            raise argparse.ArgumentTypeError(f"{each}: allowed is a list of {', '.join(training.WAYS)}")
    return text.split(",")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=("nccl", "mscclpp", "gloo"), default="nccl")
    parser.add_argument("--way", required=True, help="what the results are called")
    parser.add_argument("--output", required=True, metavar="FILE.json")
    parser.add_argument("--train", type=listed, default=[], metavar="LIST", help=f"of {', '.join(training.WAYS)}")
    parser.add_argument("--decode", action="store_true")
    parser.add_argument("--fused", action="store_true", help="decode: all-reduce, addition and norm are one kernel")
    parser.add_argument("--batches", type=lambda text: [int(part) for part in text.split(",")],
                        default=[1, 2, 4, 8, 16, 32, 64])  # fmt: skip
    for what, numbers in (
        ("training", {"steps": 10, "blocks": 20, "width": 2048, "head": 128, "words": 32768, "length": 1024, "batch": 8}),
        ("decode", {"samples": 20, "layers": 16, "hidden": 8192, "heads": 64, "kv-heads": 8, "ffn": 28672, "cache": 1024}),
    ):
        group = parser.add_argument_group(f"numbers of {what}")
        for name, number in numbers.items():
            group.add_argument(f"--{name}", type=int, default=number, help=str(number))
    options = parser.parse_args()
    if options.fused and (options.backend != "mscclpp" or options.train):
        parser.error("--fused is for --backend=mscclpp and for --decode alone")
    return options


def main():
    options = arguments()
    world = World(options.backend)
    report = Report(world, options)
    ahead = [file for file in os.environ.get("LD_PRELOAD", "").split(":") if "nccl" in file]
    if ahead and options.backend == "nccl" and os.path.realpath(ahead[0]) != os.path.realpath(report.values["nccl"]):
        raise SystemExit(f"error: {ahead[0]} is preloaded, but what is called is {report.values['nccl']}")
    for way in options.train:
        report.part("training", way, lambda way=way: training.train(way, world, options))
    decoder = []
    if options.decode and report.part("decode", "model", lambda: decoder.append(decode.Decoder(world, options))):
        for batch in options.batches:
            report.part("decode", str(batch), lambda batch=batch: decoder[0].measure(batch))
    sys.stdout.flush()
    if report.values["errors"]:
        os._exit(1)  # the group's end might wait for what a failed part has left
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
