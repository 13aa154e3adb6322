#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Runs mscclpp-check on shared objects of this folder and judges its exit status, its report, its files, its messages.
#
#   cli.py --command=PROGRAM --checks=OBJECT --unseen=OBJECT --empty=OBJECT --copied=OBJECT --shared-libraries=0|1 [CLASS...]
"""Tests of mscclpp-check's command line."""

import argparse
import copy
import json
import os
import subprocess
import sys
import tempfile
import unittest

import sarif

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "drivers"))
from terminal import run_on_terminal   # noqa: E402  pylint: disable=wrong-import-position

PARSER = argparse.ArgumentParser(description=__doc__)
for name in ("--command", "--checks", "--unseen", "--empty", "--copied", "--shared-libraries"):
    PARSER.add_argument(name, required=True)
ARGUMENTS, REST = PARSER.parse_known_args()
FOLDER = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.join(FOLDER, "checks.cpp")
LIMIT = 100   # seconds that one run may take

NOTHING_FOUND, FOUND, BAD_USE = 0, 1, 2


def run(*arguments, target=None, folder=None):
    """Returns (exit status, stdout, stderr)."""
    result = subprocess.run([ARGUMENTS.command, target or ARGUMENTS.checks, *arguments], capture_output=True, text=True,
                            timeout=LIMIT, check=False, cwd=folder)
    return result.returncode, result.stdout, result.stderr


def line_of(mark):
    """The line of checks.cpp that ends with `// <- mark`."""
    with open(SOURCE, encoding="utf-8") as file:
        lines = [number for number, text in enumerate(file, 1) if text.rstrip().endswith(f"// <- {mark}")]
    assert len(lines) == 1, f"{mark} stands at {lines}"
    return lines[0]


class BadUse(unittest.TestCase):
    """Exit status 2, nothing on stdout, and a message that says what to do."""

    def refused(self, arguments, *fragments, target=None):
        status, out, err = run(*arguments, target=target)
        self.assertEqual(status, BAD_USE, err)
        self.assertEqual(out, "")
        for fragment in ("mscclpp-check: ", *fragments):
            self.assertIn(fragment, err)

    def test_values(self):
        self.refused(["--ranks=0"], "--ranks", "1")
        self.refused(["--ranks=many"], "--ranks")
        self.refused(["--schedules=-1"], "--schedules")
        self.refused(["--schedules=0", "--run=correct"], "schedules is 0", "timeLimit")
        self.refused(["--preemption=2"], "--preemption")
        self.refused(["--faults=-1"], "--faults")
        self.refused(["--faults=many"], "--faults")
        self.refused(["--faults=1", "--strategy=exhaustive", "--run=correct"], "faults are chosen by chance")
        self.refused(["--run=correct", "--replay=v1,1.0=tired"], "entry 1", "1.0=tired")
        self.refused(["--strategy=lucky"], "lucky", "random", "pct", "exhaustive")
        self.refused(["--expect-finding=bug"], "bug", "race", "deadLock")
        self.refused(["--speed=high"], "--speed")

    def test_names(self):
        self.refused(["--run=absent"], "--run absent", "correct, wildWrite")
        self.refused(["--replay=x"], "--replay", "--run", "correct or wildWrite")

    def test_no_object(self):
        result = subprocess.run([ARGUMENTS.command], capture_output=True, text=True, timeout=LIMIT, check=False)
        self.assertEqual(result.returncode, BAD_USE)
        self.assertIn("object", result.stderr)

    def test_objects(self):
        self.refused([], "cannot load", "absent.so", "mscclpp_add_check", target="absent.so")
        self.refused([], "nothing to check", "mscclppCheck", "CheckProgram", target=ARGUMENTS.empty)

    @unittest.skipIf(ARGUMENTS.shared_libraries == "1", "one copy serves both")
    def test_object_with_its_own_machine(self):
        self.refused([], "own copy", "mscclpp::check_object", target=ARGUMENTS.copied)

    def test_file_that_cannot_be_written(self):
        status, _, err = run("--run=correct", "--json=/nonexistent/report.json")
        self.assertEqual(status, BAD_USE)
        self.assertIn("cannot write /nonexistent/report.json", err)


class Sources(unittest.TestCase):
    """Of a source file the command makes the object by itself."""

    def test_programs_are_compiled_with_the_hooks(self):
        status, out, err = run("--run=correct", target=SOURCE)
        self.assertEqual(status, NOTHING_FOUND, out + err)
        self.assertEqual(err, "")
        status, out, err = run("--run=race", target=SOURCE)
        self.assertEqual(status, FOUND, err)
        for mark in ("firstWrite", "secondWrite"):
            self.assertRegex(out, rf"plain write of 4 bytes\n.*\n      at .*checks.cpp:{line_of(mark)}\n")
        # Copies too, which the linker leads to the hooks.
        self.assertRegex(run("--run=copyRace", target=SOURCE)[1], rf"at .*checks.cpp:{line_of('copyRace')}\n")

    def test_errors_are_the_compilers(self):
        with tempfile.TemporaryDirectory(prefix="mscclpp-check-") as folder:
            path = os.path.join(folder, "mine.cpp")
            with open(path, "w", encoding="utf-8") as file:
                file.write('#include "mscclpp/sim/check_program.hpp"\n#include "own.hpp"\nint const number = NUMBER;\n')
            with open(os.path.join(folder, "own.hpp"), "w", encoding="utf-8") as file:
                file.write("")
            status, out, err = run(target=path)
            self.assertEqual((status, out), (BAD_USE, ""))
            self.assertRegex(err, r"mscclpp-check: .*mine.cpp does not compile:\n.*mine.cpp:3:.*NUMBER")
            # Then it has nothing to check, and is called what the user calls it.
            status, _, err = run("-DNUMBER=4", f"-I{folder}", target=path)
            self.assertEqual(status, BAD_USE)
            self.assertIn("mine.cpp has nothing to check", err)

    def test_bad_use(self):
        self.assertIn("there is no file absent.cpp", run(target="absent.cpp")[2])
        status, _, err = run("-DNUMBER=4")
        self.assertEqual(status, BAD_USE)
        self.assertIn("--define and --include are for sources", err)


class Results(unittest.TestCase):
    """What was found decides over the exit status."""

    def test_list(self):
        status, out, _ = run("--list")
        self.assertEqual(status, NOTHING_FOUND)
        self.assertEqual(out.split()[:2], ["correct", "wildWrite"])

    def test_help_and_version(self):
        self.assertEqual(run("--help")[0], NOTHING_FOUND)
        self.assertIn("--strategy", run("--help")[1])
        self.assertEqual(run("--version")[0], NOTHING_FOUND)

    def test_nothing_found(self):
        status, out, err = run("--run=correct")
        self.assertEqual(status, NOTHING_FOUND, out + err)
        self.assertIn("correct: nothing found in 11 schedules", out)   # 10, as the program itself asks, and one undisturbed
        self.assertIn("explored: 1 undisturbed, 5 random (preemption 0.05), 5 pct (3 changes of priority)\n", out)
        self.assertEqual(err, "")

    def test_options_go_before_those_of_the_program(self):
        self.assertIn("in 4 schedules", run("--run=correct", "--schedules=4", "--strategy=random")[1])
        self.assertIn("1 undisturbed, 2 random", run("--run=correct", "--schedules=4")[1])
        by_time = run("--run=correct", "--schedules=0", "--time-limit=0.3")[1]
        self.assertGreater(int(by_time.split(" schedules")[0].split()[-1]), 11, by_time)
        self.assertEqual(run("--run=threeRanksOnly", "--ranks=3")[0], NOTHING_FOUND)
        self.assertEqual(run("--run=threeRanksOnly", "--ranks=2")[0], FOUND)

    def test_wrong_result(self):
        status, out, _ = run("--run=wrongResult")
        self.assertEqual(status, FOUND)
        self.assertIn("[1] hostFailure: ", out)
        self.assertIn("rank 1 is wrong on purpose", out)

    def test_race(self):
        status, out, _ = run("--run=race")
        self.assertEqual(status, FOUND)
        self.assertIn("race: 1 finding (1 race)", out)
        for mark, thread in (("firstWrite", 5), ("secondWrite", 7)):
            place = rf'block 0, thread {thread}: plain write of 4 bytes\n.*\n      at .*checks.cpp:{line_of(mark)}\n'
            self.assertRegex(out, place)
        self.assertEqual(run("--run=race", "--no-races")[0], NOTHING_FOUND)

    def test_race_of_copies(self):
        status, out, _ = run("--run=copyRace")
        self.assertEqual(status, FOUND)
        self.assertRegex(out, rf"plain write of 8 bytes\n.*\n      at .*checks.cpp:{line_of('copyRace')}\n")

    def test_atomic_that_is_not_followed(self):
        status, out, _ = run("--run=wideAtomic")
        self.assertEqual(status, FOUND)
        self.assertIn("block 0 thread 5: an atomic access of 16 bytes, which the checker does not follow", out)

    def test_nothing_checked(self):
        status, out, _ = run("--run=touchesNothing")
        self.assertEqual(status, FOUND)
        self.assertIn("[1] nothingChecked: ", out)
        self.assertIn("mscclpp_add_check()", out)
        self.assertEqual(run("--run=touchesNothing", "--no-races")[0], NOTHING_FOUND)

    def test_dead_lock(self):
        status, out, _ = run("--run=deadLock", "--stop-at-first")
        self.assertEqual(status, FOUND)
        self.assertIn("[1] deadLock: ", out)

    def test_expected_findings(self):
        status, out, _ = run("--run=wrongResult", "--expect-finding=hostFailure")
        self.assertEqual(status, NOTHING_FOUND)
        self.assertIn("hostFailure was expected", out)
        status, out, _ = run("--run=correct", "--expect-finding=race")
        self.assertEqual(status, FOUND)
        self.assertIn("race was not found", out)

    def test_replay(self):
        with tempfile.TemporaryDirectory(prefix="mscclpp-check-") as folder:
            path = os.path.join(folder, "report.json")
            run("--run=wrongResult", f"--json={path}")
            with open(path, encoding="utf-8") as file:
                schedule = json.load(file)["checks"][0]["findings"][0]["schedule"]
        self.assertTrue(schedule)
        status, out, _ = run("--run=wrongResult", f"--replay={schedule}")
        self.assertEqual(status, FOUND)
        self.assertIn("in 1 schedule,", out)

    def test_faults(self):
        # A rank whose launch fails throws an error, which is its report.
        status, out, err = run("--run=correct", "--faults=2")
        self.assertEqual(status, NOTHING_FOUND, out + err)
        with tempfile.TemporaryDirectory(prefix="mscclpp-check-") as folder:
            path = os.path.join(folder, "report.json")
            status, out, _ = run("--run=oversight", "--faults=1", f"--json={path}")
            with open(path, encoding="utf-8") as file:
                finding = json.load(file)["checks"][0]["findings"][0]
        self.assertEqual(status, FOUND)
        self.assertIn("Faults of the schedule:", out)
        self.assertRegex(finding["faults"][0], r'rank \d was absent: the launch of its kernel 0 \(".*Square"\) failed')
        self.assertRegex(finding["schedule"], r"^v1,\d\.0=absent")
        status, out, _ = run("--run=oversight", f"--replay={finding['schedule']}")
        self.assertEqual(status, FOUND)
        self.assertIn("nobody has squared", out)
        self.assertEqual(run("--run=oversight")[0], NOTHING_FOUND)

    def test_object_without_hooks(self):
        status, out, err = run(target=ARGUMENTS.unseen)
        self.assertEqual(status, FOUND)
        self.assertIn("[1] nothingChecked: ", out)
        self.assertIn("without the compiler's hooks", err)

    def test_progress_on_a_terminal_only(self):
        status, out, shown = run_on_terminal([ARGUMENTS.command, ARGUMENTS.checks, "--run=correct"])
        self.assertEqual(status, NOTHING_FOUND)
        self.assertRegex(shown, r"\r\x1b\[K\[\d+/10\] correct")
        self.assertNotIn("\x1b", out)
        self.assertEqual(run("--run=correct")[2], "")

    def test_object_by_bare_name(self):
        folder, target = os.path.split(ARGUMENTS.checks)
        self.assertEqual(run("--run=correct", target=target, folder=folder)[0], NOTHING_FOUND)


class Files(unittest.TestCase):
    """JSON and SARIF say the same as the report."""

    def documents(self, *arguments):
        with tempfile.TemporaryDirectory(prefix="mscclpp-check-") as folder:
            paths = [os.path.join(folder, name) for name in ("report.json", "report.sarif")]
            status, _, err = run(*arguments, f"--json={paths[0]}", f"--sarif={paths[1]}", f"--source-root={FOLDER}")
            documents = []
            for path in paths:
                with open(path, encoding="utf-8") as file:
                    documents.append(json.load(file))
        return status, err, *documents

    def test_finding(self):
        status, _, report, code_view = self.documents("--run=wildWrite")
        self.assertEqual(status, FOUND)
        check, = report["checks"]
        self.assertEqual((check["name"], check["ok"]), ("wildWrite", False))
        finding, = check["findings"]
        self.assertEqual(finding["kind"], "kernelFailure")
        access, = finding["accesses"]
        self.assertEqual((access["kernel"], access["block"], access["thread"]), ("(anonymous namespace)::Square", 0, 5))
        self.assertEqual(os.path.basename(access["stack"][0]["file"]), "checks.cpp")
        self.assertEqual(access["stack"][0]["line"], line_of("wildWrite"))

        self.assertEqual(sarif.complaints(code_view), [])
        result, = code_view["runs"][0]["results"]
        self.assertEqual(result["ruleId"], "mscclpp/kernelFailure")
        place = result["locations"][0]["physicalLocation"]
        self.assertEqual(place["artifactLocation"], {"uri": "checks.cpp", "uriBaseId": "SRCROOT"})
        self.assertEqual(place["region"]["startLine"], line_of("wildWrite"))

    def test_each_program_has_its_part(self):
        with tempfile.TemporaryDirectory(prefix="mscclpp-check-") as folder:
            path = os.path.join(folder, "report.sarif")
            run("--run=wrongResult", f"--sarif={path}")
            with open(path, encoding="utf-8") as file:
                code_view = json.load(file)
        self.assertEqual(sarif.complaints(code_view), [])
        self.assertEqual([part["automationDetails"]["id"] for part in code_view["runs"]], ["mscclpp-check/wrongResult/"])

    def test_nothing_found(self):
        status, err, report, code_view = self.documents("--run=correct")
        self.assertEqual(status, NOTHING_FOUND, err)
        self.assertEqual(report["checks"][0]["findings"], [])
        self.assertEqual(report["checks"][0]["schedules"], 11)
        self.assertIn("5 pct", report["checks"][0]["explored"])
        self.assertEqual(sarif.complaints(code_view), [])
        self.assertEqual(code_view["runs"][0]["results"], [])

    def test_the_rules_of_sarif_are_seen_to_be_broken(self):
        _, _, _, good = self.documents("--run=wildWrite")
        self.assertEqual(sarif.complaints(good), [])

        def broken(change):
            document = copy.deepcopy(good)
            change(document, document["runs"][0]["results"][0])
            return sarif.complaints(document)

        def place(result):
            return result["locations"][0]["physicalLocation"]

        for change in (lambda document, _: document.update(version="2.0.0"),
                       lambda document, _: document.update(runs=[]),
                       lambda document, _: document["runs"].append(document["runs"][0]),
                       lambda document, _: document["runs"][0]["tool"].clear(),
                       lambda _, result: result.pop("message"),
                       lambda _, result: result.update(ruleIndex=0),
                       lambda _, result: result.update(level="fatal"),
                       lambda _, result: place(result)["region"].update(startLine=0),
                       lambda _, result: place(result)["artifactLocation"].update(uri="/a b"),
                       lambda _, result: place(result)["artifactLocation"].update(uriBaseId="OTHER"),
                       lambda _, result: result["codeFlows"][0]["threadFlows"][0].update(locations=[])):
            self.assertNotEqual(broken(change), [])


class Crashes(unittest.TestCase):
    """A crash of checked code is a finding with its place, not the end of the report."""

    THREAD = r'rank [01], kernel ".*Square", block 0, thread 5'

    def crash(self, program, kind, who, what):
        status, out, _ = run(f"--run={program}")
        self.assertEqual(status, FOUND, out)
        self.assertIn(f"[1] {kind}: {what}", out)
        self.assertRegex(out, f"\n    {who}: {what}")
        self.assertIn("in 1 schedule,", out)
        return out

    def test_plain_write_outside_of_memory(self):
        out = self.crash("wildWrite", "kernelFailure", self.THREAD,
                         "plain access of address 0x1000 outside of all memory")
        self.assertIn(f"checks.cpp:{line_of('wildWrite')}\n", out)
        self.assertNotIn("mscclpp::sim::", out)

    def test_copy_from_outside_of_memory(self):
        out = self.crash("wildCopy", "kernelFailure", self.THREAD, "plain access of address ")
        self.assertIn(f"checks.cpp:{line_of('wildCopy')}\n", out)

    def test_stack_that_runs_over(self):
        out = self.crash("deepStack", "kernelFailure", self.THREAD, "stack overflow")
        self.assertIn("threadStackBytes", out)
        # In the call, or in what the checker does when it has come to the function.
        lines = f"{line_of('deepStack')}|{line_of('deepEntry')}"
        self.assertRegex(out, rf"(at|by) \(anonymous namespace\)::digDown  \S*checks\.cpp:({lines})\n")

    def test_abort(self):
        out = self.crash("abort", "kernelFailure", self.THREAD, "abort")
        self.assertIn(f"checks.cpp:{line_of('abort')}\n", out)

    def test_report_that_cannot_be_written(self):
        status, out, err = run("--run=wildWrite", "--json=/nonexistent/report.json")
        self.assertEqual(status, FOUND)
        self.assertIn("[1] kernelFailure", out)
        self.assertIn("cannot write /nonexistent/report.json", err)

    def test_host_code(self):
        out = self.crash("hostWildWrite", "hostFailure", "rank 1, host code",
                         "plain access of address 0x1000 outside of all memory")
        self.assertIn(f"checks.cpp:{line_of('hostWildWrite')}\n", out)
        for seed in range(1, 7):   # in some of them rank 1 begins
            self.assertIn("in 1 schedule,", run("--run=hostWildWrite", f"--seed={seed}")[1])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *REST])
