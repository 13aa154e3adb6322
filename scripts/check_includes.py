#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Holds the layers of scripts/layers.txt: every #include of this repository's own files stays within what the table
# allows, is written in the one dialect, and no folder holds more than 30 files.
#
#   check_includes.py [--root=FOLDER] [--table=FILE]
#
# Exit status 0 when all is as the table says, 1 when something is not, each with its place and what to do.
"""Checks includes against the table of layers."""

import argparse
import collections
import os
import re
import subprocess
import sys

MOST_FILES = 30
CONDITION = re.compile(r"^\s*#\s*(if|ifdef|ifndef|endif)\b")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]')
EXCEPTION = re.compile(r'^except\s+(?:(\S+)\s+->\s+(\S+)|(\S+)\s+includes\s+"([^"]+)"|(\S+)\s+holds\s+(\d+)\s+files)$')
SOURCES = (".hpp", ".cpp", ".cu", ".cuh", ".h")
# The trees that are looked at, and the folder from which their own files are named.
TREES = {"include/mscclpp": "include", "src": "src", "bench": "bench", "tools": "tools", "python": "python/src"}
GENERATED = {"mscclpp/version.hpp"}


class TableError(Exception):
    """The table itself is wrong."""


class Table:
    """Layers, what each may include, and exceptions."""

    def __init__(self, text, where):
        self.beneath = {}
        self.edges, self.names, self.folders = set(), set(), {}
        self.by_machine = set()
        for number, raw in enumerate(text.splitlines(), 1):
            line = raw.split("#")[0].strip()
            if not line:
                continue
            place = f"{where}:{number}"
            if line.startswith("except"):
                self._add_exception(line, place)
                continue
            if line.startswith("by machine "):
                self.by_machine.update(line.split()[2:])
                continue
            layer, colon, rest = line.partition(":")
            layer = layer.strip()
            if not colon or not layer or " " in layer:
                raise TableError(f"{place}: wants '<layer> : <layers beneath>', found: {line}")
            if layer in self.beneath:
                raise TableError(f"{place}: {layer} has a line already")
            self.beneath[layer] = rest.split()
        for layer, beneath in self.beneath.items():
            for other in beneath:
                if other not in self.beneath:
                    raise TableError(f"{where}: {layer} names {other}, which has no line of its own")
        self.reach = {layer: self._reached_from(layer) for layer in self.beneath}
        for layer, reached in self.reach.items():
            if layer in reached:
                raise TableError(f"{where}: a cycle: {' -> '.join(self._cycle(layer))}")
        for layer in {*self.by_machine, *(layer for edge in self.edges for layer in edge)}:
            if layer not in self.beneath:
                raise TableError(f"{where}: an exception, or 'by machine', names {layer}, which is no layer")

    def _add_exception(self, line, place):
        match = EXCEPTION.match(line)
        if not match:
            raise TableError(f"{place}: no exception that is understood: {line}")
        source, target, file, path, folder, count = match.groups()
        if source:
            self.edges.add((source, target))
        elif file:
            self.names.add((file, path))
        else:
            self.folders[folder] = int(count)

    def _reached_from(self, layer):
        reached, pending = set(), list(self.beneath[layer])
        while pending:
            other = pending.pop()
            if other not in reached:
                reached.add(other)
                pending += self.beneath[other]
        return reached

    def _cycle(self, layer):
        path, at = [layer], layer
        while True:
            at = next(other for other in self.beneath[at] if other == layer or layer in self.reach[other])
            path.append(at)
            if at == layer:
                return path

    def layer_of(self, folder):
        """The line of a folder, or of the nearest one around it; None where neither has one."""
        while folder and folder not in self.beneath:
            folder = folder.rpartition("/")[0]
        return folder or None


def tracked_files(root):
    """Files of the repository; every file where there is none, as in the tests of this script."""
    listed = subprocess.run(["git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    if listed.returncode == 0 and os.path.exists(os.path.join(root, ".git")):
        names = [name.decode() for name in listed.stdout.split(b"\0") if name]
        return sorted({name for name in names if os.path.isfile(os.path.join(root, name))})
    found = []
    for folder, _, files in os.walk(root):
        found += [os.path.relpath(os.path.join(folder, file), root) for file in files]
    return sorted(found)


def tree_of(path):
    return next((tree for tree in TREES if path.startswith(tree + "/")), None)


def folder_name(path):
    """As the table names it: public ones from include/, those of src from src/, others from the root."""
    folder = os.path.dirname(path)
    for base in ("include/", "src/"):
        if folder.startswith(base):
            return folder[len(base):]
    return folder


def resolve(source, path, files):
    """The file that an include means, or a reason why it is not written as it should be."""
    if path in GENERATED:
        return "include/" + path, None
    if ".." in path.split("/"):
        return None, "goes up by '..'"
    if path.startswith("mscclpp/"):
        target = "include/" + path
        return (target, None) if target in files else (None, "names no public header")
    tree = tree_of(source)
    if tree == "include/mscclpp":
        return None, "is not named from include/, as \"mscclpp/...\""
    if tree != "src":
        beside = os.path.join(os.path.dirname(source), path)
        if "/" not in path and beside in files:
            return beside, None
    # The benchmark's parts are a library that tools link with.
    bases = {"src": ("src",), "bench": ("bench", "src"), "tools": ("tools", "bench", "src"), "python": ("python", "src")}
    for base in bases[tree]:
        target = f"{base}/{path}"
        if target in files:
            return target, None
    return None, {"src": "is not named from src/"}.get(tree, f"is not named from {tree}/, nor from src/")


def read_includes(path):
    """Line number, how many conditions it stands under, bracket and name of each include."""
    found, depth = [], 0
    with open(path, encoding="utf-8") as text:
        for number, line in enumerate(text, 1):
            if match := CONDITION.match(line):
                depth += -1 if match.group(1) == "endif" else 1
            elif match := INCLUDE.match(line):
                found.append((number, depth, *match.groups()))
    return found


def check_tree(root, table):
    """Returns a list of complaints."""
    complaints = []
    files = tracked_files(root)
    known = set(files)
    used_edges, used_names = set(), set()
    edges = collections.defaultdict(list)
    read = 0
    for source in files:
        if not tree_of(source) or not source.endswith(SOURCES):
            continue
        read += 1
        layer = table.layer_of(folder_name(source))
        if layer is None:
            complaints.append(f"{source}: no layer of the table has this folder; give it a line")
            continue
        for number, depth, bracket, path in read_includes(os.path.join(root, source)):
            place = f"{source}:{number}"
            if depth > 0 and source.startswith("include/") and layer not in table.by_machine:
                complaints.append(f"{place}: an include under a condition, in a layer that is the same on every machine")
            if bracket == "<":
                if path.startswith("mscclpp/") or f"src/{path}" in known:
                    complaints.append(f"{place}: <{path}> is this repository's own; write \"{path}\"")
                continue
            target, reason = resolve(source, path, known)
            if target is None:
                if (source, path) in table.names:
                    used_names.add((source, path))
                else:
                    complaints.append(f"{place}: \"{path}\" {reason}")
                continue
            other = table.layer_of(folder_name(target))
            if other is not None and other != layer:
                edges[layer, other].append(place)
    if read == 0:
        complaints.append(f"{root}: there is no source in {', '.join(TREES)}")
    for (layer, other), places in sorted(edges.items()):
        if other in table.reach[layer]:
            continue
        if (layer, other) in table.edges:
            used_edges.add((layer, other))
            continue
        upwards = "stands above it" if layer in table.reach[other] else "is not beneath it"
        complaints.append(f"{layer} includes from {other}, which {upwards}: {', '.join(places)}. Move what is shared "
                          "beneath both, or change the table")
    complaints += [f"the exception '{layer} -> {other}' is no longer needed; take its line out"
                   for layer, other in sorted(table.edges - used_edges)]
    complaints += [f"the exception of {file} for \"{path}\" is no longer needed; take its line out"
                   for file, path in sorted(table.names - used_names)]
    return complaints + check_folders(files, table)


def check_folders(files, table):
    """Complaints about folders with too many files beside each other."""
    complaints = []
    counts = collections.Counter(os.path.dirname(file) or "." for file in files)
    for folder, count in sorted(counts.items()):
        if count > max(MOST_FILES, table.folders.get(folder, 0)):
            complaints.append(f"{folder} holds {count} files beside each other; at most {MOST_FILES}: make folders of "
                              "those that belong together")
    for folder, count in sorted(table.folders.items()):
        if counts[folder] < count:
            complaints.append(f"{folder} holds {counts[folder]} files, its exception says {count}; write that, or take "
                              f"the line out where {MOST_FILES} are enough")
    return complaints


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", default=os.path.dirname(here))
    parser.add_argument("--table", default=os.path.join(here, "layers.txt"))
    arguments = parser.parse_args()
    try:
        with open(arguments.table, encoding="utf-8") as file:
            table = Table(file.read(), os.path.relpath(arguments.table))
    except (TableError, OSError) as error:
        print(f"error: {error}")
        return 1
    complaints = check_tree(arguments.root, table)
    for complaint in complaints:
        print(f"error: {complaint}")
    if not complaints:
        print(f"{len(table.beneath)} layers, {len(table.edges)} edges and {len(table.names)} names excepted")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
