# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch's own files of tests, which its wheel has not, on libmscclpp_nccl.so.

The folder is test/distributed of PyTorch's sources, or as much of it as is there (FILES). Each test has a process of its
own and a limit; ranks share the GPUs where there are fewer than they ask for (pytorch_patches.py).
"""

import concurrent.futures
import itertools
import os
import re
import sys
import time

from pytorch_suite import environment_of, errors_in, run

FILES = (
    "test_nccl.py",
    "test_c10d_ops_nccl.py",
    "test_c10d_functional_native.py",
    "_composable/fsdp/test_fully_shard_comm.py",
    "_composable/fsdp/test_fully_shard_training.py",
    "_composable/fsdp/test_fully_shard_state_dict.py",
    "_composable/fsdp/test_fully_shard_mixed_precision.py",
    "_composable/fsdp/test_fully_shard_clip_grad_norm_.py",
    "_composable/fsdp/test_fully_shard_overlap.py",
    "_tensor/test_dtensor.py",  # until 2.6
    "_tensor/test_redistribute.py",
    "_tensor/test_math_ops.py",
    "tensor/test_dtensor.py",
    "tensor/test_redistribute.py",
    "tensor/test_math_ops.py",
    "tensor/parallel/test_tp_examples.py",
    "tensor/parallel/test_tp_style.py",
    "test_c10d_nccl.py",  # as many as all others
    "test_c10d_spawn_nccl.py",
)

# Names of a file's tests.
LIST = """
import importlib, sys, unittest
module = importlib.import_module(sys.argv[1])
def names(suite):
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from names(each)
        elif type(each).__module__ == module.__name__:
            yield type(each).__name__ + "." + each._testMethodName
print("\\n".join(["TESTS", *names(unittest.defaultTestLoader.loadTestsFromModule(module))]))
"""


def beside(source, file, variables):
    """The file's folder first on the path, as where a program is run: ranks import their tests by its name."""
    path = source / file
    return path.stem, {**variables, "PYTHONPATH": os.pathsep.join([variables["PYTHONPATH"], str(path.parent)])}


def tests_of(source, file, variables):
    """The names of a file's tests, and why there are none."""
    module, own = beside(source, file, variables)
    status, said = run([sys.executable, "-c", LIST, module], 120, env=own, cwd=source)
    listed = said.partition("TESTS\n")[2].split()
    return listed, "" if status == 0 else said.strip().rsplit("\n", 1)[-1][:160]


def verdict_of(status, text, limit):
    """'passed', 'skipped: why' or 'failed: its error'."""
    if status is None:
        return f"failed: {limit} s"
    if status != 0:
        errors = errors_in(text)
        return "failed: " + (errors[-1] if errors else text.strip().rsplit("\n", 1)[-1])[:160]
    if re.search(r"^OK \(.*skipped=", text, re.MULTILINE):
        why = re.search(r"skipped ['\"](.*?)['\"]$", text, re.MULTILINE)
        return f"skipped: {why.group(1) if why else '?'}"[:160]
    return "passed" if re.search(r"^Ran [1-9]", text, re.MULTILINE) else "failed: no test has run"


def files_suite(source, at_once, folder, preloaded, end, pattern="", pretended=0, limit=90, only=None):
    """Verdict of each test, by 'file Class.test'. With `only`, names of these, just those."""
    folder.mkdir(parents=True, exist_ok=True)
    plain = environment_of(folder, pretended, {})
    variables = environment_of(folder, pretended, preloaded)
    files = [file for file in FILES if (source / file).exists()]
    if not files:
        raise SystemExit(f"error: {source} holds none of PyTorch's files of tests: {', '.join(FILES)}")
    ports = itertools.cycle(range(23000, 43000))

    def one(file, name):
        title = f"{file} {name}"
        if time.monotonic() > end:
            return "not run: no time left"
        module, own = beside(source, file, variables)
        own = {**own, "MASTER_PORT": str(next(ports)), "TMPDIR": str(folder)}
        status, text = run([sys.executable, "-m", "unittest", "-v", f"{module}.{name}"], limit, env=own, cwd=source)
        (folder / f"{re.sub(r'[^A-Za-z0-9]+', '_', title)}.txt").write_text(text, encoding="utf-8")
        line = verdict_of(status, text, limit)
        print(f"{title}: {line}", flush=True)
        return line

    verdicts, begun = {file: {} for file in files}, {}
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        listed = {pool.submit(tests_of, source, file, plain): file for file in files}
        for each in concurrent.futures.as_completed(listed):
            file, (names, why) = listed[each], each.result()
            if why or not names:
                verdicts[file][file] = f"failed: cannot be loaded: {why or 'it has no tests here'}"
                print(f"{file}: {verdicts[file][file]}", flush=True)
            for name in names:
                title = f"{file} {name}"
                if re.search(pattern, title) and (only is None or title in only):
                    begun[pool.submit(one, file, name)] = file, title
        for each, (file, title) in begun.items():
            verdicts[file][title] = each.result()
    return {title: line for lines in verdicts.values() for title, line in lines.items()}


def table(verdicts):
    """Lines of Markdown: a file's tests by verdict, then reasons with how often each."""
    kinds = ("passed", "failed", "skipped", "not run")
    rows = {}
    reasons = {}
    for title, line in verdicts.items():
        kind = next(each for each in kinds if line.startswith(each))
        row = rows.setdefault(title.split(" ")[0], dict.fromkeys(kinds, 0))
        row[kind] += 1
        if kind in ("failed", "skipped"):
            reasons.setdefault(line, []).append(title)
    lines = ["| file | passed | failed | skipped | not run |", "|---|---|---|---|---|"]
    lines += [f"| {file} | " + " | ".join(str(row[kind]) for kind in kinds) + " |" for file, row in rows.items()]
    lines += ["", "| times | reason | first |", "|---|---|---|"]
    for line, titles in sorted(reasons.items(), key=lambda each: -len(each[1])):
        lines.append(f"| {len(titles)} | {line.replace('|', '/')} | {titles[0]} |")
    return lines
