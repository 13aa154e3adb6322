#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Compares what a document shows with what it shows it of: files, their differences, and what mscclpp-check prints.
#
#   guide.py DOCUMENT --root=FOLDER --command=MSCCLPP-CHECK --object=NAME=FILE... [--update]
#   guide.py --self-test
#
# A fenced block belongs to the mark on the line above it:
#   <!-- file: path -->                       the file, without its licence line
#   <!-- diff: old new -->                    what turns the one file into the other
#   <!-- prints: mscclpp-check NAME ... -->   what the command prints about that object
# Times, counts of accesses and code addresses differ from machine to machine and are not compared; paths are shown from
# the root on. --update writes the document anew.
"""Driver of the guides."""

import argparse
import difflib
import os
import re
import shlex
import subprocess
import sys

import toolchain

MARK = re.compile(r"^<!--\s*(file|diff|prints):\s*(.*?)\s*-->$")
LICENCE = re.compile(r"^(//|#) SPDX-License-Identifier: .*\n(//|#)\n")
# What may differ between two machines that both are right.
VARYING = [(re.compile(r"\d+\.\d+ s\b"), "… s"), (re.compile(r"\d+ access(es)? checked"), "… accesses checked"),
           (re.compile(r"0x[0-9a-f]+"), "0x…")]


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return LICENCE.sub("", file.read(), count=1)


def difference(root, old, new):
    lines = difflib.unified_diff(read(root, old).splitlines(), read(root, new).splitlines(), lineterm="", n=3)
    return "\n".join(list(lines)[3:]) + "\n"  # without names and line numbers


def printed(root, command, objects, arguments):
    name, *others = shlex.split(arguments)[1:]
    if name not in objects:
        raise ValueError(f"no --object={name}=FILE was given for: {arguments}")
    done = subprocess.run([command, objects[name], *others], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          cwd=root, timeout=100, check=False)
    if done.returncode not in (0, 1):
        raise ValueError(f"{arguments}: exit status {done.returncode}\n{done.stdout}")
    return done.stdout.replace(os.path.realpath(root) + "/", "")


def same(shown, wanted):
    for pattern, mask in VARYING:
        shown, wanted = pattern.sub(mask, shown), pattern.sub(mask, wanted)
    return shown.rstrip() == wanted.rstrip()


def renewed(text, produce):
    """Returns (the document with every marked block as it should be, complaints about blocks that are not)."""
    lines = text.split("\n")
    result, complaints, marks, i = [], [], 0, 0
    while i < len(lines):
        result.append(lines[i])
        mark = MARK.match(lines[i])
        i += 1
        if not mark:
            continue
        marks += 1
        if i >= len(lines) or not lines[i].startswith("```"):
            raise ValueError(f"line {i}: the mark is not followed by a block")
        end = next((n for n in range(i + 1, len(lines)) if lines[n].startswith("```")), None)
        if end is None:
            raise ValueError(f"line {i + 1}: the block has no end")
        shown = "\n".join(lines[i + 1:end])
        wanted = produce(mark.group(1), mark.group(2))
        if same(shown, wanted):
            wanted = shown
        else:
            delta = difflib.unified_diff(shown.splitlines(), wanted.splitlines(), "shown", "is", lineterm="")
            complaints.append(f"line {i + 1}: {mark.group(1)}: {mark.group(2)}\n" + "\n".join(delta))
        result += [lines[i], *wanted.rstrip().split("\n"), lines[end]]
        i = end + 1
    if marks == 0:
        raise ValueError("no block is marked")
    return "\n".join(result), complaints


def check(document, produce, update):
    with open(document, encoding="utf-8") as file:
        text = file.read()
    try:
        new, complaints = renewed(text, produce)
    except ValueError as error:
        return [f"{document}: {error}"]
    if update and new != text:
        with open(document, "w", encoding="utf-8") as file:
            file.write(new)
        return []
    return [f"{document}: {complaint}" for complaint in complaints]


def self_test():
    """A driver that lets everything pass would be worse than none."""

    def judge(folder, shown, is_now, update=False):
        document = os.path.join(folder, "page.md")
        with open(document, "w", encoding="utf-8") as file:
            file.write(f"# Page\n\n<!-- prints: mscclpp-check x -->\n```text\n{shown}\n```\nend\n")
        complaints = check(document, lambda kind, what: is_now, update)
        with open(document, encoding="utf-8") as file:
            return complaints, file.read()

    def equal_passes(folder):
        assert judge(folder, "1 finding\nmore", "1 finding\nmore\n")[0] == []

    def another_line_is_reported(folder):
        complaints, _ = judge(folder, "race at x.cpp:12", "race at x.cpp:13\n")
        assert len(complaints) == 1 and "x.cpp:13" in complaints[0], complaints

    def times_may_differ(folder):
        assert judge(folder, "2 schedules, 0.12 s, 10 accesses checked @0x12", "2 schedules, 3.04 s, 99 accesses checked @0xff")[0] == []

    def update_writes_the_new_text(folder):
        complaints, text = judge(folder, "old", "new\nlines\n", update=True)
        assert complaints == [] and "```text\nnew\nlines\n```\nend\n" in text, text

    def mark_without_block_is_reported(folder):
        document = os.path.join(folder, "page.md")
        with open(document, "w", encoding="utf-8") as file:
            file.write("<!-- file: a -->\ntext\n")
        assert "not followed" in check(document, lambda kind, what: "", False)[0]

    def page_without_marks_is_reported(folder):
        document = os.path.join(folder, "page.md")
        with open(document, "w", encoding="utf-8") as file:
            file.write("text\n")
        assert check(document, lambda kind, what: "", False) != []

    def difference_shows_the_changed_line(folder):
        for name, middle in (("a", ""), ("b", "  sync();\n")):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(f"// SPDX-License-Identifier: x\n//\nput();\n{middle}signal();\n")
        assert difference(folder, "a", "b") == " put();\n+  sync();\n signal();\n"

    return toolchain.self_test([
        equal_passes, another_line_is_reported, times_may_differ, update_writes_the_new_text,
        mark_without_block_is_reported, page_without_marks_is_reported, difference_shows_the_changed_line,
    ])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("document", nargs="?")
    parser.add_argument("--root", default=".", help="folder that paths are relative to")
    parser.add_argument("--command", help="mscclpp-check")
    parser.add_argument("--object", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("--update", action="store_true", help="write the document anew")
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        return self_test()
    if not arguments.document or not arguments.command:
        parser.error("name a document and --command, or --self-test")
    objects = dict(each.split("=", 1) for each in arguments.object)

    def produce(kind, what):
        if kind == "file":
            return read(arguments.root, what)
        if kind == "diff":
            return difference(arguments.root, *what.split())
        return printed(arguments.root, arguments.command, objects, what)

    complaints = check(arguments.document, produce, arguments.update)
    for complaint in complaints:
        print(f"error: {complaint}")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
