# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""bench/torch on the CPU, with small numbers: by gloo and on the simulated machine the results are the same."""

import copy
import importlib.util
import json
import math
import pathlib
import sys
import tempfile
import unittest

from support import finish, preload, script, start_ranks

HAS_TORCH = importlib.util.find_spec("torch") is not None
preload("torch", "torch._dynamo", "torch.utils.cpp_extension")
preload("torch.distributed.fsdp", "torch.distributed.tensor.parallel")
FOLDER = pathlib.Path(__file__).resolve().parents[2] / "bench" / "torch"
LIMIT = 300  # seconds; compilers are at work
SMALL = """--steps=1 --blocks=1 --width=32 --head=16 --words=64 --length=8 --batch=1
           --decode --batches=1,3 --samples=1 --layers=1 --hidden=64 --heads=8 --kv-heads=4 --ffn=128 --cache=8""".split()

sys.path.insert(0, str(FOLDER))
import transformer_table  # noqa: E402  pylint: disable=wrong-import-position


@unittest.skipUnless(HAS_TORCH, "there is no PyTorch")
class Transformer(unittest.TestCase):
    """What the ranks write."""

    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = pathlib.Path(made.name)

    def run_ranks(self, way, *options, status=0):
        """The file, its results, and what the first rank said."""
        file = self.folder / f"{way}.json"
        code = script(FOLDER / "transformer.py", f"--way={way}", f"--output={file}", *SMALL, *options)
        results = finish(start_ranks(code, 2), LIMIT)
        for ended, _, errors in results:
            self.assertEqual(ended, status, errors)
        return file, json.loads(file.read_text(encoding="utf-8")), results[0][1]

    def test_ways_agree(self):
        ways = ("ddp", "fsdp2", "tensor")
        runs = [self.run_ranks("gloo", "--backend=gloo", f"--train={','.join(ways)}"),
                self.run_ranks("backend", "--backend=mscclpp", f"--train={','.join(ways)}"),
                self.run_ranks("fused", "--backend=mscclpp", "--fused")]  # fmt: skip
        expected = runs[0][1]
        for _, found, said in runs:
            self.assertEqual(found["errors"], {})
            self.assertEqual((found["ranks"], found["device"]), (2, "CPU"))
            for way, row in found["training"].items():
                self.assertIn(f"{found['way']}: training {way}: ", said)
                self.assertEqual(len(row["losses"]), 4)
                # The ways of sharing out train the same, too.
                for loss, wanted in zip(row["losses"], expected["training"]["ddp"]["losses"]):
                    self.assertLess(abs(loss - wanted), 1e-4 * wanted)
                self.assertAlmostEqual(row["gradient_norm"], expected["training"]["ddp"]["gradient_norm"], 4)
            self.assertEqual(list(found["decode"]), ["1", "3"])
            for batch, row in found["decode"].items():
                wanted = expected["decode"][batch]["projections"]
                self.assertLess(math.dist(row["projections"], wanted), 1e-4 * math.hypot(*wanted))
                self.assertAlmostEqual(row["sum_of_magnitudes"], expected["decode"][batch]["sum_of_magnitudes"], 3)
                self.assertEqual((row["wrong"], row["same_on_all_ranks"]), (0, True))
        self.assertEqual([list(found["training"]) for _, found, _ in runs], [list(ways), list(ways), []])
        text = transformer_table.markdown(transformer_table.merged([file for file, _, _ in runs]))
        self.assertIn("| | gloo | backend | fused |", text)
        self.assertRegex(text, r"\| tensor \| [\d.]+ s, \d+/s, 0e\+00, – \| [\d.]+ s, \d+/s, \de[+-]\d\d, – \| – \|")
        self.assertRegex(text, r"\| 3 \| [\d.]+ µs, \d+/s, [\d.-]+ µs, 1.00× \| [^|]+× \| [^|]+× \|")
        self.assertNotIn("WRONG", text)

    def test_a_part_that_fails_is_told(self):
        file, found, said = self.run_ranks("gloo", "--backend=gloo", "--train=ddp", "--kv-heads=1", status=1)
        self.assertEqual(list(found["training"]), ["ddp"])
        self.assertEqual((found["decode"], list(found["errors"])), ({}, ["decode model"]))
        self.assertRegex(found["errors"]["decode model"], "rank 0: ValueError: .*; rank 1: ValueError: .* must divide")
        self.assertIn(found["errors"]["decode model"], said)
        self.assertIn("- gloo, decode model: rank 0", transformer_table.markdown(transformer_table.merged([file])))


class Table(unittest.TestCase):
    """What differs is said to be wrong."""

    right = {
        "way": "one", "ranks": 2, "device": "GPU", "torch": "2", "errors": {},
        "options": dict.fromkeys(("blocks", "width", "batch", "length", "layers", "hidden", "ffn", "cache"), 1),
        "training": {"ddp": {"losses": [4.0, 2.0], "gradient_norm": 1.0, "seconds": 0.5, "tokens_per_second": 8.0,
                             "communication_seconds": 0.25}},
        "decode": {"8": {"projections": [3.0, 4.0], "wrong": 0, "same_on_all_ranks": True, "microseconds": 10.0,
                         "tokens_per_second": 8e5, "microseconds_of_communication": 2.0}},
    }  # fmt: skip

    def cell(self, kind, part, **changed):
        """That of the second way."""
        second = copy.deepcopy(self.right)
        second[kind][part].update(changed)
        [line] = [x for x in transformer_table.markdown({"one": self.right, "two": second}).splitlines() if f"| {part} " in x]
        return line.split(" | ")[2].rstrip(" |")

    def test_training(self):
        self.assertEqual(self.cell("training", "ddp", seconds=0.125), "0.1250 s, 8/s, 0e+00, 0.2500 s")
        self.assertEqual(self.cell("training", "ddp", losses=[4.0, 2.01]), "0.5000 s, 8/s, 5e-03, 0.2500 s")
        for changed in ({"losses": [4.0, 2.05]}, {"losses": [4.0]}, {"gradient_norm": 1.5}):
            self.assertIn("WRONG: ", self.cell("training", "ddp", **changed))

    def test_decode(self):
        self.assertEqual(self.cell("decode", "8", microseconds=5.0), "5.0 µs, 800000/s, 2.0 µs, 2.00×")
        for changed, why in (({"projections": [3.0, 4.5]}, "WRONG: output 1e-01 off: "),
                             ({"wrong": 3}, "WRONG: 3 elements of a sum: "),
                             ({"same_on_all_ranks": False}, "WRONG: ranks differ: ")):  # fmt: skip
            self.assertIn(why, self.cell("decode", "8", **changed))


if __name__ == "__main__":
    unittest.main()
