#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Runs scripts/bench_results.py, scripts/plot_bench.py and scripts/nccl_table.py on small results. Drawing itself is tested where matplotlib is.
#
#   results.py --scripts=FOLDER
"""Tests of the scripts that put benchmark results together."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path([argument.split("=", 1)[1] for argument in sys.argv if argument.startswith("--scripts=")][0])
sys.path.insert(0, str(SCRIPTS))
sys.dont_write_bytecode = True
import bench_results   # noqa: E402  pylint: disable=wrong-import-position
import plot_bench   # noqa: E402  pylint: disable=wrong-import-position


def row(time, algorithm="oneshot_ll16", size=1024, **changes):
    """One measured case."""
    result = {"name": f"allreduce/{algorithm}/bfloat16/sum/{size}", "collective": "allreduce", "algorithm": algorithm,
              "dtype": "bfloat16", "op": "sum", "bytes": size, "count": size // 2, "ranks": 4, "in_place": False,
              "time_us": time, "p99_us": time * 1.1, "algbw_gbps": size / time * 1e-3, "busbw_gbps": size / time * 1.5e-3,
              "wrong": 0}
    result.update(changes)
    return result


def peer(time, name="nccl", **changes):
    """The same of a peer."""
    return row(time, **{"algorithm": name, "peer": name, **changes})


def document(*rows, **context):
    """A file's contents."""
    return {"context": {"device": "GPU", "boot": "12345678", **context}, "rows": list(rows)}


def script(name, *arguments):
    """Returns (exit status, stdout, stderr)."""
    result = subprocess.run([sys.executable, "-B", SCRIPTS / name, *arguments], capture_output=True, text=True, timeout=100,
                            check=False)
    return result.returncode, result.stdout, result.stderr


class Merging(unittest.TestCase):
    """Several files become one table."""

    def test_ours_is_compared_with_each_peer_and_with_the_best(self):
        merged = bench_results.merge([document(row(2.0), peer(8.0)),
                                      document(peer(5.0, "torch"), peer(6.0, "torch", algorithm="torch:slow"))])
        ours = next(entry for entry in merged["rows"] if "peer" not in entry)
        self.assertEqual(ours["vs"], {"nccl": 4.0, "torch": 2.5})
        self.assertEqual((ours["best_peer"], ours["vs_best"]), ("torch", 2.5))
        self.assertTrue(all("vs" not in entry for entry in merged["rows"] if "peer" in entry))

    def test_peers_with_wrong_results_or_none_do_not_count(self):
        failed = {key: value for key, value in peer(1.0, "c").items() if not key.endswith("_us")}
        merged = bench_results.merge([document(row(2.0), peer(1.0, "a", wrong=3), peer(4.0, "b"), {**failed, "error": "no"})])
        ours = next(entry for entry in merged["rows"] if "peer" not in entry)
        self.assertEqual((ours["best_peer"], ours["vs"]), ("b", {"b": 2.0}))

    def test_old_comparisons_do_not_stay(self):
        merged = bench_results.merge([document(row(2.0, vs={"nccl": 9.0}, vs_best=9.0, best_peer="nccl"))])
        self.assertNotIn("vs_best", merged["rows"][0])

    def test_only_like_is_compared_with_like(self):
        merged = bench_results.merge([document(row(2.0), peer(8.0, size=4096), peer(8.0, dtype="float32"),
                                               peer(8.0, collective="broadcast"), peer(8.0, ranks=2))])
        self.assertTrue(all("vs" not in entry for entry in merged["rows"]))

    def test_the_last_file_counts(self):
        merged = bench_results.merge([document(row(2.0)), document(row(3.0))])
        self.assertEqual([entry["time_us"] for entry in merged["rows"]], [3.0])

    def test_other_machines_and_other_starts_are_refused(self):
        for change in ({"device": "other GPU"}, {"boot": "87654321"}):
            with self.assertRaisesRegex(bench_results.ResultsError, "not of one sitting.*" + list(change)[0]):
                bench_results.merge([document(row(2.0)), document(peer(8.0), **change)])

    def test_table(self):
        text = bench_results.markdown(bench_results.merge(
            [document(row(4.0, "slow"), row(2.0), peer(8.0), row(16.0, size=1 << 20), peer(8.0, size=1 << 20))]))
        self.assertIn("### allreduce, bfloat16 sum, 4 ranks", text)
        self.assertIn("| 1K | 2.00 | 2.20 | 0.77 | oneshot_ll16 | 8.00 | 4.00 |", text)
        self.assertIn("| 1M | 16.00 |", text)
        self.assertIn("Geometric mean of the last column: 1.41, least: 0.50.", text)
        alone = bench_results.markdown(bench_results.merge([document(peer(8.0))]))
        self.assertIn("| 1K | - | - | - | - | 8.00 | - |", alone)


class Files(unittest.TestCase):
    """What is read and written."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, contents, name="a.json"):
        """The path of a file with that text or document."""
        path = self.folder / name
        path.write_text(contents if isinstance(contents, str) else json.dumps(contents), encoding="utf-8")
        return path

    def test_both_forms(self):
        ours, theirs = self.write(document(row(2.0))), self.write(document(peer(8.0)), "b.json")
        status, out, err = script("bench_results.py", ours, theirs)
        self.assertEqual((status, err), (0, ""))
        self.assertIn("| 4.00 |", out)
        merged = self.folder / "merged.json"
        self.assertEqual(script("bench_results.py", ours, theirs, f"--output={merged}")[0], 0)
        # A merged file is one that can be merged, and still tells where it comes from.
        status, again, _ = script("bench_results.py", merged)
        self.assertEqual((status, again), (0, out))
        other = self.write(document(row(2.0), boot="87654321"), "c.json")
        self.assertIn("not of one sitting", script("bench_results.py", merged, other)[2])

    def test_files_that_cannot_be_used(self):
        good = row(2.0)
        bad = [("{", "no JSON"), ([], "rows"), ({"rows": [1]}, "row 0 is no object"),
               (document({**good, "time_us": None}), '"time_us" is null'), (document({**good, "bytes": "1K"}), '"bytes" is "1K"'),
               (document({**good, "launch": "host"}), "--launch=host; tables and plots are of --launch=graph"),
               (document({**good, "time_us": 0}), '"time_us" is 0'), (document({**good, "ranks": 0}), "at least 1"),
               (document({**good, "bytes": True}), '"bytes" is true'), ({"rows": [], "context": 3}, '"context"')]
        for contents, complaint in bad:
            for tool in ("bench_results.py", "plot_bench.py"):
                status, out, err = script(tool, self.write(contents))
                self.assertEqual((status, out), (1, ""), contents)
                self.assertIn(complaint, err)
                self.assertIn("a.json" if "context" not in complaint else "", err)
        self.assertIn("No such file", script("bench_results.py", self.folder / "none.json")[2])
        self.assertEqual(script("bench_results.py", self.write(document(good)), "--output=table.csv")[0], 2)

    def test_nothing_to_draw(self):
        status, _, err = script("plot_bench.py", self.write(document(row(2.0, wrong=1))))
        self.assertEqual(status, 1)
        self.assertIn("no case that was measured", err)
        status, _, err = script("plot_bench.py", self.write(document(row(2.0))), "--format=gif")
        self.assertEqual(status, 2)
        self.assertIn("--format=gif", err)


class Drawing(unittest.TestCase):
    """Lines, and the figures where they can be drawn."""

    RESULT = document(row(2.0), row(1.5, "better"), row(9.0, size=4096), peer(8.0), peer(12.0, size=4096),
                      row(3.0, collective="alltoall", op="none"))

    def test_lines(self):
        figures = plot_bench.series(bench_results.merge([self.RESULT]))
        self.assertEqual(set(figures), {("allreduce", "bfloat16", "sum", 4), ("alltoall", "bfloat16", "none", 4)})
        lines = figures[("allreduce", "bfloat16", "sum", 4)]
        self.assertEqual(list(lines), ["this library", "nccl"])
        self.assertEqual([point[:2] for point in lines["this library"]], [(1024, 1.5), (4096, 9.0)])
        self.assertEqual([point[:2] for point in lines["nccl"]], [(1024, 8.0), (4096, 12.0)])

    def test_names(self):
        self.assertEqual(plot_bench.file_stem("h200x4", ("alltoall", "bfloat16", "none", 4)), "h200x4-alltoall-bfloat16")
        self.assertEqual(plot_bench.title(("reduce", "int32", "max", 2)), "reduce, int32 max, 2 ranks")

    @unittest.skipUnless(importlib.util.find_spec("matplotlib"), "matplotlib is not installed")
    def test_figures(self):
        with tempfile.TemporaryDirectory() as folder:
            source = os.path.join(folder, "a.json")
            with open(source, "w", encoding="utf-8") as file:
                json.dump(self.RESULT, file)
            for name in ("first", "second"):
                status, out, err = script("plot_bench.py", source, f"--out={folder}/{name}", "--name=x",
                                          "--format=svg,png")
                self.assertEqual(status, 0, err)
                self.assertEqual(len(out.splitlines()), 4)
            svg = pathlib.Path(folder, "first", "x-allreduce-bfloat16-sum.svg").read_text(encoding="utf-8")
            for text in ("<svg", "this library", "nccl", "bus bandwidth"):
                self.assertIn(text, svg)
            self.assertEqual(svg, pathlib.Path(folder, "second", "x-allreduce-bfloat16-sum.svg").read_text(encoding="utf-8"))
            png = pathlib.Path(folder, "first", "x-alltoall-bfloat16.png").read_bytes()
            self.assertEqual(png[:8], b"\x89PNG\r\n\x1a\n")
            status, out, err = script("plot_bench.py", source, f"--out={folder}/third", "--collective=alltoall")
            self.assertEqual((status, err), (0, ""))
            self.assertEqual([pathlib.Path(line).name for line in out.splitlines()], ["bench-alltoall-bfloat16.svg"])

    @unittest.skipIf(importlib.util.find_spec("matplotlib"), "matplotlib is installed")
    def test_without_matplotlib(self):
        with tempfile.TemporaryDirectory() as folder:
            source = os.path.join(folder, "a.json")
            with open(source, "w", encoding="utf-8") as file:
                json.dump(self.RESULT, file)
            status, _, err = script("plot_bench.py", source)
            self.assertEqual(status, 1)
            self.assertIn("--install", err)


class Nccl(unittest.TestCase):
    """nccl_table.py on what nccl-tests print."""

    ROW = "%12d %13d     float     sum      -1 %8.2f %7.2f %7.2f %7s %8.2f    0.00    0.00      0\n"

    def tables(self, here, there):
        """Rows are (bytes, microseconds out of place, in place, wrong elements)."""
        with tempfile.TemporaryDirectory() as folder:
            files = []
            for name, rows in (("here", here), ("there", there)):
                files.append(os.path.join(folder, name))
                with open(files[-1], "w", encoding="utf-8") as file:
                    file.write("# nThread 1 nGpus 1\n#       size         count      type   redop    root\n")
                    file.writelines(self.ROW % (size, size // 4, out, 0, 0, wrong, within)
                                    for size, out, within, wrong in rows)
            return script("nccl_table.py", "all_reduce -G 20", *files)

    def test_side_by_side(self):
        status, out, err = self.tables([(8, 2, 2, 0), (2 << 20, 10, 20, "N/A")], [(8, 8, 2, 0), (2 << 20, 10, 20, 0)])
        self.assertEqual((status, err), (0, ""))
        self.assertIn("### all_reduce -G 20", out)
        self.assertIn("| 8 | 2.00 | 2.00 | 8.00 | 2.00 | 4.00 | 1.00 |", out)
        self.assertIn("| 2M | 10.00 | 20.00 | 10.00 | 20.00 | 1.00 | 1.00 |", out)
        self.assertIn("geometric mean: 2.00 up to 1M, 1.41 of all, least 1.00. Wrong here: 0.", out)

    def test_what_is_wrong(self):
        right = [(8, 2, 2, 0), (16, 2, 2, 0)]
        for here, there, says in (([(8, 2, 2, 3), right[1]], right, "Wrong here: 3."),
                                  (right[:1], right, "Not on both: 16."),
                                  ([], [], "Wrong here: 0.")):
            status, out, _ = self.tables(here, there)
            self.assertEqual(status, 1)
            self.assertIn(says, out)

    def test_arguments(self):
        status, _, err = script("nccl_table.py", "a", "b")
        self.assertEqual(status, 1)
        self.assertIn("usage", err)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "--verbose", *[argument for argument in sys.argv[1:] if argument[0] != "-"]])
