#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# PyTorch's own tests of its process groups on the backend "mscclpp", which takes gloo's place for tensors of the CPU, or
# NCCL's for those of GPUs: each test that asks for that one gets it. They are
# torch.testing._internal.distributed.distributed_test, which is in PyTorch's wheel, and files of test/distributed of its
# sources, unmodified.
#
#   scripts/pytorch_suite.py [--device=sim|cuda] [--ranks=N] [--at-once=N] [--tests=PATTERN] [--seconds=S] [--files=LIST]
#                            [--state=FILE] [--report=FILE] [--keep=FOLDER]
#
# Run it by a Python that has PyTorch, expecttest and the package mscclpp.
# --device=   cuda: in NCCL's place; ranks share the GPUs where there are fewer (start MPS first)
# --files=    paths of test files instead of distributed_test, with commas between them; an empty one is that. As in
#             Debian's pytorch_2.6.0+dfsg.orig.tar.xz; what has changed since fails with gloo, too
# --at-once=  so many processes beside each other, each of which has several tests. Under MPS one: blocks of all ranks' kernels
#             must fit on a GPU at once, or ranks wait for blocks that others keep out
# --tests=    those whose name the regular expression finds
# --seconds=  after which no further test is begun
# --state=    where verdicts are kept: what has one is not run again, so that a long run can be made in parts
# --report=   where the table of all that is in the state goes, as Markdown
# --keep=     what each process has said, in files 'said' below it
#
# Tests that fail are run with gloo, too, or with NCCL where each rank has a GPU: what fails there as well is counted for
# itself. What the backend refuses on purpose stands in pytorch_suite.txt, with the reason. The last line is 'N passed, N
# failed, ...'; the status is 1 where a test has failed without such a reason.
"""PyTorch's tests of process groups on the backend mscclpp."""

import argparse
import concurrent.futures
import contextlib
import importlib.util
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

# Never through the switch's multicast, which may be forbidden where this runs.
SAFE = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "OMP_NUM_THREADS": "4"}
BATCH = 6  # tests of one process
# By device: whose place the backend takes, and ranks of tests that skip themselves for want of ranks.
PLACES = {"sim": ("gloo", 8), "cuda": ("nccl", 4)}
SCRIPTS = pathlib.Path(__file__).resolve().parent
REASONS = SCRIPTS / "pytorch_suite.txt"


def is_compiled():
    """Whether PyTorch was installed with its bytecode. Else each process would compile it anew: half a minute."""
    torch = importlib.util.find_spec("torch")
    return torch is None or os.path.exists(importlib.util.cache_from_source(torch.origin))


def environment_of(folder, pretended, more):
    """With what the tests find otherwise, and devices for all ranks."""
    site = folder / "site"
    site.mkdir(exist_ok=True)
    (site / "sitecustomize.py").write_text("import pytorch_patches\n")
    path = os.pathsep.join([str(site), str(SCRIPTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    variables = {**os.environ, **SAFE, **more, "PYTHONPATH": path}
    variables.pop("TORCH_NCCL_BLOCKING_WAIT", None)
    if is_compiled():
        variables["PYTHONDONTWRITEBYTECODE"] = "1"
    else:
        variables.pop("PYTHONDONTWRITEBYTECODE", None)
        variables["PYTHONPYCACHEPREFIX"] = str(folder.parent / "bytecode")
    if pretended:
        variables["MSCCLPP_PRETEND"] = str(pretended)
    return variables


RUNNING = set()  # groups of processes


def end_all(*_):
    """What a signal does that ends this program: nothing that it has started goes on, holding the GPU of what comes next."""
    for group in tuple(RUNNING):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    os._exit(1)


def run(command, limit, **options):
    """The exit status, None after `limit` seconds, and what was said. Ranks that hang go with whoever started them, or
    they would hold the GPU of what runs next."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
                          **options) as started:
        RUNNING.add(started.pid)
        try:
            text = started.communicate(timeout=limit)[0]
            return started.returncode, text
        except subprocess.TimeoutExpired as late:
            said = (late.stdout or b"").decode(errors="replace")
            for end in (signal.SIGTERM, signal.SIGKILL):  # torchrun ends its own workers
                os.killpg(started.pid, end)
                try:
                    started.communicate(timeout=40)
                    break
                except subprocess.TimeoutExpired:
                    continue
            return None, said + f"\n{limit} s"
        finally:
            RUNNING.discard(started.pid)


# Runs tests of a file, or lists them; a line of JSON for each. The ranks of a test, where they are started by spawn,
# run what stands outside of main().
RUNNER = '''
import datetime, importlib, json, os, sys, unittest
_, file, out, *names = sys.argv if __name__ == "__main__" else ["", os.environ["PYTORCH_FILE"], ""]
os.environ["PYTORCH_FILE"] = file
sys.path.insert(0, os.path.dirname(file))
sys.argv = [file]
place = os.environ.get("PYTORCH_IN_PLACE_OF")
if place:
    import torch
    import torch.distributed as dist
    import torch.distributed.distributed_c10d as c10d
    import mscclpp.torch
    title = {"gloo": "ProcessGroupGloo", "nccl": "ProcessGroupNCCL"}[place]
    theirs, ours = getattr(c10d, title), mscclpp.torch.build().ProcessGroupMscclpp
    make = ours.__init__
    def as_theirs(self, store, rank, size, options=None, timeout=datetime.timedelta(minutes=30)):
        limit = options if isinstance(options, datetime.timedelta) else getattr(options, "_timeout", timeout)
        make(self, store, rank, size, limit, place == "nccl", place)
    ours.__init__ = as_theirs
    for name in ("_Options", "Options", "create_device", "create_default_device"):
        if hasattr(theirs, name):
            setattr(ours, name, getattr(theirs, name))
    ours._set_default_timeout = ours.set_timeout
    ours._group_start = ours._group_end = lambda self: None  # NCCL's, around aborts
    # What has their number is taken for an object of their class, by DDP's logger.
    kinds = c10d.ProcessGroup.BackendType
    setattr(kinds, place.upper(), kinds.CUSTOM)
    c10d.Backend.backend_type_map[place] = kinds.CUSTOM
    for module in (c10d, dist, sys.modules["torch._C._distributed_c10d"]):
        setattr(module, title, ours)
if os.environ.get("PYTORCH_FORK"):  # so that not every rank loads PyTorch anew
    import torch.multiprocessing
    import torch.testing._internal.common_distributed as common
    def fork(self):
        self._start_processes(torch.multiprocessing.get_context("fork").Process)
    common.MultiProcessTestCase._spawn_processes = fork

class Verdicts(unittest.TestResult):
    def __init__(self, lines):
        super().__init__()
        self.lines = lines
    def say(self, test, verdict):
        print(json.dumps([test.id().split(".", 1)[1], verdict]), file=self.lines, flush=True)
    def startTest(self, test):
        super().startTest(test)
        self.say(test, "begun")
    def addSuccess(self, test):
        self.say(test, "passed")
    def addSkip(self, test, reason):
        self.say(test, "skipped: " + reason)
    def wrong(self, test, error):
        super().addError(test, error)
        self.say(test, "failed: " + str(error[1]).strip())
    def addFailure(self, test, error):
        self.wrong(test, error)
    def addError(self, test, error):
        self.wrong(test, error)
    def addExpectedFailure(self, test, error):
        self.say(test, "passed")

def each(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from each(test)
        else:
            yield test

if __name__ == "__main__":
    module = importlib.import_module(os.path.splitext(os.path.basename(file))[0])
    found = {test.id().split(".", 1)[1]: test for test in each(unittest.defaultTestLoader.loadTestsFromModule(module))}
    with open(out, "w", encoding="utf-8") as lines:
        if names:
            unittest.TestSuite(found[name] for name in names).run(Verdicts(lines))
        else:
            print(json.dumps(list(found)), file=lines)
'''

DISTRIBUTED_TEST = """
from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend
class TestDistBackendWithSpawn(TestDistBackend, DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._spawn_processes()
"""


class File:
    """A file of PyTorch's tests, and the machine that they run on."""

    def __init__(self, path, folder, environment, backend, ranks):
        self.path, self.folder, self.number = path, folder, 0
        self.variables = {**os.environ, **SAFE, "BACKEND": backend, "WORLD_SIZE": str(ranks), "INIT_METHOD": "env://",
                          "MASTER_ADDR": "127.0.0.1", "DISTRIBUTED_TESTS_DEFAULT_TIMEOUT": "240", **environment}
        folder.mkdir()
        self.runner = folder / "runner.py"
        self.runner.write_text(RUNNER)

    def call(self, place, names, limit):
        """The lines of the runner, and what was said."""
        own = self.folder / str(place)
        for part in ("barrier", "test_dir", "init_dir"):
            (own / part).mkdir(parents=True, exist_ok=True)
        variables = {**self.variables, "TEMP_DIR": str(own), "MASTER_PORT": str(21000 + place)}
        out = own / "verdicts"
        command = [sys.executable, str(self.runner), str(self.path), str(out), *names]
        status, said = run(command, limit, env=variables, cwd=own)
        with open(own / "said", "a", encoding="utf-8") as file:
            file.write(said)
        lines = out.read_text().splitlines() if out.exists() else []
        return status, [json.loads(line) for line in lines], said

    def names(self, pattern):
        status, lines, said = self.call(0, [], 300)
        if status != 0:
            raise SystemExit(f"error: PyTorch's tests in {self.path} cannot be loaded:\n{said[-2000:].strip()}")
        return [name for name in lines[0] if re.search(pattern, name)]

    def verdicts(self, place, names, end):
        """Verdict of each test: 'passed', 'skipped: why', 'failed: its error' or 'not run'."""
        result = {}
        while len(result) < len(names):
            left = [name for name in names if name not in result]
            if time.monotonic() > end:
                return {**result, **{name: "not run: no time left" for name in left}}
            _, lines, said = self.call(place, left, 260 * len(left))
            for name, verdict in lines:
                result[name] = short(verdict)
            begun = [name for name, verdict in result.items() if verdict == "begun"]
            for name in begun or ([] if lines else left[:1]):  # its process has ended with it
                errors = errors_in(said)
                result[name] = short("failed: " + (errors[0] if errors else said.strip().rsplit("\n", 1)[-1]))
        return result


def errors_in(text):
    """Lines that name an exception."""
    return re.findall(r"^(?:\w+\.)*\w*(?:Error|Exception)\b.*", text, re.MULTILINE)


def short(verdict):
    """One line: of an error that a rank tells, the error, not that of ranks which saw that one end."""
    errors = errors_in(verdict)
    first = next((error for error in errors if " is gone " not in error), errors[-1] if errors else "")  # not its echo
    text = "failed: " + first if verdict.startswith("failed") and first else verdict
    text = re.sub(r"[^\s(']*/site-packages/", "", text)
    return re.sub(r"\s+", " ", text)[:240]


def suite(backend, at_once, ranks, folder, environment, end, names=None, pattern="", path=None, tell=None):
    """Verdict of each test that is named, or fits the pattern; of distributed_test, or of the file `path`."""
    file = File(path or folder / "suite.py", folder, environment, backend, ranks)
    if path is None:
        file.path.write_text(DISTRIBUTED_TEST)
    if names is None:
        names = file.names(pattern)
    verdicts = {}
    batches = [names[i : i + BATCH] for i in range(0, len(names), BATCH)]
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        for lines in pool.map(lambda each: file.verdicts(each[0] + 1, each[1], end), enumerate(batches)):
            for name, verdict in lines.items():
                print(f"{folder.name}: {name}: {verdict}", flush=True)
            verdicts.update(lines)
            if tell is not None:
                tell(lines)
    return verdicts


def reasons():
    """(file's name, pattern of tests, why they fail) as pytorch_suite.txt has them."""
    lines = [line for line in REASONS.read_text().splitlines() if line.strip() and not line.startswith("#")]
    return [[part.strip() for part in line.split(" : ", 2)] for line in lines]


def settle(file, name, verdict, known):
    """'failed' becomes 'refused: why' where the reason is known."""
    for of, pattern, why in known:
        if verdict.startswith("failed") and of == file and re.search(pattern, name):
            return f"refused: {why}"
    return verdict


KINDS = ("passed", "failed", "refused", "as with", "skipped", "not run")


def count(verdicts):
    return [sum(verdict.startswith(kind) for verdict in verdicts) for kind in KINDS]


def titles(backend):
    return [f"as with {backend}" if kind == "as with" else kind for kind in KINDS]


def report(state, known, backend, said):
    """The table, and what is behind it."""
    where = "on GPUs" if backend == "nccl" else "on the CPU"
    lines = [f"# PyTorch's own tests on the backend mscclpp, {where}", ""]
    machine = "" if backend == "nccl" else ", on the simulated machine"
    lines += [f"Made by `scripts/pytorch_suite.py`: the backend takes {backend}'s place{machine}.", *said]
    lines += [""]
    lines += ["| file | tests | " + " | ".join(titles(backend)) + " |", "|---|" + "---:|" * (len(KINDS) + 1)]
    settled = {file: {n: settle(file, n, v, known) for n, v in tests.items()} for file, tests in sorted(state.items())}
    for file, tests in settled.items():
        lines.append(f"| `{file}` | {len(tests)} | " + " | ".join(map(str, count(tests.values()))) + " |")
    lines += ["", f"Refused: what the backend does not do on purpose. As with {backend}: fails with that here, too.", ""]
    for kind, title in [each for each in zip(KINDS, titles(backend)) if each[0] in ("failed", "refused", "as with")]:
        rows = [(f, n, v) for f, tests in settled.items() for n, v in tests.items() if v.startswith(kind)]
        if rows:
            lines += [f"## {title.capitalize()}", "", "| test | why |", "|---|---|"]
            lines += [f"| `{f}` {n} | {v.partition(': ')[2].replace('|', '/')} |" for f, n, v in rows] + [""]
    lines += ["## Skipped", "", "| tests | PyTorch's reason |", "|---:|---|"]
    skips = {}
    for tests in settled.values():
        for verdict in tests.values():
            if verdict.startswith("skipped"):
                skips[verdict] = skips.get(verdict, 0) + 1
    for verdict, number in sorted(skips.items(), key=lambda each: -each[1]):
        lines.append(f"| {number} | {verdict.partition(': ')[2].replace('|', '/')} |")
    return "\n".join(lines) + "\n"


def kept(folder):
    """That folder, new, or one that is gone at the end."""
    if folder is None:
        return tempfile.TemporaryDirectory()
    folder.mkdir(parents=True)
    return contextlib.nullcontext(folder.resolve())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=PLACES, default="sim")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--at-once", type=int)
    parser.add_argument("--tests", default="")
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--files", default="")
    parser.add_argument("--state", type=pathlib.Path)
    parser.add_argument("--report", type=pathlib.Path)
    parser.add_argument("--keep", type=pathlib.Path)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, end_all)
    made = ("import torch, mscclpp.torch; mscclpp.torch.build(); print(torch.__version__, torch.cuda.device_count(), "
            "torch.cuda.get_device_name() if torch.cuda.is_available() else 'none')")
    asked = subprocess.run([sys.executable, "-c", made], check=True, stdout=subprocess.PIPE, text=True).stdout
    version, gpus, gpu = asked.strip().rsplit("\n", 1)[-1].split(" ", 2)
    state = json.loads(arguments.state.read_text()) if arguments.state and arguments.state.exists() else {}
    known = reasons()
    end = time.monotonic() + arguments.seconds
    backend, many = PLACES[arguments.device]
    on_gpus = arguments.device == "cuda"
    at_once = arguments.at_once or (1 if on_gpus else max(1, (os.cpu_count() or 2) // 2))
    if on_gpus and gpus == "0":
        raise SystemExit("error: --device=cuda, but PyTorch sees no GPU here")
    judged = not on_gpus or int(gpus) >= arguments.ranks

    def save():
        if arguments.state:
            arguments.state.write_text(json.dumps(state, indent=0))

    with kept(arguments.keep) as name:
        forked = {"PYTORCH_FORK": "1"}

        def ours(ranks):
            """What ranks find; those of GPUs start afresh, and are told of a device for each."""
            in_place = {"PYTORCH_IN_PLACE_OF": backend, "MSCCLPP_DEVICE": arguments.device}
            if not on_gpus:
                return {**forked, **in_place}
            return environment_of(pathlib.Path(name), ranks if int(gpus) < ranks else 0, in_place)

        for number, path in enumerate(arguments.files.split(",")):
            path = pathlib.Path(path).resolve() if path else None
            folder = pathlib.Path(name) / str(number)
            folder.mkdir()
            label = path.name if path else "distributed_test.py"
            tests = state.setdefault(label, {})
            here = {"at_once": at_once, "ranks": arguments.ranks, "end": end, "path": path}
            lister = File(path or folder / "suite.py", folder / "list", ours(arguments.ranks), backend, arguments.ranks)
            if path is None:
                lister.path.write_text(DISTRIBUTED_TEST)
            try:
                listed = lister.names(arguments.tests)
            except SystemExit as error:
                print(error, file=sys.stderr)
                tests["all of them"] = short(f"not run: {str(error.code).splitlines()[-1]}")
                continue
            left = [test for test in listed if tests.get(test, "not run").startswith("not run")]

            def keep(lines, tests=tests):
                tests.update(lines)
                save()

            suite(backend, folder=folder / "here", environment=ours(arguments.ranks), names=left, tell=keep, **here)
            few = [test for test in listed if "small world size" in tests[test]]
            suite(backend, folder=folder / "many", environment=ours(many), names=few, tell=keep, **{**here, "ranks": many})
            wrong = [test for test in listed if settle(label, test, tests[test], known).startswith("failed")]
            given = {} if on_gpus else forked
            theirs = suite(backend, folder=folder / backend, environment=given, names=wrong if judged else [], **here)
            for test, verdict in theirs.items():
                if verdict.startswith(("failed", "skipped")):
                    tests[test] = f"as with {backend}: " + verdict.partition(": ")[2]
            save()
    if arguments.report:
        ranks = f"{arguments.ranks} ranks of distributed_test, or {many} where these are too few; others as they ask"
        said = [f"PyTorch {version}; {ranks}."]
        if on_gpus:
            said.append(f"{gpus} x {gpu}{'' if judged else ', which the ranks share: NCCL itself refuses that'}.")
        arguments.report.write_text(report(state, known, backend, said))
    settled = [settle(file, n, v, known) for file, tests in state.items() for n, v in tests.items()]
    counts = count(settled)
    print(", ".join(f"{n} {kind}" for kind, n in zip(titles(backend), counts)))
    return 1 if counts[KINDS.index("failed")] or not counts[KINDS.index("passed")] else 0


if __name__ == "__main__":
    sys.exit(main())
