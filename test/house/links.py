#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Follows the links of the repository's Markdown pages: the file is there, the heading is there, and each page of docs/
# is linked to from another one. Links to other servers are not followed.
#
#   links.py check --root=FOLDER
#   links.py self-test
#
# Exit status 0: all lead somewhere; 1: some do not, which are printed; 77: no git repository.
"""Checks links between Markdown pages."""

import os
import posixpath
import re
import sys
import tempfile

import command_line
import tools

FENCE = re.compile(r"^\s*(```|~~~)")
# A link, whose text may have code in it; or code, in which nothing is a link.
LINK_OR_CODE = re.compile(r"!?\[(?:[^\[\]`]|`[^`]*`)*\]\((?P<target>[^)\s]+)\)|`[^`]+`")
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$")


def lines_of(text):
    """(number, line) of those outside of code blocks."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            yield number, line


def anchors(text):
    """The names of headings, as GitHub makes them and as the site does."""
    seen, names = {}, set()
    for _, line in lines_of(text):
        heading = HEADING.match(line)
        if heading:
            said = re.sub(r"\]\([^)]*\)", "", heading.group(1))
            name = re.sub(r"[^\w\- ]", "", said.lower()).replace(" ", "-")
            names.add(f"{name}-{seen[name]}" if name in seen else name)
            seen[name] = seen.get(name, 0) + 1
    return names


def links(text):
    for number, line in lines_of(text):
        for match in LINK_OR_CODE.finditer(line):
            if match.group("target"):
                yield number, match.group("target")


def complaints(root, pages):
    texts = {}
    for page in pages:
        with open(os.path.join(root, page), encoding="utf-8") as file:
            texts[page] = file.read()
    reached = set()
    for page, text in texts.items():
        for number, target in links(text):
            if re.match(r"(https?|mailto):", target):
                continue
            path, _, anchor = target.partition("#")
            if path.startswith("/"):
                yield f"{page}:{number}: {target} is an absolute path"
                continue
            file = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
            if file.startswith("..") or not os.path.exists(os.path.join(root, file)):
                yield f"{page}:{number}: {target} leads to no file of the repository"
                continue
            if file != page:
                reached.add(file)
            if anchor and anchor not in anchors(texts.get(file, "")):
                yield f"{page}:{number}: {target}: {file} has no heading of that name"
    for page in texts:
        if page.startswith("docs/") and page not in reached:
            yield f"{page}: no other page links to it"


def check(root):
    pages = tools.tracked(root, ["*.md"])
    found = list(complaints(root, pages))
    for complaint in found:
        print(f"error: {complaint}")
    print(f"{len(pages)} pages, {len(found)} faults")
    return 1 if found or not pages else 0


def self_test():
    """Each kind of fault is found, and what looks like one is not."""
    good = {
        "README.md": "# One\n\n[two](docs/two.md#the-size-of-ab), ![picture](a.svg) and [here](#one-1)\n\n# One\n",
        "docs/two.md": "# Two\n\n## The `size` of a/b\n\n[up](../README.md) `[](nothing)`\n\n```\n[x](none.md)\n```\n"
                       "[away](https://example.org/x)\n",
        "a.svg": "",
    }

    def judge(**changes):
        with tempfile.TemporaryDirectory(prefix="mscclpp-house-") as root:
            files = {**good, **{name.replace("_", "/") + ".md": text for name, text in changes.items()}}
            for name, text in files.items():
                os.makedirs(os.path.dirname(os.path.join(root, name)), exist_ok=True)
                with open(os.path.join(root, name), "w", encoding="utf-8") as file:
                    file.write(text)
            return list(complaints(root, [name for name in files if name.endswith(".md")]))

    def finds(expected, **changes):
        found = judge(**changes)
        assert len(found) == 1 and expected in found[0], found

    assert judge() == [], judge()
    two = good["docs/two.md"]
    finds("docs/two.md:11: three.md leads to no file", docs_two=two + "[x](three.md)\n")
    finds("../../out.md leads to no file", docs_two=two + "[x](../../out.md)\n")
    finds("has no heading", docs_two=two + "[x](#one)\n")
    finds("has no heading", docs_two=two + "[the `x`](../README.md#three)\n")
    finds("is an absolute path", docs_two=two + "[x](/etc/hosts)\n")
    finds("docs/three.md: no other page", docs_three="# Three\n")
    print("each fault is found")
    return 0


if __name__ == "__main__":
    sys.exit(command_line.run(__doc__, "check", check, self_test))
