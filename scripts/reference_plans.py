#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Has MSCCL++'s own DSL print its plans, and this library's mscclpp-plan judge and run them.
#
#   scripts/reference_plans.py --sources=FOLDER [--command=PATH] [--keep=FOLDER] [--write] [--package=FOLDER]
#
# --sources=   a checkout of MSCCL++ (https://github.com/microsoft/mscclpp), which this repository does not hold
# --command=   mscclpp-plan; default build/test/bench/mscclpp-plan
# --keep=      where the plans are left
# --write      renews the table in docs/dsl.md; without it, verdicts that differ from it are an error
# --package=   where this library's Python package lies, for the Python that runs this: the same scripts print their
#              plans with it, and one that is not the same is an error
#
# Scripts that take a number of ranks are run for 4 and 8, those for several hosts with two of so many simulated ones.
# Every plan that is right is run, with every element compared. 0: the verdicts are the table's, all runs are right, and
# the package's plans are the same.
"""Verdicts on the reference's plans."""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGE = os.path.join(ROOT, "docs", "dsl.md")
BEGIN, END = "<!-- reference plans: written by scripts/reference_plans.py -->", "<!-- end of reference plans -->"
TESTS = os.path.join("python", "mscclpp", "language", "tests")
RANKS = (4, 8)

# Plans that are made by functions rather than scripts, as they are called there: the file; the collective, whether syncs
# are put in, and what else there is.
FUNCTIONS = {
    "default_algos/allreduce_multi_nodes": ("AllReduce", False, "thread_block_group_size=2"),
    "default_algos/allgather_multi_nodes": ("AllGather", False, ""),
    "default_algos/reducescatter_multi_nodes": ("ReduceScatter", True, ""),
}
MAKE = """
import mscclpp
mscclpp.__path__.append({modules!r})
from mscclpp.language.collectives import *
from mscclpp.language.utils import AlgoSpec
from mscclpp.default_algos.{function} import {function}
spec = AlgoSpec(name="{function}", collective={collective}({ranks}, 1, True), nranks_per_node={half}, world_size={ranks},
                in_place=True, instances=1, protocol="LL", auto_sync={syncs}, num_threads_per_block=1024,
                reuse_resources=True, use_double_scratch_buffer=True)
print({function}(spec{more}).to_json())
"""


class Reference:
    """Runs the scripts with the DSL's own modules, and none that need the compiled ones; or with those of `packages`."""

    def __init__(self, sources, home, packages=None):
        self.sources = sources
        self.environment = {**os.environ, "PYTHONPATH": packages or home, "PYTHONDONTWRITEBYTECODE": "1"}
        if packages:
            return
        package = os.path.join(home, "mscclpp")
        os.mkdir(package)
        for module in ("language", "default_algos"):
            os.symlink(os.path.join(os.path.abspath(sources), "python", "mscclpp", module),
                       os.path.join(package, module))
        with open(os.path.join(package, "__init__.py"), "w", encoding="utf-8"):
            pass

    def python(self, *arguments):
        result = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=self.environment,
                                check=False, timeout=120)
        lines = result.stderr.strip().splitlines()
        return result.stdout if result.returncode == 0 else None, lines[-1] if lines else ""

    def plans(self):
        """(name, ranks or None for the script's own, hosts, the plan or None, why there is none)"""
        for folder, _, files in sorted(os.walk(os.path.join(self.sources, TESTS))):
            for file in sorted(files):
                if not file.endswith(".py"):
                    continue
                path = os.path.join(folder, file)
                name = os.path.relpath(path, os.path.join(self.sources, TESTS))[:-3]
                with open(path, encoding="utf-8") as text:
                    takes = set(re.findall(r'"--(\w+)"', text.read()))
                hosts = 2 if name.startswith("multi_node") else 1
                for ranks in RANKS if takes & {"num_gpus", "gpus_per_node"} else (None,):
                    arguments = ["--name", os.path.basename(name)] if "name" in takes else []
                    if "num_gpus" in takes:
                        arguments += ["--num_gpus", str(ranks)]
                    if "gpus_per_node" in takes:
                        arguments += ["--gpus_per_node", str(ranks // hosts)]
                    if "nnodes" in takes:
                        arguments += ["--nnodes", str(hosts)]
                    if "tbg_size" in takes:
                        arguments += ["--tbg_size", "2"]
                    yield (name, ranks, hosts, *self.python(path, *arguments))
        for name, (collective, syncs, more) in FUNCTIONS.items():
            function = os.path.basename(name)
            for ranks in RANKS:
                code = MAKE.format(modules=os.path.join(os.path.abspath(self.sources), "python", "mscclpp"),
                                   function=function, collective=collective, syncs=syncs, ranks=ranks, half=ranks // 2,
                                   more=f", {more}" if more else "")
                yield (name, ranks, 2, *self.python("-c", code))


def judge(command, path, hosts):
    """(verdict, sentence): right, or refused with why, or failed."""
    check = subprocess.run([command, "check", path], capture_output=True, text=True, check=False, timeout=120)
    text = (check.stdout + check.stderr).strip()
    if check.returncode != 0:
        return "refused", re.sub(r"^.*?(is wrong: |mscclpp-plan: plan \S+: )", "", text)
    run = subprocess.run([command, "run", path, "--device=sim", "--size=16K", f"--hosts={hosts}"], capture_output=True,
                         text=True, check=False, timeout=300)
    output = (run.stdout + run.stderr).strip()
    if run.returncode != 0:
        return "failed", output.splitlines()[-1] if output else f"status {run.returncode}"
    return "right", "nothing is demanded of it" if "nothing was compared" in output else ""


def meaning(text):
    """What a plan says, with what has no order there in one."""
    plan = json.loads(text)
    for rank in plan["gpus"]:
        for buffer in rank["remote_buffers"]:
            buffer["access_channel_types"].sort()
    return plan


def compare(printed, reference):
    """Whether the plans of `printed` are those of the reference, where it prints one; says which are not."""
    differ = []
    for key, text in reference.items():
        ours, why = printed[key]
        if not ours or meaning(ours) != meaning(text):
            differ.append(key)
            title = key[0] if key[1] is None else f"{key[0]}, {key[1]} ranks"
            print(f"{title}: the package prints {'another plan' if ours else f'no plan: {why}'}")
    print(f"{len(reference) - len(differ)} of {len(reference)} scripts print the same plan")
    return not differ


def table(verdicts):
    """What the page says: those that are right in a sentence, those that are not one by one."""
    def listed(names):
        return ", ".join(f"`{name}`" for name in sorted(names))

    def named(verdict, sentence=None):
        return {(name if ranks is None else f"{name}") for (name, ranks), (v, s) in verdicts.items()
                if v == verdict and (sentence is None or bool(s) == sentence)}
    right, free = named("right", False), named("right", True)
    lines = [f"Right, and every element compared: {listed(right)}.", "",
             f"Right and run, of collectives that demand nothing: {listed(free)}.", "",
             "| refused | why |", "|---|---|"]
    seen = set()
    for (name, _), (verdict, sentence) in verdicts.items():
        if verdict == "refused" and name not in seen:
            seen.add(name)
            lines.append(f"| `{name}` | {sentence} |")
    return "\n".join("\n".join(textwrap.wrap(line, 118, break_long_words=False, break_on_hyphens=False))
                     if not line.startswith("|") else line for line in lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sources", required=True)
    parser.add_argument("--command", default=os.path.join(ROOT, "build", "test", "bench", "mscclpp-plan"))
    parser.add_argument("--keep")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--package")
    options = parser.parse_args()
    if not os.path.isdir(os.path.join(options.sources, TESTS)):
        sys.exit(f"error: --sources={options.sources} holds no MSCCL++ with a Python DSL")
    verdicts, broken, plans, same = {}, {}, {}, True
    with tempfile.TemporaryDirectory(prefix="mscclpp-reference-") as home:
        kept = options.keep or os.path.join(home, "plans")
        os.makedirs(kept, exist_ok=True)
        for name, ranks, hosts, text, why in Reference(options.sources, home).plans():
            title = name if ranks is None else f"{name}, {ranks} ranks"
            if text is None or not text.strip():
                broken[name] = why
                print(f"{title}: prints no plan: {why}")
                continue
            plans[name, ranks] = text
            path = os.path.join(kept, f"{name.replace('/', '_')}{'' if ranks is None else f'_{ranks}'}.json")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            verdicts[name, ranks] = judge(options.command, path, hosts)
            print(f"{title}: {': '.join(part for part in verdicts[name, ranks] if part)}", flush=True)
        if options.package:
            ours = Reference(options.sources, home, os.path.abspath(options.package))
            same = compare({(name, ranks): (text, why) for name, ranks, _, text, why in ours.plans()}, plans)
    failed = [name for name, (verdict, _) in verdicts.items() if verdict == "failed"]
    scripts = {name for name, _ in verdicts}
    refused = {name for (name, _), (verdict, _) in verdicts.items() if verdict == "refused"}
    print(f"{len(scripts)} scripts print plans, {len(broken)} do not; {len(verdicts)} plans; of the scripts' plans "
          f"{len(scripts - refused)} are right, {len(refused)} refused; {len(failed)} fail to run")
    with open(PAGE, encoding="utf-8") as file:
        page = file.read()
    start, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    renewed = f"{page[:start]}\n{table(verdicts)}\n{page[end:]}"
    if options.write:
        with open(PAGE, "w", encoding="utf-8") as file:
            file.write(renewed)
    elif renewed != page:
        print("error: the verdicts are not those of docs/dsl.md; --write renews them")
        return 1
    return 1 if failed or not same else 0


if __name__ == "__main__":
    sys.exit(main())
