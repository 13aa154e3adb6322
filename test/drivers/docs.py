#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Compiles the code that a document shows.
#
#   docs.py DOCUMENT --compiler=COMPILER --machine=sim|cuda -- FLAGS...
#   docs.py --self-test --compiler=COMPILER
#
# A ```cpp block is compiled as a source of its own when the line above it is `<!-- compile: sim -->`,
# `<!-- compile: cuda -->` or `<!-- compile: sim cuda -->`; compiler messages carry the document's line numbers.
"""Driver of the documentation tests."""

import argparse
import os
import re
import sys
import tempfile

import toolchain

MACHINES = ("sim", "cuda")
MARK = re.compile(r"^<!--\s*compile:(.*?)-->\s*$")


def blocks(document):
    """Yields (first line number, machines, code) of each marked block; raises ValueError for a mark that marks nothing."""
    with open(document, encoding="utf-8") as file:
        lines = file.read().split("\n")
    for number, line in enumerate(lines):
        mark = MARK.match(line)
        if not mark:
            continue
        machines = mark.group(1).split()
        if not machines or any(machine not in MACHINES for machine in machines):
            raise ValueError(f"{document}:{number + 1}: compile: wants {' or '.join(MACHINES)}, got '{mark.group(1)}'")
        if number + 1 >= len(lines) or lines[number + 1].strip() != "```cpp":
            raise ValueError(f"{document}:{number + 1}: the mark is not followed by ```cpp")
        start = number + 2
        end = next((i for i in range(start, len(lines)) if lines[i].strip() == "```"), None)
        if end is None:
            raise ValueError(f"{document}:{start}: the block has no end")
        yield start + 1, machines, "\n".join(lines[start:end]) + "\n"


def check(document, compiler, machine, flags):
    """Returns a list of complaints; empty when every block for the machine compiles."""
    complaints = []
    compiled = 0
    try:
        for line, machines, code in blocks(document):
            if machine not in machines:
                continue
            compiled += 1
            with tempfile.TemporaryDirectory(prefix="mscclpp-docs-") as folder:
                source = os.path.join(folder, "block.cu" if machine == "cuda" else "block.cpp")
                with open(source, "w", encoding="utf-8") as file:
                    file.write(f'#line {line} "{document}"\n{code}')
                command = [compiler, *toolchain.usable_flags(flags), "-c", "-o", os.path.join(folder, "block.o"), source]
                status, output = toolchain.compile_source(command)
            if status != 0:
                complaints.append(f"{document}:{line}: the block does not compile:\n{output}")
    except ValueError as error:
        complaints.append(str(error))
    if not complaints and compiled == 0:
        complaints.append(f"{document} has no block for {machine}")
    return complaints


def self_test(compiler):
    """A driver that lets everything pass would be worse than none."""

    def judge(folder, text):
        document = os.path.join(folder, "page.md")
        with open(document, "w", encoding="utf-8") as file:
            file.write(text)
        return check(document, compiler, "sim", ["-std=c++20"])

    def good_block_passes(folder):
        assert judge(folder, "# Page\n\n<!-- compile: sim -->\n```cpp\nint value = 1;\n```\n") == []

    def bad_block_is_reported_with_its_line(folder):
        complaints = judge(folder, "# Page\n\n<!-- compile: sim cuda -->\n```cpp\nint good;\nint bad = ;\n```\n")
        assert len(complaints) == 1 and "page.md:6" in complaints[0], complaints

    def unmarked_block_is_left_alone(folder):
        text = "```cpp\nnot code\n```\n<!-- compile: cuda -->\n```cpp\nnot code\n```\n<!-- compile: sim -->\n```cpp\nint a;\n```\n"
        assert judge(folder, text) == []

    def blocks_do_not_see_each_other(folder):
        block = "<!-- compile: sim -->\n```cpp\nint value = 1;\n```\n"
        assert judge(folder, block + block) == []

    def no_block_is_reported(folder):
        assert judge(folder, "<!-- compile: cuda -->\n```cpp\nint a;\n```\n") != []

    def unknown_machine_is_reported(folder):
        assert any("wants sim or cuda" in c for c in judge(folder, "<!-- compile: simm -->\n```cpp\nint a;\n```\n"))

    def mark_without_block_is_reported(folder):
        assert any("not followed" in c for c in judge(folder, "<!-- compile: sim -->\n\n```cpp\nint a;\n```\n"))

    return toolchain.self_test([
        good_block_passes, bad_block_is_reported_with_its_line, unmarked_block_is_left_alone,
        blocks_do_not_see_each_other, no_block_is_reported, unknown_machine_is_reported, mark_without_block_is_reported,
    ])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("document", nargs="?")
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--machine", choices=MACHINES, default="sim")
    parser.add_argument("--self-test", action="store_true")
    own, flags = toolchain.split_arguments(sys.argv[1:])
    arguments = parser.parse_args(own)
    if arguments.self_test:
        return self_test(arguments.compiler)
    if not arguments.document:
        parser.error("name a document, or --self-test")
    complaints = check(arguments.document, arguments.compiler, arguments.machine, flags)
    for complaint in complaints:
        print(f"error: {complaint}")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
