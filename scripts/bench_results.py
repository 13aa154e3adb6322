#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Puts the JSON files of one sitting into one table: those of mscclpp-bench --output and of the scripts in bench/peers/.
#
#   scripts/bench_results.py RESULT.json... [--output=MERGED.json | --output=TABLE.md]
#
# Without --output the table goes to stdout. Figures of different machines, or of one machine before and after it was
# started anew, are not put together. Where a case was measured more than once, the last file counts.
"""One table from the results of one sitting."""

import argparse
import json
import math
import sys

NEEDED = {"collective": str, "algorithm": str, "dtype": str, "op": str, "bytes": int, "ranks": int}
FIGURES = {"time_us": (int, float), "p99_us": (int, float), "busbw_gbps": (int, float)}
# What must not differ between files that are put together.
SAME = ("device", "boot")


class ResultsError(Exception):
    """A file that cannot be used: says which and why."""


def load(path):
    """The document in `path`, checked."""
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except OSError as error:
        raise ResultsError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ResultsError(f"{path}: no JSON: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("rows"), list):
        raise ResultsError(f'{path}: no benchmark result: it has no list "rows"')
    for number, row in enumerate(document["rows"]):
        check_row(row, f"{path}: row {number}")
    context = document.setdefault("context", {})
    if not isinstance(context, dict):
        raise ResultsError(f'{path}: "context" is no object')
    if not all(isinstance(part, dict) for part in context.get("merged", [])):
        raise ResultsError(f'{path}: "context" holds no list of objects under "merged"')
    return document


def check_row(row, where):
    """Throws unless the row has all that is used of it."""
    if not isinstance(row, dict):
        raise ResultsError(f"{where} is no object")
    if row.get("launch", "graph") != "graph":
        raise ResultsError(f"{where} was measured with --launch={row['launch']}; tables and plots are of --launch=graph")
    fields = NEEDED if "error" in row else {**NEEDED, **FIGURES}
    for field, kind in fields.items():
        value = row.get(field)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ResultsError(f'{where}: "{field}" is {json.dumps(value)}')
    if row["bytes"] < 1 or row["ranks"] < 1:
        raise ResultsError(f'{where}: "bytes" and "ranks" must be at least 1')
    if "error" not in row and not (math.isfinite(row["time_us"]) and row["time_us"] > 0):
        raise ResultsError(f'{where}: "time_us" is {row["time_us"]}')


def subject(row):
    """What can be compared."""
    return (row["collective"], row["dtype"], row["op"], row["ranks"], row["bytes"])


def good(row):
    """Measured, and no element was wrong."""
    return "error" not in row and not row.get("wrong")


def best(rows):
    """The fastest good one, or None."""
    return min((row for row in rows if good(row)), key=lambda row: row["time_us"], default=None)


def merge(documents):
    """One document, with each of our rows compared with every peer of it."""
    contexts = [context for document in documents for context in document["context"].get("merged", [document["context"]])]
    for field in SAME:
        values = {context[field] for context in contexts if context.get(field)}
        if len(values) > 1:
            raise ResultsError(f'not of one sitting: "{field}" is {" and ".join(sorted(values))}; only figures of one machine, '
                               "measured without starting it anew, can be compared")
    rows = {}
    for document in documents:
        for row in document["rows"]:
            rows[(*subject(row), row.get("peer", ""), row["algorithm"], row.get("in_place", False))] = dict(row)
    groups = {}
    for row in rows.values():
        groups.setdefault(subject(row), []).append(row)
    merged = []
    for key in sorted(groups):
        peers = [row for row in groups[key] if row.get("peer")]
        for row in groups[key]:
            for field in ("vs", "vs_best", "best_peer"):
                row.pop(field, None)
            if not row.get("peer") and "error" not in row:
                compare(row, peers)
            merged.append(row)
    return {"context": {"merged": contexts}, "rows": merged}


def compare(row, peers):
    """Adds to our row how many times as long the peers took."""
    names = {peer["peer"] for peer in peers}
    fastest = {name: best([peer for peer in peers if peer["peer"] == name]) for name in sorted(names)}
    fastest = {name: peer for name, peer in fastest.items() if peer}
    if not fastest:
        return
    row["vs"] = {name: peer["time_us"] / row["time_us"] for name, peer in fastest.items()}
    row["best_peer"] = min(fastest, key=lambda name: fastest[name]["time_us"])
    row["vs_best"] = row["vs"][row["best_peer"]]


def format_bytes(count):
    """"64K" for 65536."""
    for shift, unit in ((30, "G"), (20, "M"), (10, "K")):
        if count % (1 << shift) == 0:
            return f"{count >> shift}{unit}"
    return str(count)


def by_size(document):
    """{(collective, dtype, op, ranks): {bytes: {"": best of ours, peer: best of it}}}"""
    result = {}
    for row in document["rows"]:
        sizes = result.setdefault(subject(row)[:4], {})
        sizes.setdefault(row["bytes"], {}).setdefault(row.get("peer", ""), []).append(row)
    return {key: {size: {name: best(rows) for name, rows in entry.items()} for size, entry in sorted(sizes.items())}
            for key, sizes in result.items()}


def geometric_mean(values):
    """0 where there are none."""
    return math.exp(sum(math.log(value) for value in values) / len(values)) if values else 0


def markdown(document):
    """A table for each collective: ours and the best of each peer, by size."""
    text = []
    for (collective, dtype, op, ranks), sizes in sorted(by_size(document).items()):
        names = sorted({name for entry in sizes.values() for name in entry if name})
        text += [f"### {collective}, {dtype}{'' if op == 'none' else ' ' + op}, {ranks} ranks", "",
                 f"| size | this library us | p99 us | busbw GB/s | algorithm |{''.join(f' {name} us |' for name in names)} best peer / this |",
                 f"| ---: | ---: | ---: | ---: | --- |{' ---: |' * len(names)} ---: |"]
        ratios = []
        for size, entry in sizes.items():
            ours = entry.get("")
            peers = [entry[name]["time_us"] for name in names if entry.get(name)]
            cells = [format_bytes(size)]
            cells += [f"{ours['time_us']:.2f}", f"{ours['p99_us']:.2f}", f"{ours['busbw_gbps']:.2f}",
                      ours["algorithm"]] if ours else ["-"] * 4
            cells += [f"{entry[name]['time_us']:.2f}" if entry.get(name) else "-" for name in names]
            if ours and peers:
                ratios.append(min(peers) / ours["time_us"])
                cells.append(f"{ratios[-1]:.2f}")
            else:
                cells.append("-")
            text.append("| " + " | ".join(cells) + " |")
        if ratios:
            text += ["", f"Geometric mean of the last column: {geometric_mean(ratios):.2f}, least: {min(ratios):.2f}."]
        text.append("")
    return "\n".join(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", nargs="+", metavar="RESULT.json")
    parser.add_argument("--output", help="a .json or .md file; by default the table goes to stdout")
    options = parser.parse_args()
    if options.output and not options.output.endswith((".json", ".md")):
        parser.error(f"--output={options.output}: allowed is a file name that ends in .json or .md")
    try:
        document = merge([load(path) for path in options.results])
    except ResultsError as error:
        sys.exit(f"bench_results.py: {error}")
    if not options.output:
        print(markdown(document))
        return
    with open(options.output, "w", encoding="utf-8") as file:
        file.write(json.dumps(document, indent=2) + "\n" if options.output.endswith(".json") else markdown(document))


if __name__ == "__main__":
    main()
