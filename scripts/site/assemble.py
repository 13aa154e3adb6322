#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Puts together what MkDocs makes the site of.
#
#   assemble.py --root=FOLDER --out=FOLDER [--build=FOLDER]
#
# OUT/pages has the repository's Markdown pages under their own paths, so that links between them stay as they are; a
# page of each example; and the API reference. A link to a public header leads to its page of the reference, one to an
# example to its page, one to any other file to a copy of it. OUT/mkdocs.yml is mkdocs.yml with the pages in the order
# of navigation.txt. --build: a build folder, whose examples are run, and what they print on simulated GPUs is shown.
# Exit status 1: a link leads nowhere, navigation.txt names what is no page, or an example fails.
"""Assembles the pages of the site."""

import argparse
import json
import os
import posixpath
import re
import shutil
import subprocess
import sys
import tempfile

import api_reference
from cpp_header import trimmed

HERE = os.path.dirname(os.path.abspath(__file__))
LANGUAGES = {".hpp": "cpp", ".cpp": "cpp", ".cu": "cuda", ".h": "cpp", ".py": "python", ".sh": "bash", ".txt": "text",
             ".cmake": "cmake", ".json": "json"}
FENCE = re.compile(r"^\s*(```|~~~)")
# A link, whose text may have code in it, or code.
LINK_OR_CODE = re.compile(r"(?P<text>!?\[(?:[^\[\]`]|`[^`]*`)*\]\()(?P<target>[^)\s]+)\)|`(?P<code>[^`]+)`")
# The search shows pages first that explain.
BOOST = {"reference/": 0.5, "examples/": 0.7, "bench/results/": 0.3, "CHANGELOG": 0.3}
# Code that names an example or a header.
MENTION = re.compile(r"examples/\w[\w-]*|(?:\w+/)*\w+\.hpp")



class Site:
    """The pages by their paths in the site, and what is wrong with them."""

    def __init__(self, root, files, build=None):
        self.root, self.files, self.build = root, files, build
        self.folders = {posixpath.dirname(file) for file in files}
        self.pages, self.copies, self.errors = {}, set(), []
        self.headers = set(api_reference.public_headers(root))
        self.examples = {}
        for file in files:
            parts = file.split("/")
            if parts[0] == "examples" and len(parts) > 2 and os.path.splitext(file)[1] in LANGUAGES:
                self.examples.setdefault(parts[1], []).append(file)

    def read(self, file):
        with open(os.path.join(self.root, file), encoding="utf-8") as opened:
            return opened.read()

    # ---- links -----------------------------------------------------------------------------------------------------

    def place_of(self, file):
        """Where the site has a file or folder of the repository, or None."""
        if file in self.files and file.endswith(".md"):
            return file
        if file.removeprefix("include/") in self.headers:
            return api_reference.page_of(file.removeprefix("include/"))
        parts = file.split("/")
        if parts[0] == "examples" and len(parts) > 1 and parts[1] in self.examples:
            return f"examples/{parts[1]}.md"
        if file in self.files:
            self.copies.add(file)
            return file
        return None

    def rewritten(self, text, page):
        """The page, its links leading to where the site has what they lead to in the repository."""
        folder = posixpath.dirname(page)

        def relative(place):
            return posixpath.relpath(place, folder or ".")

        def link(match):
            target, _, anchor = match.group("target").partition("#")
            if not target or re.match(r"[a-z]+:", target):
                return match.group()
            place = self.place_of(posixpath.normpath(posixpath.join(folder, target)))
            if place is None:
                self.errors.append(f"{page}: the link {match.group('target')} leads to no file of the repository")
                return match.group()
            return match.group("text") + relative(place) + ("#" + anchor if anchor else "") + ")"

        def mention(match):
            name = match.group("code")
            ends = [header for header in self.headers if ("/" + header).endswith("/" + name)]
            place = f"include/{ends[0]}" if len(ends) == 1 else name
            place = self.place_of(place) if MENTION.fullmatch(name) else None
            return f"[`{name}`]({relative(place)})" if place else match.group()

        lines, fenced = [], False
        for line in text.split("\n"):
            fenced ^= bool(FENCE.match(line))
            if not fenced and re.match(r"<!--.*-->$", line):
                continue  # a mark of the tests
            if not fenced and not line.startswith("#"):
                line = LINK_OR_CODE.sub(lambda match: mention(match) if match.group("code") else link(match), line)
            lines.append(line)
        return "\n".join(lines)

    # ---- pages -----------------------------------------------------------------------------------------------------

    def example(self, name, files):
        """A page with the sources of an example, the one with main() first; its head comment as prose."""
        files = sorted(files, key=lambda file: (not os.path.basename(file).startswith("main."), file))
        out = [f"# {name}", ""]
        for file in files:
            text = self.read(file)
            language = LANGUAGES[os.path.splitext(file)[1]]
            mark = re.match(r"(?:#!.*\n)?(//|#)", text)
            head = re.match(rf"(?:#!.*\n)?((?:{mark.group(1)}.*\n)+)", text).group(1) if mark else ""
            lines = [line.removeprefix(mark.group(1)).removeprefix(" ") for line in head.splitlines()
                     if "SPDX-License-Identifier" not in line] if mark else []
            prose = self.prose.markdown(trimmed(lines), f"examples/{name}.md")
            out += [f"## {posixpath.relpath(file, 'examples/' + name)}", "", prose, "", f"````{language}",
                    text[text.index(head) + len(head):].strip("\n"), "````", ""]
        printed = self.run(name)
        if printed:
            out += ["## What it prints", "", "On simulated GPUs:", "", "````text", printed, "````", ""]
        return "\n".join(out)

    def run(self, name):
        """What an example prints; empty where it has not been built."""
        program = os.path.join(self.build or "", "examples", f"example_{name}")
        if not self.build or not os.access(program, os.X_OK):
            return ""
        with tempfile.TemporaryDirectory(prefix="mscclpp-site-") as folder:
            done = subprocess.run([os.path.abspath(program)], cwd=folder, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, timeout=120, check=False)
        if done.returncode != 0:
            self.errors.append(f"examples/{name}: status {done.returncode}: {done.stdout}")
        return done.stdout.strip("\n").replace(os.path.realpath(self.root) + "/", "")

    def assemble(self):
        reference = api_reference.Reference(self.root)
        self.prose = reference.prose
        self.pages.update(reference.pages())
        for name, files in self.examples.items():
            self.pages[f"examples/{name}.md"] = self.example(name, files)
        for file in sorted(self.files):
            if file.endswith(".md"):
                self.pages[file] = self.rewritten(self.read(file), file)

    def title(self, page):
        found = re.search(r"^# (.+)$", self.pages[page], re.MULTILINE)
        return re.sub(r"[`*]", "", found.group(1)) if found else page

    def navigation(self, order):
        """What MkDocs calls nav: from the lines of navigation.txt."""
        left, nav = dict.fromkeys(self.pages), []
        for line in order.splitlines():
            name = line.strip()
            if not name or name.startswith("#"):
                continue
            if not line.startswith(" "):
                nav.append({name: []})
                continue
            found = [page for page in left if page == name or (name.endswith("/") and page.startswith(name))]
            if not found:
                self.errors.append(f"navigation.txt: {name} is no page, or stands there twice")
            for page in found:
                del left[page]
            section = next(iter(nav[-1].values()))
            titled = [{self.title(page): page} for page in found]
            section += tree(name, found, self.title) if name == "reference/" else titled
        if left:
            nav.append({"More": [{self.title(page): page} for page in left]})
        # A section of one page is the page.
        return [{name: next(iter(pages[0].values())) if len(pages) == 1 else pages}
                for section in nav for name, pages in section.items()]


def tree(under, pages, title):
    """Pages by their folders; a folder's index is what its heading leads to."""
    entries = {}
    for page in pages:
        folder = posixpath.dirname(page.removeprefix(under))
        entries.setdefault(folder, []).append(page)
    index = under + "index.md"
    nav = [index] + [{title(page): page} for page in entries.pop("", []) if page != index]
    return nav + [{folder: [{posixpath.basename(page).removesuffix(".md") + ".hpp": page} for page in inside]}
                  for folder, inside in sorted(entries.items())]


def tracked(root):
    """Files of the repository, and those that may become some."""
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            stdout=subprocess.PIPE, check=True)
    names = [name.decode() for name in listed.stdout.split(b"\0") if name]
    return {name for name in names if os.path.isfile(os.path.join(root, name))}


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--build")
    arguments = parser.parse_args()
    site = Site(arguments.root, tracked(arguments.root), arguments.build)
    site.assemble()
    with open(os.path.join(HERE, "navigation.txt"), encoding="utf-8") as file:
        navigation = site.navigation(file.read())
    for error in site.errors:
        print(f"error: {error}")

    pages = os.path.join(os.path.abspath(arguments.out), "pages")
    shutil.rmtree(pages, ignore_errors=True)
    for page, text in site.pages.items():
        boost = next((value for start, value in BOOST.items() if page.startswith(start)), 1)
        write(os.path.join(pages, page), f"---\nsearch: {{boost: {boost}}}\n---\n{text}")
    for file in site.copies:
        os.makedirs(os.path.dirname(os.path.join(pages, file)), exist_ok=True)
        shutil.copyfile(os.path.join(arguments.root, file), os.path.join(pages, file))
    shutil.copyfile(os.path.join(HERE, "site.css"), os.path.join(pages, "site.css"))
    with open(os.path.join(HERE, "mkdocs.yml"), encoding="utf-8") as file:
        settings = file.read()
    # JSON is YAML.
    write(os.path.join(arguments.out, "mkdocs.yml"), settings + "\n" + "".join(
        f"{name}: {json.dumps(value)}\n" for name, value in (("docs_dir", "pages"), ("nav", navigation))))
    print(f"{len(site.pages)} pages, {len(site.copies)} other files")
    return bool(site.errors)


if __name__ == "__main__":
    sys.exit(main())
