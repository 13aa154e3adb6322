#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# mscclpp-model as a user runs it, and what mscclpp-bench does with its figures, on simulated GPUs.
#
#   model_cli.py --model=PATH --bench=PATH --results=FOLDER [unittest arguments...]
"""Tests of the command mscclpp-model."""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

MODEL = ""
BENCH = ""
RESULTS = ""


def run(program, *arguments, **variables):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MSCCLPP_")}
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=100,
                          env={**environment, **variables}, check=False)


class Model(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="mscclpp-model-")
        self.addCleanup(self.folder.cleanup)
        self.results = os.path.join(RESULTS, "model_h200.json")

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def saved(self, document):
        with open(self.path("model.json"), "w", encoding="utf-8") as file:
            json.dump(document, file)
        return self.path("model.json")

    def figures(self):
        shown = run(MODEL, "show")
        self.assertEqual(shown.returncode, 0, shown.stderr)
        return json.loads(shown.stdout)

    def refused(self, expected, *arguments):
        result = run(MODEL, *arguments)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn(expected, result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)

    def test_the_committed_results_are_predicted(self):
        result = run(MODEL, "check", self.results, f"--output={self.path('table.md')}")
        self.assertEqual(result.returncode, 0, result.stderr)
        with open(self.path("table.md"), encoding="utf-8") as file:
            self.assertEqual(file.read(), result.stdout)
        self.assertIn("| allgather | push | 4 | 1G | 132 x 512 |", result.stdout)

    def test_nodes_with_a_network_between_them(self):
        figures = ("--rail-gbps=50", "--message-us=12", "--transfer-us=1")
        result = run(MODEL, "network", "--nodes=128", "--ranks=8", *figures, "--max-bytes=4K")
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = result.stdout.splitlines()
        self.assertIn("128 nodes of 8 ranks", lines[0])
        self.assertEqual(lines[1].split(), ["size", "allreduce", "allgather", "reducescatter", "alltoall"])
        self.assertEqual([line.split()[0] for line in lines[2:]], ["1K", "4K"])
        # 126 further transfers of a microsecond each are most of it, of all but all-reduce, which goes between pairs.
        cells = lines[2].replace("(", " ").split()
        self.assertGreater(float(cells[4]), 138)
        self.assertLess(float(cells[1]), 138)
        saved = self.saved({"version": 1, "network": "ib", "parameters": {"message_us": 12, "transfer_us": 1,
                                                                          "rail_gbps": 50}})
        again = run(MODEL, "network", "--nodes=128", "--ranks=8", f"--network={saved}", "--max-bytes=4K")
        self.assertEqual((again.returncode, again.stdout), (0, result.stdout), again.stderr)
        self.refused("all three, or --network=FILE", "network", "--nodes=2")
        self.refused("all three, or --network=FILE", "network", *figures[1:])
        self.refused("all three, or --network=FILE", "network", f"--network={saved}", figures[0])
        self.refused("/nowhere.json: it cannot be read", "network", "--network=/nowhere.json")
        self.refused("railRate is 0", "network", "--rail-gbps=0", *figures[1:])
        self.refused("--min-bytes=1M is more than --max-bytes=1K", "network", *figures, "--min-bytes=1M",
                     "--max-bytes=1K")

    def test_a_model_that_is_far_off_fails(self):
        figures = self.figures()
        for name in ("store_gbps", "load_gbps", "copy_gbps"):
            figures["parameters"][name] *= 1.5
        figures["parameters"]["kernel_us"] *= 2
        result = run(MODEL, f"--model={self.saved(figures)}", "check", self.results)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("the limit 15 %", result.stderr)
        result = run(MODEL, f"--model={self.saved(figures)}", "check", self.results, "--limit=90")
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_plan_writes_a_page_of_all_collectives_with_bounds(self):
        result = run(MODEL, "plan", "--ranks=8", "--collective=all", "--min-bytes=64M", "--max-bytes=64M",
                     f"--output={self.path('plan.md')}")
        self.assertEqual(result.returncode, 0, result.stderr)
        with open(self.path("plan.md"), encoding="utf-8") as file:
            page = file.read()
        self.assertIn("Nothing here was measured on 8 of them", page)
        self.assertEqual(page.count("| 64M |"), 8, page)
        figures = self.figures()["parameters"]
        rate = max(figures["store_gbps"], figures["copy_gbps"])
        cells = page.split("## allreduce")[1].split("| 64M |")[1].split("|")
        self.assertAlmostEqual(float(cells[2]), 2 * 7 / 8 * 64 * 2**20 / rate / 1e3, delta=0.01)
        self.assertGreater(float(cells[1]), float(cells[2]))

    def test_committed_pages_are_what_is_printed_today(self):
        folder = os.path.dirname(self.results)
        for name, arguments in (("h200x8_prediction.md", ("plan", "--ranks=8", "--collective=all")),
                                ("model_h200.md", ("check", self.results))):
            result = run(MODEL, *arguments, f"--output={self.path(name)}")
            self.assertEqual(result.returncode, 0, result.stderr)
            with open(self.path(name), encoding="utf-8") as now, \
                    open(os.path.join(folder, name), encoding="utf-8") as committed:
                self.assertEqual(committed.read(), now.read(), f"write bench/results/{name} anew: {' '.join(arguments)}")

    def test_the_plan_for_many_nodes_is_what_is_written_today(self):
        with open(os.path.join(os.path.dirname(os.path.dirname(RESULTS)), "docs", "networks.md"), encoding="utf-8") as file:
            page = file.read()
        command, = re.findall(r"^mscclpp-model (network .*) --output=table.md$", page, re.M)
        result = run(MODEL, *command.split(), f"--output={self.path('table.md')}")
        self.assertEqual(result.returncode, 0, result.stderr)
        with open(self.path("table.md"), encoding="utf-8") as file:
            table = file.read()
        self.assertIn(f"\n\n{table}\n", page, "write the table in docs/networks.md anew, by the command above it")
        # As the page says: the fastest all-reduce of each row is in bold.
        for row in table.splitlines()[2:]:
            cells = row.split("|")[2:7]
            times = [float(cell.strip(" *")) for cell in cells]
            bold = [time for cell, time in zip(cells, times) if "*" in cell]
            self.assertEqual(bold, [min(times)], row)
        self.refused("--output=/nowhere/x.md: the file cannot be written", *command.split(), "--output=/nowhere/x.md")

    def test_plan_lists_algorithms_by_size(self):
        result = run(MODEL, "plan", "--ranks=8", "--collective=allgather", "--min-bytes=1K", "--max-bytes=1G")
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = result.stdout.splitlines()
        self.assertEqual([line.split()[0] for line in lines[1:]],
                         ["1K", "4K", "16K", "64K", "256K", "1M", "4M", "16M", "64M", "256M", "1G"])
        self.assertTrue(lines[1].split()[1].startswith("ll"), lines[1])
        self.assertEqual(lines[-1].split()[1], "copy_engine")
        times = [float(line.split()[2].rstrip(",")) for line in lines[1:]]
        self.assertEqual(times, sorted(times))

    def test_bad_use_is_refused_in_one_line(self):
        self.refused("A subcommand is required; see mscclpp-model --help")
        self.refused("no figures of it are known", "--device=Nothing", "show")
        self.refused("--collective=x: there is no such collective", "plan", "--collective=x")
        self.refused("--collective=sendrecv: the model has no prediction", "plan", "--collective=sendrecv")
        self.refused("--min-bytes=x: allowed is a whole number of bytes", "plan", "--min-bytes=x")
        self.refused("--min-bytes=2K is more than --max-bytes=1K", "plan", "--min-bytes=2K", "--max-bytes=1K")
        self.refused("/nowhere.json: it cannot be read", "check", "/nowhere.json")
        self.refused("no results of mscclpp-bench", "check", self.saved({"rows": []}))
        self.refused("the file has no \"version\"", f"--model={self.saved({})}", "show")
        self.refused("--output=/nowhere/x.md: the file cannot be written", "check", self.results,
                     "--output=/nowhere/x.md")

    def test_measured_limits_plan_and_choose(self):
        measured = run(BENCH, "--device=sim", "--ranks=3", f"--limits={self.path('sim.json')}")
        self.assertEqual(measured.returncode, 0, measured.stderr)
        with open(self.path("sim.json"), encoding="utf-8") as file:
            figures = json.load(file)
        self.assertEqual(figures["device"], "simulated GPU")
        # The library chooses by the file: copies that cost nothing, then copies that cost a second.
        for microseconds, expected in ((0, True), (1e6, False)):
            for name in ("copy_us", "copy_call_us"):
                figures["parameters"][name] = microseconds
            figures["parameters"]["copy_gbps"] = 1000
            # A busy machine may have measured anything.
            for name in ("kernel_us", "barrier_us", "packet_us", "stage_us", "launch_gap_us"):
                figures["parameters"][name] = 1
            for name in ("store_gbps", "load_gbps", "block_gbps"):
                figures["parameters"][name] = 100
            result = run(BENCH, "--device=sim", "--ranks=3", "--collective=allgather", "--min-bytes=3K",
                         "--max-bytes=3K", f"--output={self.path('r.json')}", MSCCLPP_MODEL=self.saved(figures))
            self.assertEqual(result.returncode, 0, result.stderr)
            with open(self.path("r.json"), encoding="utf-8") as file:
                row, = json.load(file)["rows"]
            self.assertEqual(row["algorithm"] == "copy_engine", expected)

    def test_a_model_that_cannot_be_read_ends_the_program_that_needs_it(self):
        result = run(BENCH, "--device=sim", "--ranks=3", "--max-bytes=3K", "--min-bytes=3K", MSCCLPP_MODEL="/nowhere")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("MSCCLPP_MODEL names /nowhere, which is not there", result.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for option in ("--model", "--bench", "--results"):
        parser.add_argument(option)
    options, rest = parser.parse_known_args()
    MODEL, BENCH, RESULTS = options.model, options.bench, options.results
    unittest.main(argv=[sys.argv[0], *rest])
