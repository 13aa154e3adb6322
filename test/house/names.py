#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Holds the tables of docs/coming_from*.md to the sources: what stands in code in the column `here` are names of this
# library, and where that says `the same`, so are those of the column before.
#
#   names.py check --root=FOLDER
#   names.py self-test
#
# Exit status 0: all are there; 1: some are not, which are printed.
"""Checks the names that tables of documents give."""

import glob
import os
import re
import sys

import command_line

# What has names: headers, the package, and the lists of what is built and run.
SOURCES = ("include/mscclpp/**/*.hpp", "python/mscclpp/**/*.py", "python/src/*.cpp", "src/collectives/call/*.cpp",
           "bench/CMakeLists.txt", "tools/CMakeLists.txt", "src/nccl/CMakeLists.txt")
WORD = re.compile(r"[A-Za-z_]\w*")


def known_names(root):
    names = set()
    for pattern in SOURCES:
        for path in glob.glob(os.path.join(root, pattern), recursive=True):
            with open(path, encoding="utf-8") as file:
                names.update(WORD.findall(file.read()))
    return names


def names_in(cell):
    """Of the code in a cell: without arguments, and without what stands ahead of a dot: the object's own name."""
    for code in re.findall(r"`([^`]+)`", cell):
        while re.search(r"\([^()]*\)|\{[^{}]*\}|<[^<>]*>", code):
            code = re.sub(r"\([^()]*\)|\{[^{}]*\}|<[^<>]*>", "", code)
        if "." in code and not code.endswith((".hpp", ".so")):
            code = code.split(".", 1)[1]
        if not code.endswith((".hpp", ".so")):
            yield from WORD.findall(code)


def complaints(page, text, known):
    here, rows = None, 0
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("|"):
            here = None
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if here is None:
            here = next((place for place, cell in enumerate(cells) if cell.startswith("here")), -1)
            continue
        if here < 1 or set(line) <= set("|-: "):
            continue
        rows += 1
        said = list(names_in(cells[here]))
        if cells[here].startswith("the same"):
            said += names_in(cells[here - 1])
        for name in said:
            if name not in known:
                yield f"{page}:{number}: {name} is no name of this library"
    if rows == 0:
        yield f"{page}: no table with a column `here`"


def check(root):
    known, found = known_names(root), []
    pages = sorted(glob.glob(os.path.join(root, "docs", "coming_from*.md")))
    for page in pages:
        with open(page, encoding="utf-8") as file:
            found += complaints(os.path.relpath(page, root), file.read(), known)
    for complaint in found:
        print(f"error: {complaint}")
    return 1 if found or not pages else 0


def self_test():
    known = {"Team", "rank", "put", "poll", "Order"}

    def judge(rows):
        return list(complaints("page.md", f"| there | here | what |\n|---|---|---|\n{rows}", known))

    assert judge("| `x` | `Team::rank()`, `put<Order>(a, b)` | `c` |\n") == []
    assert judge("| `group.put(x)` | the same | |\n| | | |\n") == []
    assert judge("| `x` | `Teem` | |\n") == ["page.md:3: Teem is no name of this library"]
    assert judge("| `pul`, `poll` | the same | |\n") == ["page.md:3: pul is no name of this library"]
    assert judge("") == ["page.md: no table with a column `here`"]
    assert list(complaints("page.md", "| a | b |\n|---|---|\n| `x` | `y` |\n", known)) == [
        "page.md: no table with a column `here`"]
    print("wrong names are found")
    return 0


if __name__ == "__main__":
    sys.exit(command_line.run(__doc__, "check", check, self_test))
