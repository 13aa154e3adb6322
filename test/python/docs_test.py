# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs what the pages show: each block of Python that stands behind <!-- run -->, in a process of its own; those behind
<!-- run: torch --> where there is a module of that name."""

import importlib.util
import pathlib
import re
import unittest

from support import finish, preload, start

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"<!-- run(?:: (\w+))? -->\n```python\n(.*?)```", re.DOTALL)
preload("torch", "torch._inductor.compile_fx", "torch.utils.cpp_extension")
LIMIT = 400  # seconds; compilers are at work, and other tests


class Pages(unittest.TestCase):
    def test_each_block_runs(self):
        count = 0
        for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
            text = page.read_text(encoding="utf-8")
            for block in BLOCK.finditer(text):
                count += 1
                if block[1] and importlib.util.find_spec(block[1]) is None:
                    continue
                line = text[: block.start(2)].count("\n") + 1
                [(status, _, errors)] = finish([start(block[2], fork=block[1] == "torch")], LIMIT)
                self.assertEqual(status, 0, f"{page.name}, line {line}:\n{errors}")
        self.assertGreaterEqual(count, 4)


if __name__ == "__main__":
    unittest.main()
