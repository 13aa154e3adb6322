#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#   transformer_table.py FILE.json...       of transformer.py; ways are compared with that of the first file
#
# Prints Markdown. Exit status 1: a part has failed, or results differ: a loss or the first gradient's norm by 1%, the
# output of a decode step, of which there are eight projections, by 5%. Ways differ by the order in which bfloat16 is
# summed.
"""A table of what transformer.py has measured by several ways of communicating."""

import json
import math
import pathlib
import sys

LOSS, OUTPUT = 1e-2, 5e-2
TRAINING = """A step's seconds (the slowest rank's median), tokens a second, the furthest relative distance of a step's loss or the
first gradient's norm from the first way's, and the seconds in which kernels of communication ran, waits and what computing
hides included."""
DECODE = """A step's microseconds (the slowest rank's median), tokens a second, how much more that is than without any all-reduce,
and how many times faster than the first way."""


def merged(files):
    """Results by way, whose parts may be in several files."""
    ways = {}
    for file in files:
        found = json.loads(pathlib.Path(file).read_text(encoding="utf-8"))
        way = ways.setdefault(found["way"], found)
        for kind in ("training", "decode", "errors"):
            way[kind].update(found[kind])
    return ways


def training_cell(row, first):
    pairs = [*zip(row["losses"], first["losses"]), (row["gradient_norm"], first["gradient_norm"])]
    furthest = max(abs(value - wanted) / abs(wanted) for value, wanted in pairs)
    same = furthest <= LOSS and len(row["losses"]) == len(first["losses"])
    taken = row["communication_seconds"]
    return (f"{'' if same else 'WRONG: '}{row['seconds']:.4f} s, {row['tokens_per_second']:.0f}/s, {furthest:.0e}, "
            f"{'–' if taken is None else f'{taken:.4f} s'}")  # fmt: skip


def decode_cell(row, first):
    furthest = math.dist(row["projections"], first["projections"]) / math.hypot(*first["projections"])
    faults = [f"{row['wrong']} elements of a sum"] if row["wrong"] else []
    faults += [] if furthest <= OUTPUT else [f"output {furthest:.0e} off"]
    faults += [] if row["same_on_all_ranks"] else ["ranks differ"]
    return (f"{'WRONG: ' + ', '.join(faults) + ': ' if faults else ''}{row['microseconds']:.1f} µs, "
            f"{row['tokens_per_second']:.0f}/s, {row['microseconds_of_communication']:.1f} µs, "
            f"{first['microseconds'] / row['microseconds']:.2f}×")  # fmt: skip


def table(ways, kind, head, legend, cell):
    """Its lines. The first way with a row is what the others are compared with there."""
    names = dict.fromkeys(name for way in ways.values() for name in way[kind])
    lines = ["", f"### {head}", "", legend, "", f"| | {' | '.join(ways)} |", "|---" * (len(ways) + 1) + "|"] if names else []
    for name in names:
        rows = [way[kind].get(name) for way in ways.values()]
        first = next(row for row in rows if row)
        lines.append(f"| {name} | {' | '.join(cell(row, first) if row else '–' for row in rows)} |")
    return lines


def markdown(ways):
    numbers = next(iter(ways.values()))["options"]
    machines = dict.fromkeys(f"{way['ranks']} x {way['device']}, PyTorch {way['torch']}." for way in ways.values())
    head = "Training, {blocks} blocks, width {width}, {batch} sequences of {length} a rank".format(**numbers)
    lines = [*machines, *table(ways, "training", head, TRAINING, training_cell)]
    head = "Decode, {layers} layers, hidden {hidden}, FFN {ffn}, {cache} tokens in the cache, by batch".format(**numbers)
    lines += table(ways, "decode", head, DECODE, decode_cell)
    missing = [f"- {name}, {part}: {why}" for name, way in ways.items() for part, why in way["errors"].items()]
    return "\n".join([*lines, *(["", "Not measured:", "", *missing] if missing else []), ""])


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("error: name the files that transformer.py has written")
    text = markdown(merged(sys.argv[1:]))
    print(text, end="")
    sys.exit(1 if "WRONG" in text or "Not measured" in text else 0)
