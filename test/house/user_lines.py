#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# How many lines a user writes for a fused kernel. What is counted are whole sections of examples: what stands between
# the heading `// ---- <section> ----` and the next such heading, without blank lines and comments.
#
#   user_lines.py count --root=FOLDER
#   user_lines.py self-test
#
# Exit status 0: no section is longer than its limit; 1: one is, or is missing.
"""Counts the lines of user code in examples."""

import os
import re
import sys
import tempfile

import command_line

# File, section, the most lines. A section of examples/cutlass is the types of kernels, one's own kernel, and the host
# code that starts both; that of the norm is the kernel.
TABLE = (
    ("examples/norm_allreduce/main.cpp", "the kernel", 20),
    ("examples/cutlass/products.hpp", "all-gather, product", 40),
    ("examples/cutlass/products.hpp", "product, reduce-scatter", 40),
)
HEADING = re.compile(r"^// ---- (.+?) -+$", re.MULTILINE)
# Strings, so that what looks like a comment inside them is none.
STRING_OR_COMMENT = re.compile(r'("(?:\\.|[^"\\\n])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)


def sections(text):
    """The text of each section, by its heading."""
    parts = HEADING.split(text)
    return dict(zip(parts[1::2], parts[2::2]))


def lines_of(text):
    """Lines with code on them; a comment leaves the ends of its lines."""
    code = STRING_OR_COMMENT.sub(lambda match: match.group(1) or "\n" * match.group().count("\n"), text)
    return sum(1 for line in code.splitlines() if line.strip())


def count(root, table):
    failed = False
    for name, section, limit in table:
        path = os.path.join(root, name)
        text = None
        if os.path.isfile(path):
            with open(path, encoding="utf-8") as file:
                text = sections(file.read()).get(section)
        lines = 0 if text is None else lines_of(text)
        if lines == 0:
            print(f"error: {name} has no code below a heading `// ---- {section} ----`")
        elif lines > limit:
            print(f"error: {name}, {section}: {lines} lines, {limit} are the most")
        else:
            print(f"{name}, {section}: {lines} lines of {limit}")
        failed |= not 0 < lines <= limit
    return failed


def self_test():
    """What is too long, missing or empty is found; what is no code is not counted."""
    text = """int before;
// ---- first ---------
// a comment

int a;  // beside code
/* two
   lines */ int b;
char const* c = "// none";
// ---- second ---------
/* int d; */
// ---- third ---------
int e; /* ends
here */
"""
    with tempfile.TemporaryDirectory(prefix="mscclpp-house-") as folder:
        with open(os.path.join(folder, "a.cpp"), "w", encoding="utf-8") as out:
            out.write(text)

        def fails(name, section, limit):
            return count(folder, [(name, section, limit)])

        assert not fails("a.cpp", "first", 3), "three lines are not three"
        assert fails("a.cpp", "first", 2), "a section that is too long passes"
        assert fails("a.cpp", "second", 9), "a section without code passes"
        assert not fails("a.cpp", "third", 1), "the last section has no end"
        assert fails("a.cpp", "fourth", 9), "a missing section passes"
        assert fails("b.cpp", "first", 9), "a missing file passes"
        assert count(folder, [("a.cpp", "first", 2), ("a.cpp", "third", 1)]), "a fault ahead of a good section passes"
    print("what is too long or missing is found")
    return False


if __name__ == "__main__":
    sys.exit(command_line.run(__doc__, "count", lambda root: count(root, TABLE), self_test))
