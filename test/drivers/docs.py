#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Compiles the code that a document shows.
#
#   docs.py DOCUMENT --compiler=COMPILER --machine=sim|cuda -- FLAGS...
#   docs.py --self-test --compiler=COMPILER
#
# A ```cpp block is compiled as a source of its own when the line above it is `<!-- compile: sim -->`,
# `<!-- compile: cuda -->` or `<!-- compile: sim cuda -->`; compiler messages carry the document's line numbers. Blocks
# that are for both machines, which thus are seen to compile alone, nvcc is given as one source, since most of its time
# goes into what they include; if that is refused, one by one.
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


def joined(document, chosen):
    """One source of several blocks: what they include, then each in a namespace of its own."""
    includes = []
    bodies = []
    for line, _, code in chosen:
        lines = code.split("\n")
        includes += [text for text in lines if text.startswith("#include")]
        rest = "\n".join("" if text.startswith("#include") else text for text in lines)
        bodies.append(f'namespace block_{line} {{\n#line {line} "{document}"\n{rest}\n}}\n')
    return "\n".join(includes) + "\n" + "".join(bodies)


def check(document, compiler, machine, flags):
    """Returns a list of complaints; empty when every block for the machine compiles."""

    def compiled(code):
        with tempfile.TemporaryDirectory(prefix="mscclpp-docs-") as folder:
            source = os.path.join(folder, "block.cu" if toolchain.is_nvcc(compiler) else "block.cpp")
            with open(source, "w", encoding="utf-8") as file:
                file.write(code)
            command = [compiler, *toolchain.usable_flags(flags), "-c", "-o", os.path.join(folder, "block.o"), source]
            return toolchain.compile_source(command)

    try:
        chosen = [block for block in blocks(document) if machine in block[1]]
    except ValueError as error:
        return [str(error)]
    if not chosen:
        return [f"{document} has no block for {machine}"]
    both = [block for block in chosen if {*MACHINES} <= {*block[1]}]
    if machine == "cuda" and len(both) > 1 and compiled(joined(document, both))[0] == 0:
        chosen = [block for block in chosen if block not in both]
    complaints = []
    for line, _, code in chosen:
        status, output = compiled(f'#line {line} "{document}"\n{code}')
        if status != 0:
            complaints.append(f"{document}:{line}: the block does not compile:\n{output}")
    return complaints


def self_test(compiler):
    """A driver that lets everything pass would be worse than none."""

    def judge(folder, text, machine="sim"):
        document = os.path.join(folder, "page.md")
        with open(document, "w", encoding="utf-8") as file:
            file.write(text)
        return check(document, compiler, machine, ["-std=c++20"])

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

    def blocks_of_one_source_may_have_equal_names(folder):
        block = "<!-- compile: sim cuda -->\n```cpp\n#include <vector>\nstd::vector<int> value;\n```\n"
        assert judge(folder, block + block, "cuda") == []

    def bad_block_beside_a_good_one_is_reported_with_its_line(folder):
        good, bad = (f"<!-- compile: sim cuda -->\n```cpp\nint value = {value};\n```\n" for value in ("1", ""))
        complaints = judge(folder, good + bad, "cuda")
        assert len(complaints) == 1 and "page.md:7" in complaints[0], complaints

    def blocks_that_cannot_be_joined_are_judged_alone(folder):
        block = "<!-- compile: sim cuda -->\n```cpp\nnamespace std { template <> struct hash<struct A>; }\n```\n"
        text = block.replace("namespace", "#include <string>\nstruct A {};\nnamespace")
        assert judge(folder, text + text, "cuda") == []

    def no_block_is_reported(folder):
        assert judge(folder, "<!-- compile: cuda -->\n```cpp\nint a;\n```\n") != []

    def unknown_machine_is_reported(folder):
        assert any("wants sim or cuda" in c for c in judge(folder, "<!-- compile: simm -->\n```cpp\nint a;\n```\n"))

    def mark_without_block_is_reported(folder):
        assert any("not followed" in c for c in judge(folder, "<!-- compile: sim -->\n\n```cpp\nint a;\n```\n"))

    return toolchain.self_test([
        good_block_passes, bad_block_is_reported_with_its_line, unmarked_block_is_left_alone,
        blocks_do_not_see_each_other, blocks_of_one_source_may_have_equal_names,
        bad_block_beside_a_good_one_is_reported_with_its_line, blocks_that_cannot_be_joined_are_judged_alone,
        no_block_is_reported, unknown_machine_is_reported, mark_without_block_is_reported,
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
