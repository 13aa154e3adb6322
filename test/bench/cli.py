#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Runs mscclpp-bench on simulated GPUs and judges its exit status, its table, its files and its messages.
#
#   cli.py --bench=PROGRAM [CLASS...]
"""Tests of the benchmark's command line."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

BENCH = [argument.split("=", 1)[1] for argument in sys.argv if argument.startswith("--bench=")][0]
SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
LIMIT = 100   # seconds that one run may take
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "drivers"))
from terminal import run_on_terminal   # noqa: E402  pylint: disable=wrong-import-position


def run(*arguments, environment=None):
    """Returns (exit status, stdout, stderr)."""
    variables = {name: value for name, value in os.environ.items()
                 if not re.match(r"^(OMPI_|PMIX_|PMI_|SLURM_|TORCHELASTIC_|MSCCLPP_|BENCHMARK_)", name)
                 and name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    variables.update(environment or {})
    result = subprocess.run([BENCH, *arguments], env=variables, capture_output=True, text=True, timeout=LIMIT, check=False)
    return result.returncode, result.stdout, result.stderr


def small(*arguments, **keywords):
    return run("--device=sim", "--max-bytes=1K", "--replays=2", *arguments, **keywords)


def rows(table):
    """The table's lines as lists of cells, without the heading."""
    lines = [line.split() for line in table.splitlines()]
    first = next(i for i, cells in enumerate(lines) if cells[:3] == ["collective", "size", "type"])
    return lines[first + 1:]


def algorithms(collective="allreduce"):
    """All names for several ranks of a node, as the program itself lists them."""
    names = run("--device=sim", f"--collective={collective}", "--algorithm=?")[2].split("a list of ")[1].strip().split(", ")
    return [name for name in names if name not in ("copy", "two_level")]  # for one rank, for several nodes


def collectives():
    """Those that this program has kernels of."""
    out = small("--collective=all", "--benchmark_list_tests")[1]
    return list(dict.fromkeys(re.findall(r"^(\w+)/\w+/\w+/\w+/\d+", out, re.MULTILINE)))


class BadArguments(unittest.TestCase):
    """Exit status 2, nothing on stdout, and one line that says what is allowed."""

    def refused(self, arguments, *fragments):
        status, out, err = run("--device=sim", *arguments)
        self.assertEqual(status, 2, err)
        self.assertEqual(out, "")
        self.assertEqual(err.count("\n"), 1, err)
        for fragment in fragments:
            self.assertIn(fragment, err)

    def test_unknown_names(self):
        self.refused(["--collective=gossip"], "--collective=gossip", "all, or a list of allreduce, allgather")
        self.refused(["--dtype=float17"], "--dtype=float17", "bfloat16", "float8_e5m2", "uint64")
        self.refused(["--op=sum,median"], "--op=median", "sum, prod, min, max, avg")
        self.refused(["--algorithm=ring"], "--algorithm=ring", "auto, all", "twoshot_memory")
        self.refused(["--peers=rccl"], "--peers=rccl", "nccl")
        self.refused(["--speed=high"], "--speed=high")
        self.refused(["stray"], "stray")

    def test_numbers(self):
        self.refused(["--ranks=0"], "--ranks=0", "1 to 72")
        self.refused(["--ranks=four"], "--ranks=four", "1 to 72")
        self.refused(["--min-bytes=1T"], "--min-bytes=1T", "K, M or G")
        self.refused(["--min-bytes=-1"], "--min-bytes=-1")
        self.refused(["--min-bytes=4K", "--max-bytes=1K"], "--min-bytes=4K", "--max-bytes=1K")
        self.refused(["--factor=1"], "--factor=1")
        self.refused(["--threads=1024"], "--threads=1024", "512")
        self.refused(["--check=perhaps"], "--check=perhaps", "on, off")
        self.refused(["--devices=100"], "--devices=100", "1 to 72")
        self.refused(["--launch=host", "--ops-per-graph=1000"], "--ops-per-graph=1000", "256")

    def test_combinations(self):
        self.refused(["--dtype=int8", "--op=prod", "--algorithm=oneshot_ll128"], "--op=prod", "int8", "oneshot_ll16")
        self.refused(["--dtype=float64", "--algorithm=oneshot_ll8"], "oneshot_ll8", "float64")
        self.refused(["--algorithm=oneshot_ll128", "--threads=16"], "--threads=16", "32")
        self.refused(["--min-bytes=2", "--dtype=float32"], "--min-bytes=2", "4 bytes")
        self.refused(["--peers=nccl"], "--peers=nccl")
        self.refused(["--peers=nccl-symmetric"], "--peers=nccl-symmetric", "--device=cuda")
        self.refused(["--plot=figures", "--launch=host"], "--plot=figures", "--launch=graph")
        self.refused(["--plot=figures", "--dry-run"], "--dry-run", "--plot")
        self.refused(["--plot=figures", "--limits=a.json"], "--plot=figures", "--limits")

    def test_output(self):
        self.refused(["--output=results.csv"], "results.csv", ".json or .md")
        self.refused(["--output=/nonexistent-folder/a.json"], "/nonexistent-folder/a.json")

    def test_flags_of_google_benchmark(self):
        self.refused(["--benchmark_colour=red"], "--benchmark_colour=red")
        status, out, err = small("--benchmark_filter=nothing_has_this_name")
        self.assertEqual(status, 2)
        self.assertIn("matches no case", err)

    def test_too_large_for_the_device(self):
        status, _, err = run("--device=sim", "--min-bytes=64G", "--max-bytes=64G")
        self.assertEqual(status, 2)
        self.assertIn("--max-bytes=64G", err)


class Results(unittest.TestCase):
    """Tables and files of runs that succeed."""

    def test_default_run(self):
        status, out, err = small()
        self.assertEqual((status, err), (0, ""))
        self.assertIn("seed: ", out)
        self.assertIn("nothing about a GPU", out)
        (cells,) = rows(out)
        self.assertEqual(cells[:4], ["allreduce", "1K", "bfloat16", "sum"])
        self.assertEqual(cells[-1], "0")
        self.assertGreater(float(cells[-5]), 0)

    def test_seed_changes_with_the_run_and_can_be_given(self):
        seeds = [re.search(r"seed: (\d+)", small("--check=off")[1]).group(1) for _ in range(2)]
        self.assertNotEqual(*seeds)
        self.assertIn("seed: 7\n", small("--seed=7")[1])

    def test_every_algorithm(self):
        status, out, _ = run("--device=sim", "--ranks=3", "--algorithm=all", "--dtype=float32,uint64", "--replays=1",
                             "--min-bytes=1000", "--max-bytes=1000")
        self.assertEqual(status, 0)
        table = rows(out)
        ran = {kind: [row[4] for row in table if row[2] == kind] for kind in ("float32", "uint64")}
        self.assertEqual(ran["float32"], algorithms())
        # Packets of 4 bytes cannot carry elements of 8.
        self.assertEqual(ran["uint64"], [name for name in algorithms() if not name.endswith("_ll8") and name != "nvls_packet"])
        self.assertEqual({row[-1] for row in table}, {"0"})

    def test_every_collective(self):
        self.assertIn("allreduce", collectives())
        for arguments in (["--ranks=3"], ["--ranks=3", "--in-place"], ["--ranks=1"], ["--ranks=5", "--dtype=float64"]):
            # Not a multiple of anything, so that parts begin at odd places.
            status, out, err = run("--device=sim", "--collective=all", "--algorithm=all", "--min-bytes=1994", "--replays=1",
                                   "--max-bytes=1994", *arguments)
            self.assertEqual((status, err), (0, ""))
            table = rows(out)
            self.assertEqual({row[-1] for row in table}, {"0"})
            ran = list(dict.fromkeys(row[0] for row in table))
            self.assertEqual(ran, [name for name in collectives()
                                   if name not in ("alltoall", "sendrecv") or "--in-place" not in arguments])

    def test_collective_by_its_name(self):
        for collective in collectives():
            status, out, _ = small(f"--collective={collective}", "--ranks=2", "--algorithm=all")
            self.assertEqual(status, 0)
            expected = ["messages"] if collective == "sendrecv" else algorithms(collective)
            self.assertEqual([row[4] for row in rows(out)], expected)

    def test_types_and_operations(self):
        types = "float32,float64,float16,bfloat16,float8_e4m3,float8_e5m2,int8,uint8,int32,uint32,int64,uint64"
        for algorithm in ("auto", "oneshot_ll16", "twoshot_memory"):
            status, out, _ = small("--ranks=2", f"--algorithm={algorithm}", "--op=sum,prod,min,max,avg",
                                   f"--dtype={types}")
            self.assertEqual(status, 0)
            self.assertEqual(len(rows(out)), 60)
            self.assertEqual({row[-1] for row in rows(out)}, {"0"})

    def test_in_place_and_shape(self):
        status, out, _ = small("--ranks=2", "--in-place", "--blocks=3", "--threads=96", "--overlap=off",
                               "--algorithm=twoshot_memory")
        self.assertEqual(status, 0)
        self.assertIn("in place", out)
        (cells,) = rows(out)
        self.assertEqual(cells[5:8], ["3", "x", "96"])
        self.assertEqual(cells[-1], "0")

    def test_calls_from_the_host(self):
        for mode, arguments in (("eager", []), ("host", []), ("host", ["--devices=1"])):
            status, out, err = small("--ranks=2", f"--launch={mode}", "--collective=allreduce,gather,sendrecv",
                                     "--ops-per-graph=5", *arguments)
            self.assertEqual((status, err), (0, ""))
            table = rows(out)
            self.assertEqual([row[0] for row in table], ["allreduce", "gather", "sendrecv"])
            self.assertEqual({row[-1] for row in table}, {"0"})
            shown = {cell for row in table for cell in row if cell.startswith(mode)}
            self.assertEqual(shown, {mode + "/shared" if arguments else mode})
            self.assertEqual("bare us" in out, mode == "host")
        # A launch shape of one's own, and an algorithm by its name, through the library's call.
        status, out, _ = small("--ranks=2", "--launch=eager", "--algorithm=twoshot_memory", "--blocks=3", "--threads=96")
        self.assertEqual(status, 0)
        self.assertEqual(rows(out)[0][4:9], ["twoshot_memory", "3", "x", "96", "eager"])

    def test_ranks_that_share_devices(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "r.json")
            status, out, err = run("--device=sim", "--ranks=5", "--devices=2", "--max-bytes=4K", "--collective=all",
                                   "--algorithm=all", "--replays=1", f"--output={path}")
            self.assertEqual((status, err), (0, ""))
            self.assertIn("Ranks share GPUs: times say nothing about links.", out)
            self.assertEqual({row[-1] for row in rows(out)}, {"0"})
            with open(path, encoding="utf-8") as file:
                self.assertEqual({(row["launch"], row["shared"]) for row in json.load(file)["rows"]}, {("graph", True)})
        status, _, err = run("--device=sim", "--ranks=2", "--devices=1", "--limits=x.json")
        self.assertEqual(status, 2)
        self.assertIn("2 ranks share devices", err)

    def test_dry_run(self):
        status, out, err = run("--device=sim", "--ranks=6", "--dry-run", "--algorithm=all", "--collective=all")
        self.assertEqual((status, err), (0, ""))
        table = rows(out)
        self.assertEqual(list(dict.fromkeys(row[0] for row in table)), collectives())
        self.assertEqual({row[-1] for row in table}, {"-"})

    def test_choices_are_those_of_the_table(self):
        with open(SCRIPTS.parent / "test" / "collectives" / "choices.txt", encoding="utf-8") as file:
            table = {tuple(key.split()[:5]): words.split() for key, words in (line.split(":") for line in file)}
        sizes = [1024 << step for step in range(21)]
        for setting, environment in (("lines", {"MSCCLPP_NVLS": "0"}), ("switch", {})):
            for ranks in (1, 2, 4, 8, 16):
                status, out, err = run("--device=sim", f"--ranks={ranks}", "--dry-run", "--collective=all",
                                       "--dtype=bfloat16,float64,uint8", "--max-bytes=1G", "--factor=2",
                                       environment=environment)
                self.assertEqual((status, err), (0, ""))
                planned = {}
                for row in rows(out):
                    planned.setdefault((row[0], row[2]), []).append(row[4])
                self.assertEqual({name for name, _ in planned}, set(collectives()))
                for (collective, dtype), names in planned.items():
                    key = (setting, collective, dtype, str(ranks), "symmetric")
                    if key not in table:
                        self.assertNotEqual(dtype, "uint8", key)
                        continue
                    steps = list(zip(map(int, table[key][::2]), table[key][1::2]))
                    expected = [[name for least, name in steps if least <= size][-1] for size in sizes]
                    self.assertEqual(names, expected, key)

    def test_unchecked_run_claims_nothing(self):
        (cells,) = rows(small("--check=off")[1])
        self.assertEqual(cells[-1], "-")

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            own, theirs, text = (os.path.join(folder, name) for name in ("own.json", "theirs.json", "own.md"))
            status, _, _ = run("--device=sim", "--ranks=2", "--max-bytes=4K", "--replays=2", f"--output={own}",
                               f"--benchmark_out={theirs}")
            self.assertEqual(status, 0)
            with open(own, encoding="utf-8") as file:
                document = json.load(file)
            self.assertEqual([row["bytes"] for row in document["rows"]], [1024, 4096])
            self.assertEqual([row["wrong"] for row in document["rows"]], [0, 0])
            self.assertEqual(document["context"]["device"], "simulated GPU")
            self.assertIn("boot", document["context"])
            for row in document["rows"]:
                self.assertEqual(row["name"], f"allreduce/{row['algorithm']}/bfloat16/sum/{row['bytes']}")
                # 2 ranks: 2 (n - 1) / n is 1.
                self.assertAlmostEqual(row["busbw_gbps"], row["algbw_gbps"])
                self.assertAlmostEqual(row["algbw_gbps"], row["bytes"] / row["time_us"] * 1e-3)
                self.assertLessEqual(row["time_us"], row["p99_us"])
            table = subprocess.run([sys.executable, "-B", SCRIPTS / "bench_results.py", own], capture_output=True, text=True,
                                   timeout=LIMIT, check=True).stdout
            self.assertIn("### allreduce, bfloat16 sum, 2 ranks", table)
            with open(theirs, encoding="utf-8") as file:
                document = json.load(file)
            self.assertIn("seed", document["context"])
            self.assertEqual([entry["iterations"] for entry in document["benchmarks"]], [2, 2])
            self.assertEqual([entry["wrong"] for entry in document["benchmarks"]], [0, 0])
            status, _, _ = small(f"--output={text}")
            self.assertEqual(status, 0)
            with open(text, encoding="utf-8") as file:
                lines = [line for line in file.read().splitlines() if line.startswith("|")]
            self.assertIn("| allreduce | 1K | bfloat16 | sum |", lines[-1])
            self.assertEqual(len({line.count("|") for line in lines[-3:]}), 1)

    def test_plots(self):
        with tempfile.TemporaryDirectory() as folder:
            # Something else in Python's place shows what it is called with.
            fake = pathlib.Path(folder) / "python3"
            fake.write_text('#!/bin/sh\necho "$@"\nexit $STATUS\n', encoding="utf-8")
            fake.chmod(0o755)
            figures = f"{folder}/new/figures"
            path = f"{folder}:{os.environ['PATH']}"
            status, out, err = small(f"--plot={figures}", environment={"PATH": path, "STATUS": "0"})
            self.assertEqual((status, err), (0, ""))
            self.assertEqual(out.splitlines()[-1],
                             f"{SCRIPTS / 'plot_bench.py'} {figures}/bench.json --out={figures}")
            self.assertEqual(len(json.loads(pathlib.Path(figures, "bench.json").read_text(encoding="utf-8"))["rows"]), 1)
            status, _, err = small(f"--plot={figures}", environment={"PATH": path, "STATUS": "1"})
            self.assertEqual(status, 1)
            self.assertIn(f"what was measured is in {figures}/bench.json", err)
            status, _, err = small(f"--plot={fake}/below")
            self.assertEqual(status, 2)
            self.assertIn("Not a directory", err)

    def test_progress_on_a_terminal_only(self):
        command = [BENCH, "--device=sim", "--max-bytes=4K", "--replays=2"]
        status, out, shown = run_on_terminal(command)
        self.assertEqual(status, 0)
        self.assertIn("\r\x1b[K[0/2] ", shown)
        self.assertTrue(shown.endswith("\r\x1b[K"))   # nothing is left
        self.assertNotIn("\x1b", out)
        self.assertEqual(run(*command[1:])[2], "")

    def test_filter_and_list(self):
        status, out, _ = small("--ranks=2", "--algorithm=all", "--benchmark_filter=/oneshot_ll(8|16)/")
        self.assertEqual(status, 0)
        self.assertEqual([row[4] for row in rows(out)], ["oneshot_ll8", "oneshot_ll16"])
        status, out, _ = small("--ranks=2", "--algorithm=all", "--benchmark_list_tests")
        self.assertEqual(status, 0)
        self.assertEqual(re.findall(r"^allreduce/(\w+)/", out, re.MULTILINE), algorithms())

    def test_help(self):
        status, out, _ = run("--help")
        self.assertEqual(status, 0)
        for flag in ("--device", "--algorithm", "--min-bytes", "--peers", "--benchmark_filter"):
            self.assertIn(flag, out)

    def test_many_ranks(self):
        status, out, _ = small("--ranks=12", "--check=on", "--algorithm=oneshot_ll16")
        self.assertEqual(status, 0)
        self.assertIn("12 ranks", out)


class Failures(unittest.TestCase):
    """Runs that must not succeed, and must end."""

    def test_kernel_that_gives_up(self):
        # No wait can end within a nanosecond, so every rank's kernel reports one, or that a peer's was given up.
        status, out, err = small("--algorithm=oneshot_ll16,twoshot_ll16", environment={"MSCCLPP_KERNEL_TIMEOUT": "1e-9"})
        self.assertEqual(status, 1, err)
        self.assertIn("allreduce/oneshot_ll16/bfloat16/sum/1024: ", err)
        self.assertRegex(err, "waited|refused to go on")
        self.assertEqual([row[-1] for row in rows(out)], ["failed", "failed"])

    def test_rank_of_a_job_whose_peers_never_come(self):
        status, _, err = small(environment={"MSCCLPP_RANK": "1", "MSCCLPP_WORLD_SIZE": "2",
                                            "MSCCLPP_COMM_ID": "no such address"})
        self.assertNotEqual(status, 0)
        self.assertIn("no such address", err)

    def test_ranks_contradict_the_launcher(self):
        status, _, err = small("--ranks=3", environment={"MSCCLPP_RANK": "0", "MSCCLPP_WORLD_SIZE": "2",
                                                         "MSCCLPP_COMM_ID": "127.0.0.1:0"})
        self.assertEqual(status, 2, err)
        self.assertIn("--ranks=3", err)
        self.assertIn("2 ranks", err)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "--verbose", *[argument for argument in sys.argv[1:] if argument[0] != "-"]])
