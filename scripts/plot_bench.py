#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Draws time and bus bandwidth against size, this library and its peers, from the JSON files of one sitting.
#
#   scripts/plot_bench.py RESULT.json... [--out=FOLDER] [--name=NAME] [--format=svg,png] [--collective=LIST] [--install]
#
# Writes FOLDER/NAME-<collective>-<dtype>-<op>.svg, by default bench-... in the current folder. Where several
# algorithms were measured, the fastest at each size is drawn. Needs matplotlib; --install gets it where it is missing,
# with the system's packages or else from PyPI.
"""Plots of benchmark results."""

import argparse
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

import bench_results

OURS = "this library"
# Distinguishable in print and by readers who do not tell red from green.
COLOURS = ("#0b5fa5", "#d1660a", "#3a8f3a", "#8c4b9e", "#6b6b6b", "#b8860b")
MARKERS = ("o", "s", "^", "D", "v", "P")


def series(document):
    """{(collective, dtype, op, ranks): {name: [(bytes, time us, busbw GB/s), ...]}}, ours first, by size."""
    result = {}
    for key, sizes in bench_results.by_size(document).items():
        lines = {}
        for size, entry in sizes.items():
            for name, row in entry.items():
                if row:
                    lines.setdefault(name or OURS, []).append((size, row["time_us"], row["busbw_gbps"]))
        names = sorted(lines, key=lambda name: (name != OURS, name))
        if names:
            result[key] = {name: lines[name] for name in names}
    return result


def title(key):
    """For people."""
    collective, dtype, op, ranks = key
    return f"{collective}, {dtype}{'' if op == 'none' else ' ' + op}, {ranks} ranks"


def file_stem(name, key):
    """NAME-allreduce-bfloat16-sum"""
    return "-".join([name, *key[:2], *([] if key[2] == "none" else [key[2]])])


def install_matplotlib():
    """Gets matplotlib, or ends with what to do."""
    root = os.geteuid() == 0
    if shutil.which("apt-get") and (root or shutil.which("sudo")):
        command = ["apt-get", "install", "--yes", "--no-install-recommends", "python3-matplotlib"]
        if subprocess.run(command if root else ["sudo", *command], check=False, stdout=subprocess.DEVNULL).returncode == 0:
            importlib.invalidate_caches()
            if importlib.util.find_spec("matplotlib"):
                return
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "matplotlib"], check=False)
    importlib.invalidate_caches()
    if not importlib.util.find_spec("matplotlib"):
        sys.exit("plot_bench.py: matplotlib could not be installed; do so by hand, with python3 -m pip install matplotlib")


def draw(key, lines, subtitle, files):
    """One figure: time on the left, bus bandwidth on the right."""
    import matplotlib   # pylint: disable=import-outside-toplevel
    matplotlib.use("Agg")
    from matplotlib import pyplot   # pylint: disable=import-outside-toplevel
    matplotlib.rcParams.update({"svg.hashsalt": "mscclpp", "font.size": 10, "axes.spines.top": False,
                                "axes.spines.right": False, "axes.edgecolor": "#999999"})
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.2))
    for number, (name, points) in enumerate(lines.items()):
        style = {"label": name, "color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)],
                 "markersize": 4, "linewidth": 2.2 if name == OURS else 1.3, "zorder": 3 if name == OURS else 2}
        left.plot([point[0] for point in points], [point[1] for point in points], **style)
        right.plot([point[0] for point in points], [point[2] for point in points], **style)
    sizes = sorted({point[0] for points in lines.values() for point in points})
    for axes, label in ((left, "time per operation, µs"), (right, "bus bandwidth, GB/s")):
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes[:: max(1, len(sizes) // 8)])
        axes.set_xticklabels([bench_results.format_bytes(size) for size in sizes[:: max(1, len(sizes) // 8)]])
        axes.minorticks_off()
        axes.set_xlabel("size, bytes")
        axes.set_ylabel(label)
        axes.grid(True, color="#e6e6e6", linewidth=0.8)
        axes.set_axisbelow(True)
    left.set_yscale("log")
    right.set_ylim(bottom=0)
    left.legend(frameon=False)
    figure.suptitle(title(key) + (f"\n{subtitle}" if subtitle else ""), fontsize=11)
    figure.tight_layout()
    for file in files:
        # Without the date, so that equal results give equal files.
        figure.savefig(file, dpi=144, metadata={"Date": None} if file.suffix == ".svg" else None)
    pyplot.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", nargs="+", metavar="RESULT.json")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("."))
    parser.add_argument("--name", default="bench")
    parser.add_argument("--format", default="svg")
    parser.add_argument("--collective", help="draw these only, such as allreduce,alltoall; default: all")
    parser.add_argument("--install", action="store_true")
    options = parser.parse_args()
    formats = options.format.split(",")
    for wanted in formats:
        if wanted not in ("svg", "png"):
            parser.error(f"--format={wanted}: allowed is a list of svg, png")
    try:
        document = bench_results.merge([bench_results.load(path) for path in options.results])
    except bench_results.ResultsError as error:
        sys.exit(f"plot_bench.py: {error}")
    figures = series(document)
    if options.collective:
        wanted = options.collective.split(",")
        figures = {key: lines for key, lines in figures.items() if key[0] in wanted}
    if not figures:
        sys.exit("plot_bench.py: the files hold no case that was measured with a right result")
    if not importlib.util.find_spec("matplotlib"):
        if not options.install:
            sys.exit("plot_bench.py: matplotlib is missing; --install gets it")
        install_matplotlib()
    options.out.mkdir(parents=True, exist_ok=True)
    devices = {context.get("device") for context in document["context"]["merged"]} - {None, ""}
    for key, lines in figures.items():
        stem = file_stem(options.name, key)
        files = [options.out / f"{stem}.{wanted}" for wanted in formats]
        draw(key, lines, ", ".join(sorted(devices)), files)
        for file in files:
            print(file)


if __name__ == "__main__":
    main()
