#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The times of nccl-tests on this library and on NVIDIA's, side by side, as Markdown (scripts/nccl_tests.sh --beside=).
#
#   scripts/nccl_table.py NAME LOG_HERE LOG_THERE [NAME LOG_HERE LOG_THERE]...
#
# A log is what one of the programs printed. Ends with status 1 where one has no row that the other has, or a wrong element.
"""Tables of nccl-tests on two libraries."""

import math
import pathlib
import re
import sys

SMALL = 1 << 20  # bytes up to which the mean is shown, too
# Bytes, elements, type, operation if there is one, root; then time, two bandwidths and wrong elements, twice.
ROW = re.compile(r"^ +(\d+) +\d+ +\S+ +(?:[a-z]+ +)?-?\d+ +([\d.]+) +[\d.]+ +[\d.]+ +(\S+) +([\d.]+) +[\d.]+ +[\d.]+ +(\S+)")


def rows_of(log):
    """Bytes to (microseconds out of place, in place, wrong elements)."""
    rows = {}
    for line in pathlib.Path(log).read_text(encoding="utf-8", errors="replace").splitlines():
        if found := ROW.match(line):
            size, out, wrong_out, within, wrong_in = found.groups()
            wrong = sum(int(each) for each in (wrong_out, wrong_in) if each != "N/A")
            rows[int(size)] = (float(out), float(within), wrong)
    return rows


def size_text(count):
    for shift, unit in ((30, "G"), (20, "M"), (10, "K")):
        if count >= 1 << shift and count % (1 << shift) == 0:
            return f"{count >> shift}{unit}"
    return str(count)


def mean_of(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else float("nan")


def table(name, here, there):
    """Lines, and whether all was right and both have the same rows."""
    lines = ["", f"### {name}", "", "| bytes | here | in place | NCCL | in place | NCCL / here | in place |", "|---" * 7 + "|"]
    small, every = [], []
    for size in sorted(here.keys() & there.keys()):
        (out, within, _), (other_out, other_within, _) = here[size], there[size]
        cells = [f"{each:.2f}" for each in (out, within, other_out, other_within)]
        ratios = [b / a for a, b in ((out, other_out), (within, other_within)) if a > 0 and b > 0]
        every += ratios
        small += ratios if size <= SMALL else []
        lines.append("| " + " | ".join([size_text(size), *cells, *(f"{each:.2f}" for each in ratios)]) + " |")
    wrong = sum(row[2] for row in here.values())
    missing = here.keys() ^ there.keys()
    lines += ["", f"NCCL / here, geometric mean: {mean_of(small):.2f} up to {size_text(SMALL)}, {mean_of(every):.2f} of all, "
              f"least {min(every, default=float('nan')):.2f}. Wrong here: {wrong}."]
    if missing:
        lines.append(f"Not on both: {', '.join(map(size_text, sorted(missing)))}.")
    return lines, wrong == 0 and not missing and bool(every)


def main():
    arguments = sys.argv[1:]
    if not arguments or len(arguments) % 3 != 0:
        sys.exit("usage: scripts/nccl_table.py NAME LOG_HERE LOG_THERE [NAME LOG_HERE LOG_THERE]...")
    right = True
    print("Microseconds a call, as nccl-tests prints them.")
    for name, here, there in zip(arguments[::3], arguments[1::3], arguments[2::3]):
        lines, good = table(name, rows_of(here), rows_of(there))
        print("\n".join(lines))
        right = right and good
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
