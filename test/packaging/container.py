#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Looks at scripts/container/Containerfile as far as that goes without a container engine: stages, paths and commands are
there, its shell is shell, and what it copies is all that scripts/package.sh configures. Nothing is compiled or packed:
commands in the place of cmake and cpack leave that out.

container.py check --root=FOLDER --work=FOLDER
container.py self-test
"""

import argparse
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

from packages import COMMANDS, only

RECIPE = os.path.join("scripts", "container", "Containerfile")
INSTRUCTIONS = {"ARG", "FROM", "WORKDIR", "COPY", "RUN", "USER", "CMD"}
# Of the base, and not of every machine that the test runs on.
OF_THE_BASE = {"apt-get", "useradd"}
CMAKE = '#!/bin/sh\n[ "$1" != --build ] || exit 0\nexec {real} "$@"\n'
CPACK = '#!/bin/sh\nwhile [ "$1" != -B ]; do shift; done\nmkdir -p "$2" && touch "$2/mscclpp-0.tar.gz" "$2/mscclpp_0_all.deb"\n'


class Stage:
    def __init__(self, name):
        self.name, self.copies, self.runs, self.others = name, [], [], []


def parse(text):
    """Its stages, and complaints about what is not understood."""
    lines = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ").splitlines()
    stages, arguments, complaints = [], {}, []
    for line in filter(str.strip, lines):
        what, _, rest = line.partition(" ")
        if what not in INSTRUCTIONS or (not stages and what not in ("ARG", "FROM")):
            complaints.append(f"not here: {line}")
        elif what == "ARG":
            name, _, value = rest.partition("=")
            arguments[name] = value
        elif what == "FROM":
            base, _, name = rest.partition(" AS ")
            if not re.sub(r"\$\{(\w+)\}", lambda match: arguments.get(match.group(1), ""), base):
                complaints.append(f"no base: {line}")
            stages.append(Stage(name))
        elif what == "RUN":
            options = re.match(r"(--\S+\s+)*", rest).group()
            stages[-1].runs.append(rest[len(options):].strip())
            for other, path in re.findall(r"from=(\w+),source=([^\s,]+)", options):
                stages[-1].others.append((other, path))
        elif what == "CMD":
            stages[-1].runs.append(" ".join(re.findall(r'"([^"]*)"', rest)))
        elif what == "COPY":
            stages[-1].copies.append(rest.split())
    return stages, complaints


def copy(root, stage, folder):
    """What a stage copies into a folder; complaints about what is not there."""
    complaints = []
    for *sources, target in stage.copies:
        for source in sources:
            path = os.path.join(root, source)
            if os.path.isdir(path):
                shutil.copytree(path, os.path.join(folder, target), ignore=shutil.ignore_patterns("__pycache__"))
            elif os.path.isfile(path):
                shutil.copy2(path, os.path.join(folder, target))
            else:
                complaints.append(f"COPY {source}: it is not there")
    return complaints


def check(root, text, folder):
    """Complaints about a recipe; what its first stage copies is in the folder then."""
    stages, complaints = parse(text)
    for number, stage in enumerate(stages):
        with tempfile.TemporaryDirectory() as other:
            within = other if number else folder
            complaints += copy(root, stage, within)
            for run in stage.runs:
                if subprocess.run(["sh", "-n", "-c", run], stderr=subprocess.DEVNULL, check=False).returncode != 0:
                    complaints.append(f"no shell: {run}")
                for command in (each.split()[0] for each in re.split(r"&&|\|\||;", run) if each.strip()):
                    there = os.access(os.path.join(within, command), os.X_OK) if "/" in command else shutil.which(command)
                    if not (there or command in OF_THE_BASE or (number and command in COMMANDS)):
                        complaints.append(f"no command {command}: {run}")
        for name, path in stage.others:
            earlier = [each for each in stages[:number] if each.name == name]
            if not earlier or path not in " ".join(earlier[0].runs):
                complaints.append(f"no earlier stage {name} makes {path}")
    return complaints


def configure(folder, run, work):
    """Runs what the first stage does, but for compiling and packing; complaints."""
    stand_ins, out = os.path.join(work, "bin"), os.path.join(work, "out")
    os.mkdir(stand_ins)
    for name, text in (("cmake", CMAKE.format(real=shutil.which("cmake"))), ("cpack", CPACK)):
        with open(os.path.join(stand_ins, name), "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(file.name, 0o755)
    environment = {**os.environ, "PATH": f"{stand_ins}:{os.environ['PATH']}", "MSCCLPP_USE_CUDA": "OFF"}
    command = f"{run.replace('/packages', out)} --no-install"
    done = subprocess.run(["sh", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return [f"{command}: {done.stdout}{done.stderr}"]
    if not glob.glob(os.path.join(out, "mscclpp_*.deb")):
        return [f"{command} left no package: {done.stdout}"]
    with open(only(os.path.join(folder, "build", "package", "cmake-*", "cmake_install.cmake")), encoding="utf-8") as file:
        installed = re.findall(rf'"({re.escape(folder)}/(?!build/)[^"]+)"', file.read())
    return [f"{path} is to be installed, and not copied" for path in installed if not os.path.exists(path)]


def self_test():
    good = ("ARG BASE=debian\n# said\nFROM ${BASE} AS build\nCOPY a ./\nRUN ls /packages && \\\n  cat a\n"
            "FROM ${BASE}\nRUN --mount=type=bind,from=build,source=/packages,target=/p apt-get install\n"
            'CMD ["mscclpp-doctor"]\n')
    with tempfile.TemporaryDirectory() as root:
        with open(os.path.join(root, "a"), "w", encoding="utf-8"):
            pass
        faults = {"": "", "COPY a": "COPY gone", "RUN ls": "RUN no-such-command", "cat a": "cat 'a", "from=build": "from=other",
                  "source=/packages": "source=/elsewhere", "CMD": "BUT", "BASE=debian": "OTHER=debian",
                  '["mscclpp-doctor"]': '["mscclpp-surgeon"]', "RUN ls /packages": "RUN ./a /packages"}
        for old, new in faults.items():
            assert old in good, old
            with tempfile.TemporaryDirectory() as folder:
                found = check(root, good.replace(old, new) if old else good, folder)
            assert bool(found) == bool(old), f"{new or 'a good one'}: {found}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("check", "self-test"))
    parser.add_argument("--root")
    parser.add_argument("--work")
    options = parser.parse_args()
    if options.what == "self-test":
        self_test()
        return 0
    shutil.rmtree(options.work, ignore_errors=True)
    folder = os.path.join(options.work, "source")
    os.makedirs(folder)
    with open(os.path.join(options.root, RECIPE), encoding="utf-8") as file:
        text = file.read()
    found = check(options.root, text, folder) or configure(folder, parse(text)[0][0].runs[0], options.work)
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
