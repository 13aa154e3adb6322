#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Runs the tools that judge sources: clang-format and clang-tidy of version 14, since each version has other opinions, and
# shellcheck.
#
#   tools.py format --root=FOLDER
#   tools.py tidy --root=FOLDER --build=FOLDER [--jobs=N]
#   tools.py shell --root=FOLDER
#   tools.py self-test --root=FOLDER
#
# Exit status 0: nothing to say; 1: findings, which are printed; 77: the tool is not here.
"""Runs clang-format, clang-tidy and shellcheck over the sources."""

import argparse
import concurrent.futures
import fnmatch
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

VERSION = "14"
FORMATTED = ("*.hpp", "*.cpp", "*.cu", "*.h")
SHELL = ("scripts/*.sh", ".ci/run", "test/softroce/run.sh")
# What has most of the branches that no test reaches: errors of the system, of peers and of users.
TIDY = ("src/host/*.cpp", "src/collectives/call/*.cpp")


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


def find(tool):
    """The tool of the one version, or skips."""
    seen = []
    for name in (f"{tool}-{VERSION}", tool):
        path = shutil.which(name)
        if path:
            text = subprocess.run([path, "--version"], stdout=subprocess.PIPE, text=True, check=False).stdout
            if match := re.search(r"version (\d+)", text):
                if match.group(1) == VERSION:
                    return path
                seen.append(f"{path} is version {match.group(1)}")
    skip(f"no {tool} {VERSION} here (Debian: {tool}-{VERSION}); {', '.join(seen) or 'no other either'}")
    return None


def tracked(root, patterns):
    """Files of the repository that fit a pattern; * also fits /."""
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z"], stdout=subprocess.PIPE, check=False)
    if listed.returncode != 0:
        skip(f"{root} is no git repository, whose files are looked at")
    names = [name.decode() for name in listed.stdout.split(b"\0") if name]
    return [name for name in names if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)
            and os.path.isfile(os.path.join(root, name))]


def run(command, root):
    done = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                          check=False)
    return done.returncode, done.stdout


def check_format(root, files):
    status, text = run([find("clang-format"), "--dry-run", "-Werror", "--style=file", *files], root)
    bad = sorted(set(re.findall(r"^([^:\n]+):\d+:\d+: error", text, re.MULTILINE)))
    if status != 0:
        print(text if not bad else "\n".join(f"{file} is not formatted" for file in bad))
        print(f"error: run clang-format-{VERSION} -i on these files")
    return status != 0


def check_shell(root, files):
    tool = shutil.which("shellcheck") or skip("no shellcheck here")
    status, text = run([tool, "--external-sources", "--severity=warning", *files], root)
    if status != 0:
        print(text)
    return status != 0


def check_packages(root, files):
    """Packages that the scripts install and lib.sh cannot look for; it would refuse only where they run."""
    command = re.compile(r"^[^#\n]*(?:(?:require|want)_packages|packages\+?=\()((?:[^\n\\)#]|\\\n)*)", re.MULTILINE)
    names = set()
    for file in files:
        with open(os.path.join(root, file), encoding="utf-8") as source:
            for listed in command.findall(source.read()):
                names.update(re.findall(r"(?<![^\s])[a-z][a-z0-9.+-]+(?![^\s])", listed))
    script = '. scripts/lib.sh; for name; do (present "$name" >/dev/null 2>&1; [ $? -ne 2 ]) || echo "$name"; done'
    unknown = subprocess.run(["bash", "-c", script, "packages", *sorted(names)], cwd=root, stdout=subprocess.PIPE,
                             text=True, check=True).stdout.split()
    for name in unknown:
        print(f"error: present() of scripts/lib.sh does not know how to look for {name}")
    return bool(unknown) or not names


def check_tidy(root, files, build, jobs):
    tool = find("clang-tidy")
    database = os.path.join(build, "compile_commands.json")
    if not os.path.exists(database):
        skip(f"no {database}; configure with -DCMAKE_EXPORT_COMPILE_COMMANDS=ON and a generator that writes it")
    built = commands(database)
    groups = grouped([os.path.realpath(os.path.join(root, file)) for file in files], built)
    if not groups:
        print(f"error: {database} has none of the sources")
        return True

    # Of another compiler's warnings it need not know.
    command = [tool, "--quiet", "--extra-arg=-Wno-unknown-warning-option"]

    # Most of the time goes into what all sources include, so a group is one translation unit. One that is not
    # clean, or does not compile for equal names in two sources, is halved until sources are judged by themselves.
    def judge(group):
        with tempfile.TemporaryDirectory(prefix="mscclpp-tidy-") as folder:
            unit = group[0]
            extra = []
            if len(group) > 1:
                extra = ["--extra-arg=-Wno-shadow"]  # what is hidden are often a neighbour's names
                unit = os.path.join(folder, "unit.cpp")
                with open(unit, "w", encoding="utf-8") as file:
                    file.writelines(f'#include "{source}"  // NOLINT(bugprone-suspicious-include)\n' for source in group)
            entry = dict(built[group[0]], file=unit)
            entry["command"] = re.sub(r"(?<=-c )\S+$", unit, entry["command"])
            with open(os.path.join(folder, "compile_commands.json"), "w", encoding="utf-8") as file:
                json.dump([entry], file)
            config = f"--config-file={os.path.join(root, '.clang-tidy')}"
            status, text = run([*command, *extra, config, "-p", folder, unit], root)
        if len(group) == 1:
            return [(group[0], status, text)]
        if status == 0:
            return []
        half = len(group) // 2
        return judge(group[:half]) + judge(group[half:])

    findings = set()
    failed = False
    apart = 0
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for source, status, text in itertools.chain.from_iterable(pool.map(judge, groups)):
            apart += 1
            if status != 0:
                failed = True
                # The same header is found in each source that includes it.
                findings.update(re.findall(r"^\S+: error: .*$", text, re.MULTILINE) or [f"{source}: {text}"])
    sources = sum(len(group) for group in groups)
    print("\n".join([*sorted(findings), f"{sources} sources in {len(groups)} groups, {apart} judged by themselves, "
                                        f"{len(findings)} findings"]))
    return failed


def commands(database):
    """The command of each source, which may be one of several that the build compiles as one."""
    with open(database, encoding="utf-8") as file:
        entries = {os.path.realpath(entry["file"]): entry for entry in json.load(file)}
    for unit, entry in list(entries.items()):
        if unit.endswith(".cpp"):  # perhaps by cmake/MscclppJoinSources.cmake, wherever it writes them
            with open(unit, encoding="utf-8") as file:
                for source in re.findall(r'^#include "(/.*\.cpp)"$', file.read(), re.MULTILINE):
                    entries.setdefault(os.path.realpath(source), entry)
    return entries


def grouped(files, built):
    """Those of the sources that are built, in groups of about 16 of neighbouring folders, largest first."""
    groups = []
    for _, folder in itertools.groupby(sorted(file for file in files if file in built), key=os.path.dirname):
        folder = list(folder)
        if groups and len(groups[-1]) + len(folder) <= 16:
            groups[-1] += folder
        else:
            groups.append(folder)
    return sorted(groups, key=len, reverse=True)


def self_test(root):
    """Each tool finds what is planted."""
    with tempfile.TemporaryDirectory(prefix="mscclpp-house-") as folder:
        shutil.copy(os.path.join(root, ".clang-format"), folder)
        shutil.copy(os.path.join(root, ".clang-tidy"), folder)

        def write(name, text):
            path = os.path.join(folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as out:
                out.write(text)
            return name

        good = write("good.cpp", "int f(int a) { return a; }\n")
        assert not check_format(folder, [good]), "what is formatted is refused"
        assert check_format(folder, [write("bad.cpp", "int  f( int a ){return a;}\n")]), "what is not formatted passes"

        # In a folder whose headers are looked at.
        good, bad, broken, twin = (f"src/host/{name}.cpp" for name in ("good", "tidy", "broken", "twin"))
        entries = [{"directory": folder, "file": os.path.join(folder, name), "command": f"clang++ -std=c++20 -c {name}"}
                   for name in (good, bad, broken, twin)]
        write("compile_commands.json", json.dumps(entries))
        write(good, "static int f(int a) { return a; }\nint g(int a) { return f(a); }\n")
        write(bad, "int* h() { return 0; }\n")
        write(broken, "int f( {\n")
        write(twin, "static int f(int a) { return a + 1; }\nint k(int a) { return f(a); }\n")
        assert not check_tidy(folder, [good], folder, 1), "a good source is refused"
        assert not check_tidy(folder, [good, twin], folder, 1), "two good sources with equal names are refused"
        assert check_tidy(folder, [good, bad], folder, 1), "a null pointer written 0 passes"
        assert check_tidy(folder, [good, bad, twin], folder, 1), "a null pointer written 0 passes beside equal names"
        assert check_tidy(folder, [broken], folder, 1), "a source that does not compile passes"
        assert check_tidy(folder, ["other.cpp"], folder, 1), "no source at all passes"

        fine = write("fine.sh", '#!/bin/sh\necho "$1"\n')
        assert not check_shell(folder, [fine]), "a good script is refused"
        with open(os.path.join(root, "scripts", "lib.sh"), encoding="utf-8") as file:
            write("scripts/lib.sh", file.read())
        asks = write("asks.sh", "want_packages lld \\\n  ccache  # not shellcheque\npackages+=(g++)\n")
        assert not check_packages(folder, [asks]), "packages that lib.sh knows are refused"
        for line in ("require_packages lld \\\n  ccash\n", "[ -f x ] || packages+=(lld ccash)\n", "echo\n"):
            assert check_packages(folder, [write("asks.sh", line)]), "a package that lib.sh does not know passes"
        assert check_shell(folder, [write("bad.sh", "#!/bin/sh\ncd $1 && turn=2\n[ $2 == 1 ]\n")]), "a bad script passes"
    print("each tool finds what is planted")
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["format", "tidy", "shell", "self-test"])
    parser.add_argument("--root", required=True)
    parser.add_argument("--build")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    root = arguments.root
    if arguments.what == "format":
        return check_format(root, tracked(root, FORMATTED))
    if arguments.what == "shell":
        scripts = tracked(root, SHELL)
        # Both, so that the packages are looked at where there is no shellcheck, too.
        return check_packages(root, scripts) | check_shell(root, scripts)
    if arguments.what == "self-test":
        return self_test(root)
    if not arguments.build:
        parser.error("tidy wants --build")
    return check_tidy(root, tracked(root, TIDY), os.path.abspath(arguments.build), arguments.jobs)


if __name__ == "__main__":
    sys.exit(main())
