#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Mutation testing of the device layer, the algorithms and the verifier of programs: weakens one order, scope, flag,
# epoch, bound or check at a time (mutants.py says which) and shows that a test or the checker notices.
#
#   scripts/mutate.py --build=build/dev                all mutants; resumes where a run was interrupted
#   scripts/mutate.py --build=build/dev --sample=20 --seed=7 --file=barrier --class=order,scope
#   scripts/mutate.py --list                           the mutants, with place and change
#   scripts/mutate.py --build=build/dev --write=docs/mutation.md
#
# A mutant is one changed header in a folder that is searched before include/. The kill programs (test/mutation/, and the
# tests beside them that PROGRAMS names) are compiled against it with the commands of the build folder, at low
# optimisation and with the compiler's checks of undefined behaviour, and run one after the other until one fails. A
# mutant that no static_assert but the language itself refuses is not valid and does not count.
#
# Fails when a mutant survives that test/mutation/survivors.txt does not list, when a listed one is killed or, with --list
# too, no longer exists, and when the score is below 95 %. Of the listed ones those count against the score that a test
# could notice but none does (`unseen`), not those that change nothing but the speed (`equivalent`).
"""Runs mutation tests."""

import argparse
import collections
import concurrent.futures
import dataclasses
import hashlib
import json
import os
import pathlib
import random
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import mutants as rules

ROOT = pathlib.Path(__file__).resolve().parent.parent

FOLDERS = ("device", "algorithms")
# And what proves programs right.
FILES = ("dsl/core/demand.hpp", "dsl/detail/verify/handovers.hpp", "dsl/detail/verify/knowledge.hpp",
         "dsl/detail/verify/memory_state.hpp", "dsl/detail/verify/verifier.hpp", "dsl/detail/verify/verifier_ends.hpp",
         "dsl/detail/verify/verifier_moves.hpp", "dsl/detail/verify/verifier_ports.hpp")
# No synchronization and no bounds of memory: the choice by size, where every answer is correct, and arithmetic, whose
# tests go through every code of every format.
LEFT_OUT = {"algorithms/core/facts.hpp", "algorithms/core/traits.hpp", "device/number.hpp", "base/number_codec.hpp"}

# Targets, the small ones first. Each is run only for the headers it includes, and first where FIRST says so: by the first
# line whose text is part of "<path> <class>".
PROGRAMS = ("mutation_kill_group", "mutation_kill_barrier", "mutation_kill_channel", "mutation_kill_packet",
            "mutation_kill_memory", "mutation_kill_one_shot", "mutation_kill_two_shot", "mutation_kill_refusal",
            "mutation_kill_arithmetic", "mutation_kill_exchange", "mutation_kill_direct", "mutation_kill_messages",
            "mutation_kill_chain", "mutation_kill_port", "mutation_kill_hierarchical", "mutation_kill_catalogue",
            "mutation_kill_switch_channel", "mutation_kill_switch", "mutation_kill_switch_reduce",
            "mutation_kill_switch_pipeline", "mutation_kill_ring", "mutation_kill_prologue", "test_device_copy",
            "test_device_bulk_copy", "test_device_port_channel", "mutation_kill_tiles", "mutation_kill_rows", "mutation_kill_experts", "test_device_tile_flags",
            "test_device_tile_product", "test_fused_tile_product", "test_device_tile_order", "test_device_matrix", "test_algorithms_rows",
            "test_algorithms_experts")
# Of mutants of FILES.
FILES_PROGRAMS = ("test_dsl_wrong_programs", "test_dsl_wrong_channels", "test_dsl_verify", "test_check_dsl_random",
                  "test_check_dsl_generated")
FIRST = (("rows/", "mutation_kill_rows"), ("experts/", "mutation_kill_experts"), ("tile_flags.hpp require", "test_device_tile_flags"), ("tile_flags", "mutation_kill_tiles"),
         ("tile_product", "test_device_tile_product"), ("swizzled_rows", "test_device_tile_product"),
         ("tile_order", "test_device_tile_order"), ("tiles/", "test_device_matrix"), ("chain.hpp", "mutation_kill_chain"), ("ring.hpp", "mutation_kill_ring"),
         ("stage_pieces", "mutation_kill_chain"),
         ("prologue.hpp", "mutation_kill_prologue"), ("device/port_channel.hpp require", "test_device_port_channel"),
         ("device/port_channel", "mutation_kill_port"),
         ("device/fifo", "mutation_kill_port"), ("hierarchical", "mutation_kill_hierarchical"),
         ("catalogue", "mutation_kill_catalogue"), ("composition", "mutation_kill_catalogue"),
         ("algorithms/kernels", "mutation_kill_catalogue"), ("device_syncer", "mutation_kill_barrier"),
         ("send_recv", "mutation_kill_messages"), ("multimem", "mutation_kill_switch_channel"),
         ("switch_channel", "mutation_kill_switch_channel"), ("switch_reduce", "mutation_kill_switch_reduce"),
         ("switch_pipeline", "mutation_kill_switch_pipeline"), ("switch", "mutation_kill_switch"),
         ("require", "mutation_kill_refusal"), ("poll.hpp", "mutation_kill_refusal"), ("barrier.hpp", "mutation_kill_barrier"),
         ("vector.hpp", "mutation_kill_arithmetic"), ("bits.hpp", "mutation_kill_arithmetic"), ("partition.hpp", "mutation_kill_arithmetic"),
         ("epoch.hpp", "mutation_kill_one_shot"), ("bulk_copy.hpp", "test_device_bulk_copy"), ("copy.hpp", "test_device_copy"), ("packet_transport", "mutation_kill_one_shot"),
         ("device/packet", "mutation_kill_packet"), ("view.hpp", "mutation_kill_packet"), ("memory_", "mutation_kill_memory"),
         ("two_shot_rooted", "mutation_kill_exchange"), ("share_result", "mutation_kill_two_shot"),
         ("one_exchange", "mutation_kill_exchange"), ("plans", "mutation_kill_exchange"), ("two_shot_push", "mutation_kill_exchange"),
         ("push", "mutation_kill_direct"), ("pull", "mutation_kill_direct"), ("peer_memory", "mutation_kill_direct"),
         ("agree", "mutation_kill_direct"), ("shares", "mutation_kill_direct"), ("rooted", "mutation_kill_direct"),
         ("symmetric_view", "mutation_kill_direct"), ("one_shot", "mutation_kill_one_shot"), ("two_shot", "mutation_kill_two_shot"),
         ("algorithms/", "mutation_kill_one_shot"), ("device/memory_channel", "mutation_kill_channel"))

# Warnings are not what is tested here. Accesses that are out of bounds or misaligned fault, as on a GPU; so do writes
# past the end of an array on the stack, which a GPU would keep in registers.
FLAGS = ("-O1", "-g0", "-w", "-fsanitize=bounds,alignment,object-size,shift", "-fsanitize-undefined-trap-on-error",
         "-fstack-protector-all", "-D_GLIBCXX_ASSERTIONS")

SCORE = 95.0
KILLED = ("checker", "test", "timeout", "static_assert")


# ---- programs --------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Program:
    """How to compile and link one kill program; {overlay} and {output} stand for paths."""
    name: str
    folder: str  # where the commands run
    compile: list
    link: list
    headers: set = dataclasses.field(default_factory=set)  # relative to include/mscclpp; filled by measure()
    limit: int = 0  # seconds of processor time that it may take with a mutant; likewise


def from_build(build, name):
    """The program that CMake target `name` is, by the commands that ninja would run."""
    try:
        text = subprocess.run(["ninja", "-C", str(build), "-t", "commands", name], check=True, capture_output=True,
                              text=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit(f"error: ninja knows no target {name} in {build}; configure that folder with the tests and the "
                         f"generator Ninja ({error})") from error
    lines = text.strip().split("\n")
    source = re.escape(name.split("_", 1)[1]) if name.startswith("mutation_") else None
    compile_line = next(line for line in lines
                        if " -c " in line and f"/{name}.dir/" in line and (source is None or source in line))
    compile_command = shlex.split(compile_line)
    if compile_command[0].endswith("ccache"):
        compile_command = compile_command[1:]
    found = compile_command[compile_command.index("-o") + 1]
    command = []
    skip = 0
    for word in compile_command:
        if skip:
            skip -= 1
        elif word in ("-MT", "-MF", "-o"):
            skip = 1
        elif word not in ("-MD", "-Werror") and not re.fullmatch(r"-O\w|-g\d?", word):
            command.append(word)
    command[1:1] = [*FLAGS, "-I{overlay}"]
    link = shlex.split(lines[-1].replace(": && ", "").replace(" && :", ""))
    libraries = [word for word in link if word.endswith((".o", ".a", ".so")) and word != found
                 and not os.path.isabs(word)]
    if libraries and subprocess.run(["ninja", "-C", str(build), *libraries], stdout=subprocess.DEVNULL,
                                    check=False).returncode != 0:
        raise SystemExit(f"error: what {name} links does not build in {build}")
    link = ["{output}.o" if word == found else word for word in link]
    link[link.index("-o") + 1] = "{output}"
    return Program(name, str(build), [*command, "-o", "{output}.o"], [*link, "-Wl,--strip-debug"])


def fill(command, **values):
    return [word.format(**values) if "{" in word else word for word in command]


def run(command, folder, limit):
    """(exit status or None when it took more than `limit` seconds of processor time, the end of what it printed)."""
    def before():
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))

    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=before)
        try:
            status = process.wait(WAITING * limit)
            if status in (-signal.SIGXCPU, -signal.SIGKILL):
                status = None
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            status = None
        output.seek(max(0, output.tell() - 20000) if output.seek(0, os.SEEK_END) else 0)
        return status, output.read().decode(errors="replace")


# Seconds of processor time; unchanged, the programs take a fifth of that and less on most machines.
COMPILE_LIMIT = 120
RUN_LIMIT = 20
LONGER = 5  # times what an unchanged program took by the clock, where that is more: a busy machine kills no mutant
WAITING = 10  # times the limit by the clock, for who sleeps and for busy machines


def measure(program, work, include):
    """Compiles and runs the program on the unchanged headers; a kill program that fails there shows nothing."""
    output = str(work / program.name)
    status, text = run([*fill(program.compile, overlay=str(work / "none"), output=output), "-MD", "-MF", output + ".d"],
                       program.folder, COMPILE_LIMIT)
    if status == 0:
        status, text = run(fill(program.link, output=output), program.folder, COMPILE_LIMIT)
    if status != 0:
        raise SystemExit(f"error: {program.name} does not build on the unchanged headers:\n{text}")
    begin = time.monotonic()
    status, text = run([output], program.folder, LONGER * RUN_LIMIT)
    program.limit = max(RUN_LIMIT, round(LONGER * (time.monotonic() - begin)))
    if status != 0:
        what = "fails" if status else f"takes more than {LONGER * RUN_LIMIT} s"
        raise SystemExit(f"error: {program.name} {what} on the unchanged headers:\n{text}")
    with open(output + ".d", encoding="utf-8") as file:
        names = shlex.split(file.read().replace("\\\n", " "))
    prefix = os.path.join(os.path.realpath(include), "")
    paths = (os.path.realpath(os.path.join(program.folder, name)) for name in names if name.endswith(".hpp"))
    program.headers = {path[len(prefix):] for path in paths if path.startswith(prefix)}
    digest = hashlib.sha256()
    for path in sorted(name for name in names[1:] if not name.startswith("/usr/")):
        digest.update(pathlib.Path(program.folder, path).read_bytes())
    for word in program.link:
        archive = pathlib.Path(program.folder, word)
        if word.endswith(".a") and archive.exists():
            digest.update(archive.read_bytes())
    return digest.hexdigest()


# ---- one mutant ------------------------------------------------------------------------------------------------------


def classify(status, text):
    if status is None:
        return "timeout"
    if status == 0:
        return None
    return "checker" if "checker: " in text else "test"


def detail_of(text):
    """The line of the output that says most."""
    for pattern in (r"checker: .*", r"static assertion failed.*", r"^.*ERROR: .*", r"\berror: .*"):
        found = re.search(pattern, text, re.M)
        if found:
            return rules.flatten(found.group())[:200]
    return rules.flatten(text[-200:])


def judge(mutant, text, programs, work, killer=None):
    """{"status", "program", "detail", "seconds"}: which program noticed the mutant, and how. `killer` did before."""
    begin = time.monotonic()
    overlay = pathlib.Path(tempfile.mkdtemp(dir=work, prefix="mutant-"))
    try:
        header = overlay / "mscclpp" / mutant.path
        header.parent.mkdir(parents=True)
        header.write_text(mutant.apply(text), encoding="utf-8")
        output = str(overlay / "program")

        def answer(status, program, detail=""):
            return {"status": status, "program": program, "detail": detail,
                    "seconds": round(time.monotonic() - begin, 1)}

        concerned = [program for program in programs if mutant.path in program.headers]
        first = next((name for part, name in FIRST if part in f"{mutant.path} {mutant.kind}"), None)
        concerned.sort(key=lambda program: (program.name != killer, program.name != first))
        for program in concerned:
            status, printed = run(fill(program.compile, overlay=str(overlay), output=output), program.folder,
                                  COMPILE_LIMIT)
            if status is None:
                return answer("timeout", program.name, "compiler")
            if status != 0:
                refused = "static assertion failed" in printed
                return answer("static_assert" if refused else "invalid", program.name, detail_of(printed))
            status, printed = run(fill(program.link, output=output), program.folder, COMPILE_LIMIT)
            if status != 0:
                return answer("invalid", program.name, detail_of(printed))
            status, printed = run([output], overlay, program.limit)
            how = classify(status, printed)
            if how:
                return answer(how, program.name, detail_of(printed) if how != "timeout" else "")
        return answer("survived", ", ".join(program.name for program in concerned) or "no program includes the header")
    finally:
        shutil.rmtree(overlay, ignore_errors=True)


# ---- all of them -----------------------------------------------------------------------------------------------------


def collect(include):
    """[(mutant, text of its file)] of all headers, in order."""
    paths = [path for folder in FOLDERS for path in sorted((include / folder).rglob("*.hpp"))]
    paths += [include / name for name in FILES if (include / name).exists()]
    found = []
    for path in paths:
        relative = path.relative_to(include).as_posix()
        if "/arch/" in relative or relative in LEFT_OUT:
            continue
        text = path.read_text(encoding="utf-8")
        found += [(mutant, text) for mutant in rules.find(relative, text)]
    return found


def read_survivors(path):
    """{key: reason}; a line is `<key>  # equivalent: <why>` or `<key>  # unseen: <why>`."""
    listed = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines() if path.exists() else [], 1):
        if not line.strip() or line.startswith("#"):
            continue
        key, separator, reason = line.partition("  # ")
        if not separator or not re.match(r"(equivalent|unseen): \S", reason):
            raise SystemExit(f"error: {path}:{number}: wants '<mutant>  # equivalent: <why>' or '<mutant>  # unseen: <why>'")
        if key in listed:
            raise SystemExit(f"error: {path}:{number}: listed twice")
        listed[key] = reason.strip()
    return listed


class Results:
    """Outcomes on disk. A kill holds while the header is as it was and its program is there, a survival while all else
    is as it was, too."""

    def __init__(self, path, programs):
        self._path = path
        self._programs = {program.name for program in programs}
        self._lock = threading.Lock()
        self._all = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def known(self, mutant, header, world):
        """The old outcome if it still holds; else None."""
        old = self._all.get(mutant.key)
        if old is None or old["header"] != header:
            return None
        if old["world"] != world if old["status"] == "survived" else old["program"] not in self._programs:
            return None
        return {name: old[name] for name in ("status", "program", "detail", "seconds")}

    def killer(self, mutant):
        return self._all.get(mutant.key, {}).get("program")

    def store(self, mutant, header, world, outcome):
        with self._lock:
            self._all[mutant.key] = {**outcome, "header": header, "world": world}
            temporary = self._path.with_suffix(".new")
            temporary.write_text(json.dumps(self._all, indent=1), encoding="utf-8")
            temporary.replace(self._path)


def run_all(work_list, programs, work, include, jobs, fresh=False, quiet=False):
    """[(mutant, outcome)] in the order of `work_list`."""
    work.mkdir(parents=True, exist_ok=True)
    # The machine's own library is part of the world of a survivor, but not of a kill.
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        digests = list(pool.map(lambda program: measure(program, work, include), programs))
    world = hashlib.sha256("".join(digests).encode()).hexdigest()[:16]
    path = work / "results.json"
    if fresh and path.exists():
        path.unlink()
    results = Results(path, programs)
    done = 0
    begun = time.monotonic()

    def one(item):
        nonlocal done
        mutant, text = item
        header = hashlib.sha256(text.encode()).hexdigest()[:16]
        outcome = results.known(mutant, header, world)
        if outcome is None:
            outcome = judge(mutant, text, programs, work, results.killer(mutant))
            results.store(mutant, header, world, outcome)
        done += 1
        if not quiet:
            left = (time.monotonic() - begun) / done * (len(work_list) - done) / 60
            print(f"[{done}/{len(work_list)}] {outcome['status']} ({outcome['program']}, {outcome['seconds']} s) {mutant}"
                  + (f", about {left:.0f} min left" if sys.stdout.isatty() and left >= 1 else ""), flush=True)
        return mutant, outcome

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(one, work_list))


# ---- report ----------------------------------------------------------------------------------------------------------


def score_of(outcomes, listed):
    """(killed, counted, percent, how many are equivalent)."""
    valid = [(mutant, outcome) for mutant, outcome in outcomes if outcome["status"] != "invalid"]
    killed = sum(outcome["status"] in KILLED for _, outcome in valid)
    equivalent = sum(outcome["status"] == "survived" and listed.get(mutant.key, "").startswith("equivalent")
                     for mutant, outcome in valid)
    counted = len(valid) - equivalent
    return killed, counted, 100.0 * killed / counted if counted else 100.0, equivalent


def stale(listed, mutants):
    """Complaints of what is listed and no longer among all mutants: its line has been changed."""
    keys = {mutant.key for mutant in mutants}
    return [f"listed as a survivor, but there is no such mutant any more; judge that line anew:\n    {key}"
            for key in listed if key not in keys]


def complaints_of(outcomes, listed, complete):
    """What else makes the run fail."""
    complaints = []
    seen = {}
    for mutant, outcome in outcomes:
        seen[mutant.key] = outcome["status"]
        if outcome["status"] == "survived" and mutant.key not in listed:
            complaints.append(f"survived: {mutant}\n    write a test that notices it, or list it:\n    {mutant.key}  # equivalent: ...")
    for key in listed:
        if seen.get(key, "survived") != "survived":
            complaints.append(f"listed as a survivor, but {seen[key]}; take it off the list:\n    {key}")
    killed, counted, percent, _ = score_of(outcomes, listed)
    if complete and percent < SCORE:
        complaints.append(f"{killed} of {counted} mutants killed: {percent:.1f} %, wants {SCORE:.0f} %")
    return complaints


def table(outcomes, key):
    rows = collections.defaultdict(collections.Counter)
    for mutant, outcome in outcomes:
        rows[key(mutant)][outcome["status"]] += 1
    lines = []
    for name in sorted(rows):
        row = rows[name]
        killed = sum(row[status] for status in KILLED)
        lines.append([name, killed + row["survived"], row["checker"], row["test"], row["timeout"], row["static_assert"],
                      row["survived"]])
    return lines


HEADINGS = ("mutants", "by the checker", "by a result", "by the time limit", "by a static_assert", "alive")


def markdown(outcomes, listed):
    """The page that is committed."""
    killed, counted, percent, equivalent = score_of(outcomes, listed)
    refused = len(outcomes) - counted - equivalent
    parts = [
        "# Mutation test\n",
        "Written by `scripts/mutate.py --write`. Each mutant is one change to one place of `include/mscclpp/device` or "
        "`include/mscclpp/algorithms` (without `arch`, and without what the cost model reads in `facts.hpp` and `movement()`, where every "
        "answer is correct), or of the verifier of programs in `include/mscclpp/dsl`. It is killed when a kill program of `test/mutation`, or a test that it names, fails: the "
        "checker reports a finding, a result is wrong, the time limit passes, or a `static_assert` refuses it.\n",
        f"**{killed} of {counted} mutants killed: {percent:.1f} %.** Not counted: {refused} that the language itself "
        f"refuses, and {equivalent} that change nothing a program can see but its speed "
        f"({100.0 * killed / max(1, counted + equivalent):.1f} % with these). All that survive are listed in "
        "`test/mutation/survivors.txt`, each with its reason.\n",
    ]

    def rows(name, lines, describe=None):
        head = [name, *HEADINGS] + (["what is changed"] if describe else [])
        parts.append("\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head)] + [
            "| " + " | ".join([str(cell) for cell in line] + ([describe[line[0]]] if describe else [])) + " |"
            for line in lines]) + "\n")

    parts.append("## By class\n")
    rows("class", table(outcomes, lambda mutant: mutant.kind), rules.CLASSES)
    parts.append("## By file\n")
    rows("file", table(outcomes, lambda mutant: mutant.path))
    return "\n".join(parts)


def show(outcomes, listed):
    for title, key in (("class", lambda mutant: mutant.kind), ("file", lambda mutant: mutant.path)):
        lines = [[title, "all", "checker", "test", "timeout", "assert", "alive"], *table(outcomes, key)]
        widths = [max(len(str(line[i])) for line in lines) for i in range(len(lines[0]))]
        for line in lines:
            print("  ".join(str(cell).ljust(width) if i == 0 else str(cell).rjust(width)
                            for i, (cell, width) in enumerate(zip(line, widths))))
        print()
    killed, counted, percent, equivalent = score_of(outcomes, listed)
    print(f"score: {killed} of {counted} killed, {percent:.1f} %; not counted: {equivalent} equivalent, "
          f"{len(outcomes) - counted - equivalent} refused by the language")


def tell(complaints):
    """The exit status."""
    for complaint in complaints:
        print(f"error: {complaint}")
    return 1 if complaints else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, help="a folder configured with Ninja and the tests")
    parser.add_argument("--list", action="store_true", help="print the mutants and stop")
    parser.add_argument("--class", dest="kinds", default="", help="only these classes, separated by commas")
    parser.add_argument("--file", default="", help="only headers whose path contains one of these, separated by commas")
    parser.add_argument("--sample", type=int, default=0, help="only so many, drawn by --seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--programs", default="", help="only these kill programs, separated by commas")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--results", type=pathlib.Path, help="where results are kept; default: mutation in the build folder")
    parser.add_argument("--fresh", action="store_true", help="forget the results of earlier runs")
    parser.add_argument("--write", type=pathlib.Path, metavar="FILE", help="write the report as a page")
    arguments = parser.parse_args()

    kinds = [kind for kind in arguments.kinds.split(",") if kind]
    if any(kind not in rules.CLASSES for kind in kinds):
        parser.error(f"--class takes {', '.join(rules.CLASSES)}; got '{arguments.kinds}'")
    include = ROOT / "include" / "mscclpp"
    everything = collect(include)
    chosen = [item for item in everything if (not kinds or item[0].kind in kinds) and any(part in item[0].path for part in arguments.file.split(","))]
    if arguments.sample and arguments.sample < len(chosen):
        wanted = set(random.Random(arguments.seed).sample(range(len(chosen)), arguments.sample))
        chosen = [item for i, item in enumerate(chosen) if i in wanted]
    if not chosen:
        parser.error("no mutant fits these choices")
    listed = read_survivors(ROOT / "test" / "mutation" / "survivors.txt")
    complaints = stale(listed, [mutant for mutant, _ in everything])
    if arguments.list:
        for mutant, _ in chosen:
            print(mutant)
        print(f"{len(chosen)} mutants")
        return tell(complaints)
    wanted_programs = [name for name in arguments.programs.split(",") if name]
    if unknown := set(wanted_programs) - {*PROGRAMS, *FILES_PROGRAMS}:
        parser.error(f"--programs: there is no {', '.join(sorted(unknown))}; there are {', '.join(PROGRAMS + FILES_PROGRAMS)}")
    complete = len(chosen) == len(everything) and not wanted_programs
    if arguments.write and not complete:
        parser.error("--write wants all mutants")
    if not arguments.build:
        parser.error("--build=FOLDER is needed")

    build = arguments.build.resolve()
    outcomes = []
    for names, of_files in ((PROGRAMS, False), (FILES_PROGRAMS, True)):
        part = [item for item in chosen if (item[0].path in FILES) == of_files]
        if part:
            programs = [from_build(build, name) for name in names if not wanted_programs or name in wanted_programs]
            outcomes += run_all(part, programs, (arguments.results or build / "mutation").resolve(), include,
                                arguments.jobs, arguments.fresh and not outcomes)
    show(outcomes, listed)
    if arguments.write:
        arguments.write.write_text(markdown(outcomes, listed), encoding="utf-8")
    return tell(complaints + complaints_of(outcomes, listed, complete))


if __name__ == "__main__":
    sys.exit(main())
