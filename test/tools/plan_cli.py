#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# mscclpp-plan as a user runs it, on simulated GPUs.
#
#   plan_cli.py --plan=PATH --writer=PATH --corpus=FOLDER [unittest arguments...]
"""Tests of the command mscclpp-plan."""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

PLAN = ""
WRITER = ""
CORPUS = ""
RIGHT, WRONG, BAD_USE = 0, 1, 2


class Plans(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="mscclpp-plan-")
        cls.addClassCleanup(cls.folder.cleanup)
        subprocess.run([WRITER, cls.folder.name], check=True, timeout=60)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def run_command(self, *arguments, environment=None):
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("MSCCLPP_")}
        return subprocess.run([PLAN, *arguments], capture_output=True, text=True, timeout=100,
                              env={**inherited, **(environment or {})}, check=False)

    def right(self, *arguments, environment=None):
        result = self.run_command(*arguments, environment=environment)
        self.assertEqual(result.returncode, RIGHT, result.stdout + result.stderr)
        return result.stdout

    def refused(self, expected, *arguments):
        result = self.run_command(*arguments)
        self.assertEqual(result.returncode, BAD_USE, result.stdout + result.stderr)
        self.assertIn(expected, result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)


class Judged(Plans):
    def test_a_right_plan_is_one_line(self):
        out = self.right("check", self.path("gather.json"))
        self.assertEqual(out.count("\n"), 1, out)
        self.assertIn("plan 'simple_allgather' is right: allgather of 2 ranks in place, protocol Simple", out)
        self.assertIn("2 memory channels", out)

    def test_a_wrong_plan_has_a_story(self):
        for command in ("check", "run"):
            result = self.run_command(command, self.path("wrong.json"))
            self.assertEqual(result.returncode, WRONG, result.stderr)
            self.assertIn("plan 'simple_allgather' is wrong: ", result.stdout)
            self.assertIn("rank 0", result.stdout)

    def test_the_corpus_is_what_is_written_today(self):
        self.assertEqual(sorted(os.listdir(CORPUS)), sorted(os.listdir(self.folder.name)))
        for name in os.listdir(CORPUS):
            with open(os.path.join(CORPUS, name), encoding="utf-8") as old, open(self.path(name), encoding="utf-8") as new:
                self.assertEqual(old.read(), new.read(), f"{name}; to renew it: test_tools_write_plans test/dsl/plans")

    def test_relaxed_steps_are_made_ordered_ones_where_data_need_it(self):
        plan = self.path("relaxed.json")
        self.assertIn("; 4 relaxed signals and waits are carried out as ordered ones", self.right("check", plan))
        out = self.right("describe", plan)
        self.assertEqual(out.count("signal, made ordered"), 2, out)
        self.assertEqual(out.count("wait, made ordered"), 2, out)
        self.assertEqual(out.count("relaxed signal  "), 2, out)
        self.right("run", plan, "--device=sim", "--size=4K")
        for command in ("check", "describe", "run"):
            result = self.run_command(command, plan, "--strict")
            self.assertEqual(result.returncode, RIGHT if command == "describe" else WRONG)
            self.assertIn("the relaxed signal and wait between them hand over no data", result.stdout)
        self.assertNotIn("ordered", self.right("check", self.path("gather.json")))

    def test_groups_that_send_to_the_next_group(self):
        plan = self.path("pipelined.json")
        self.right("check", plan, "--split-mask=0")
        self.assertIn("--split-mask=3: one less than a power of two that divides the 2 ranks",
                      self.run_command("check", plan, "--split-mask=3").stderr)
        result = self.run_command("check", plan, "--split-mask=1")
        self.assertEqual(result.returncode, WRONG)
        self.assertIn("ends with input[0] of rank 1, which does not belong there", result.stdout)
        self.refused("--split-mask=1: one less than", "check", self.path("gather.json"), "--split-mask=1")

    def test_what_is_no_plan_is_refused(self):
        self.refused("nowhere.json: it cannot be read", "check", self.path("nowhere.json"))
        with open(self.path("text.json"), "w", encoding="utf-8") as file:
            file.write("no plan")
        self.refused("is no JSON", "check", self.path("text.json"))
        with open(self.path("deep.json"), "w", encoding="utf-8") as file:
            file.write("[" * 100000)
        self.refused("its brackets are 100000 deep within each other; allowed are 64", "check", self.path("deep.json"))
        with open(self.path("gather.json"), encoding="utf-8") as file:
            document = json.load(file)
        document["protocol"] = "Fast"
        with open(self.path("fast.json"), "w", encoding="utf-8") as file:
            json.dump(document, file)
        self.refused("protocol is \"Fast\"; allowed is \"Simple\", \"LL\"", "describe", self.path("fast.json"))


class Shown(Plans):
    def svg(self, name):
        self.right("describe", self.path(name), f"--svg={self.path('plan.svg')}")
        return xml.etree.ElementTree.parse(self.path("plan.svg")).getroot()

    def parts(self, root, tag):
        return list(root.iter("{http://www.w3.org/2000/svg}" + tag))

    def test_every_step_is_a_line(self):
        out = self.right("describe", self.path("gather.json"))
        self.assertIn("rank 0: input 1 chunks, output 2, scratch 0\n  block 0\n", out)
        self.assertIn("output[0] of rank 0 -> output[0] of rank 1", out)
        self.assertRegex(out, r"\n +\d+  wait +memory channel 0 to rank 1; after rank 1 block 0 step \d+\n")

    def test_wrong_plans_are_shown_too(self):
        out = self.right("describe", self.path("wrong.json"))
        self.assertIn("\nwrong: ", out)
        self.assertIn("rank 1: ", out)

    def test_loops_are_indented(self):
        out = self.right("describe", self.path("pipelined.json"))
        self.assertIn("  loop  ", out)
        self.assertRegex(out, r"\n +\d+    \w")

    def test_the_picture_has_a_box_for_each_step_and_arrows_to_waits(self):
        with open(self.path("gather.json"), encoding="utf-8") as file:
            plan = json.load(file)
        steps = sum(len(block["ops"]) for gpu in plan["gpus"] for block in gpu["threadblocks"])
        root = self.svg("gather.json")
        self.assertEqual(len(self.parts(root, "title")), steps)
        arrows = [path for path in self.parts(root, "path") if path.get("marker-end")]
        self.assertEqual([path.get("class") for path in arrows], ["signal"] * 4)
        # What is waited for is drawn above the wait.
        for path in arrows:
            start, end = path.get("d")[1:].split("C")
            self.assertLess(int(start.split()[1]), int(end.split()[-1]))

    def test_packets_have_arrows(self):
        arrows = [path for path in self.parts(self.svg("packets.json"), "path") if path.get("marker-end")]
        self.assertEqual({path.get("class") for path in arrows}, {"packets"})

    def test_a_picture_that_cannot_be_written_is_refused(self):
        self.refused("--svg=/nowhere/x.svg: the file cannot be written", "describe", self.path("gather.json"),
                     "--svg=/nowhere/x.svg")


class Run(Plans):
    def runs(self, name, elements, *arguments):
        out = self.right("run", self.path(name), "--device=sim", *arguments)
        self.assertIn(f"right: {elements} elements compared", out)
        self.assertIn("busbw GB/s", out)
        self.assertIn("say nothing about a GPU", out)

    def test_collectives(self):
        # Elements of output, of every rank and both compared calls.
        self.runs("gather.json", 2 * 2 * 1024, "--ranks=2", "--size=4K", "--in-place")
        self.runs("packets.json", 2 * 2 * 1000, "--size=1000", "--dtype=uint8", "--op=max")
        self.runs("packets.json", 2 * 2 * 1000, "--size=2000", "--dtype=float16", "--packet-type=LL8")
        self.refused("LL8 packets, which hold 4 bytes of data and no float64; take LL16", "run",
                     self.path("packets.json"), "--device=sim", "--dtype=float64", "--packet-type=LL8")
        self.runs("pull_push.json", 2 * 2 * 512, "--size=1K", "--dtype=bfloat16", "--op=avg", "--iterations=1")
        self.runs("all_to_all.json", 2 * 2 * 512, "--size=4096", "--dtype=float64")
        self.runs("pipelined.json", 2 * 2 * 4096, "--size=4K", "--dtype=float8_e4m3")
        self.runs("reduce_scatter.json", 4 * 2 * 256, "--size=4K", "--threads=32", "--op=prod")

    def test_port_and_switch_channels(self):
        self.runs("port.json", 2 * 2 * 1024, "--size=4K")
        self.runs("switch.json", 2 * 2 * 1024, "--size=4K", "--in-place")
        self.runs("switch.json", 2 * 2 * 4096, "--size=4K", "--dtype=int8", "--op=avg")
        out = self.right("check", self.path("port.json"))
        self.assertIn("2 port channels", out)

    def test_hosts(self):
        for name in ("two_hosts_allreduce.json", "two_hosts_allgather.json"):
            self.runs(name, 4 * 2 * 1024, "--size=4K", "--hosts=2")
        self.refused("--hosts=5: the plan has 4 ranks", "run", self.path(name), "--device=sim", "--hosts=5")
        self.refused(", which are on different hosts; use a port channel there", "run", self.path("gather.json"),
                     "--hosts=2")

    def test_rows_are_those_of_the_benchmark(self):
        out = self.right("run", self.path("packets.json"), "--device=sim", "--size=4K", "--replays=3", "--launch=eager")
        title, row = (line.split() for line in out.splitlines()[-2:])
        self.assertEqual(title[:5], ["collective", "size", "type", "op", "algorithm"])
        self.assertEqual(row[:5], ["allreduce", "4K", "float32", "sum", "twoshot_packets"])
        self.assertEqual(row[-1], "0")   # wrong
        self.assertLessEqual(float(row[9]), float(row[10]))   # median and p99

    def test_one_rank(self):
        step = {"name": "copy", "src_buff": [{"type": "i", "index": 0, "size": 1}],
                "dst_buff": [{"type": "o", "index": 0, "size": 1}]}
        gpu = {"id": 0, "input_chunks": 1, "output_chunks": 1, "scratch_chunks": 0,
               "threadblocks": [{"id": 0, "ops": [step]}]}
        for collective in ("allgather", "allreduce", "reducescatter", "alltoall", "sendrecv"):
            with open(self.path("alone.json"), "w", encoding="utf-8") as file:
                json.dump({"name": "alone", "collective": collective, "protocol": "Simple", "inplace": False,
                           "gpus": [gpu]}, file)
            self.runs("alone.json", 2 * 1024, "--size=4K")

    def test_processes(self):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MSCCLPP_")}
        environment["MSCCLPP_SECRET"] = "of the test"
        plan = [PLAN, "run", self.path("two_hosts_allreduce.json"), "--device=sim", "--size=4K"]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        ranks = [subprocess.Popen(plan, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  env={**environment, "MSCCLPP_RANK": str(rank), "MSCCLPP_WORLD_SIZE": "4",
                                       "MSCCLPP_MASTER_ADDR": "127.0.0.1", "MSCCLPP_MASTER_PORT": port})
                 for rank in range(4)]
        texts = [rank.communicate(timeout=100)[0] for rank in ranks]
        for rank, text in zip(ranks, texts):
            self.assertEqual(rank.returncode, 0, text)
        self.assertIn("4 simulated ranks, processes started by mscclpp", texts[0])
        self.assertIn(f"right: {4 * 2 * 1024} elements compared", texts[0])
        self.assertEqual(texts[1:], ["", "", ""])
        environment.update({"MSCCLPP_RANK": "0", "MSCCLPP_WORLD_SIZE": "3", "MSCCLPP_MASTER_ADDR": "127.0.0.1"})
        result = subprocess.run(plan, capture_output=True, text=True, timeout=100, env=environment, check=False)
        self.assertEqual(result.returncode, BAD_USE)
        self.assertIn("mscclpp started 3 ranks: the plan is for 4", result.stderr)

    def test_what_demands_nothing_is_run_and_not_compared(self):
        result = self.run_command("run", self.path("custom.json"), "--size=4K")
        self.assertEqual(result.returncode, RIGHT, result.stdout + result.stderr)
        self.assertIn("nothing was compared", result.stdout)

    def test_buffers_without_chunks_are_run(self):
        step = {"name": "copy", "src_buff": [{"type": "i", "index": 0, "size": 1}],
                "dst_buff": [{"type": "s", "index": 1, "size": 1}]}
        for input_chunks, output_chunks in ((1, 0), (0, 1), (0, 0)):
            ops = [step if input_chunks else {"name": "nop"}]
            gpu = {"id": 0, "input_chunks": input_chunks, "output_chunks": output_chunks, "scratch_chunks": 2,
                   "threadblocks": [{"id": 0, "ops": ops}]}
            with open(self.path("empty.json"), "w", encoding="utf-8") as file:
                json.dump({"name": "empty", "collective": "test", "protocol": "Simple", "inplace": False,
                           "gpus": [gpu]}, file)
            result = self.run_command("run", self.path("empty.json"), "--size=4K", "--iterations=1")
            self.assertEqual(result.returncode, RIGHT, result.stdout + result.stderr)
            self.assertIn("nothing was compared", result.stdout)

    def test_plans_are_compiled_and_kept(self):
        with tempfile.TemporaryDirectory(prefix="mscclpp-plan-") as folder:
            environment = {"MSCCLPP_CACHE_DIR": folder}
            compiling = ("compile", self.path("gather.json"), "--device=sim", "--dtype=int32")
            self.assertIn("plan 'simple_allgather' for int32: compiled\n", self.right(*compiling, environment=environment))
            self.assertIn("was compiled before", self.right(*compiling, environment=environment))
            out = self.right("run", self.path("gather.json"), "--device=sim", "--dtype=int32", "--compiled",
                             environment=environment)
            self.assertIn("compiled at run time, which took ", out)
            self.assertIn("right: ", out)
        self.refused("--dtype=int3", "compile", self.path("gather.json"), "--dtype=int3")

    def test_bad_use_is_refused_in_one_line(self):
        plan = self.path("gather.json")
        self.refused("A subcommand is required; see mscclpp-plan --help")
        self.refused("plan is required", "run")
        self.refused("--ranks=3: the plan is for 2 ranks", "run", plan, "--ranks=3")
        self.refused("--size=x: allowed is a whole number of bytes", "run", plan, "--size=x")
        self.refused("--size=1001: the plan's larger buffer is a multiple of 8 bytes of float32, as 1008 is", "run", plan,
                     "--size=1001")
        self.refused("--dtype=float: allowed is float32, ", "run", plan, "--dtype=float")
        self.refused("--op=sum: the plan reduces nothing", "run", plan, "--op=sum")
        self.refused("--op=and: allowed is sum, ", "run", self.path("packets.json"), "--op=and")
        self.refused("--in-place: plan 'scratch_alltoall' does not work in place", "run",
                     self.path("all_to_all.json"), "--in-place")
        self.refused("--iterations", "run", plan, "--iterations=0")
        self.refused("--device", "run", plan, "--device=tpu")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for option in ("--plan", "--writer", "--corpus"):
        parser.add_argument(option)
    options, rest = parser.parse_known_args()
    PLAN, WRITER, CORPUS = options.plan, options.writer, options.corpus
    unittest.main(argv=[sys.argv[0], *rest])
