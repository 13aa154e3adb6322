#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Plants faults in small trees and looks whether scripts/check_includes.py finds them.
#
#   includes_self_test.py --scripts=FOLDER --drivers=FOLDER
"""Tests of check_includes.py."""

import argparse
import os
import subprocess
import sys

TABLE = "mscclpp/low :\nmscclpp/high : mscclpp/low\nbase : mscclpp/high\nnet : base\nbench : net\n"
TREE = {
    "include/mscclpp/low/a.hpp": "#include <vector>\n",
    "include/mscclpp/high/b.hpp": '#include "mscclpp/low/a.hpp"\n',
    "src/base/c.hpp": '#include "mscclpp/low/a.hpp"\n#include "mscclpp/high/b.hpp"\n',
    "src/net/tcp/d.cpp": '#include "base/c.hpp"\n',
    "bench/run/e.hpp": "",
    "bench/run/f.cpp": '#include "e.hpp"\n#include "run/e.hpp"\n#include "net/tcp/d.cpp"\n',
}


def judge(script, folder, changes=None, table=TABLE):
    """Exit status and text of a run over the tree with changes."""
    for path, text in {**TREE, **(changes or {})}.items():
        file = os.path.join(folder, "tree", path)
        os.makedirs(os.path.dirname(file), exist_ok=True)
        with open(file, "w", encoding="utf-8") as out:
            out.write(text)
    with open(os.path.join(folder, "table.txt"), "w", encoding="utf-8") as out:
        out.write(table)
    done = subprocess.run([sys.executable, "-B", script, f"--root={folder}/tree", f"--table={folder}/table.txt"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scripts", required=True)
    parser.add_argument("--drivers", required=True)
    arguments = parser.parse_args()
    sys.path.insert(0, arguments.drivers)
    import toolchain  # pylint: disable=import-outside-toplevel,import-error
    script = os.path.join(arguments.scripts, "check_includes.py")

    def passes(folder, changes=None, table=TABLE):
        status, text = judge(script, folder, changes, table)
        assert status == 0, text

    def complains(folder, expected, changes=None, table=TABLE):
        status, text = judge(script, folder, changes, table)
        assert status == 1 and text.count("error:") == 1 and expected in text, text

    upwards = {"include/mscclpp/low/a.hpp": '#include "mscclpp/high/b.hpp"\n'}
    full = {f"test/many/{number}.txt": "" for number in range(31)}
    private = {"src/base/c.hpp": '#include "c2.hpp"\n', "src/base/c2.hpp": ""}

    def tree_as_the_table_says_passes(folder):
        passes(folder)

    def edge_upwards_is_reported(folder):
        complains(folder, "mscclpp/low includes from mscclpp/high, which stands above it: include/mscclpp/low/a.hpp:1",
                  upwards)

    def edge_to_a_neighbour_is_reported(folder):
        complains(folder, "other includes from net, which is not beneath it",
                  {"src/other/g.cpp": '#include "net/tcp/d.cpp"\n'}, TABLE + "other : base\n")

    def public_header_with_a_private_one_is_reported(folder):
        complains(folder, "is not named from include/",
                  {"include/mscclpp/high/b.hpp": '#include "base/c.hpp"\n'})

    def cycle_in_the_table_is_reported(folder):
        complains(folder, "a cycle: mscclpp/low -> net -> base -> mscclpp/high -> mscclpp/low",
                  table=TABLE.replace("low :", "low : net"))

    def folder_without_a_layer_is_reported(folder):
        complains(folder, "no layer of the table has this folder", {"src/new/g.cpp": ""})

    def unknown_layer_in_the_table_is_reported(folder):
        complains(folder, "names nowhere, which has no line", table=TABLE + "other : nowhere\n")

    def full_folder_is_reported(folder):
        complains(folder, "test/many holds 31 files", full)

    def thirty_files_pass(folder):
        passes(folder, dict(list(full.items())[:30]))

    def name_alone_is_reported_in_src(folder):
        complains(folder, '"c2.hpp" is not named from src/', private)

    def angle_brackets_are_reported(folder):
        complains(folder, "is this repository's own", {"src/base/c.hpp": "#include <mscclpp/low/a.hpp>\n"})

    def way_up_is_reported(folder):
        complains(folder, "goes up by '..'", {"src/base/c.hpp": '#include "../net/tcp/d.cpp"\n'})

    def missing_header_is_reported(folder):
        complains(folder, "names no public header", {"src/base/c.hpp": '#include "mscclpp/low/none.hpp"\n'})

    def exceptions_pass(folder):
        passes(folder, {**upwards, **private, **full}, TABLE + "except mscclpp/low -> mscclpp/high\n"
               'except src/base/c.hpp includes "c2.hpp"\nexcept test/many holds 31 files\n')

    def edge_exception_that_is_not_needed_is_reported(folder):
        complains(folder, "'mscclpp/low -> mscclpp/high' is no longer needed",
                  table=TABLE + "except mscclpp/low -> mscclpp/high\n")

    def name_exception_that_is_not_needed_is_reported(folder):
        complains(folder, "no longer needed", table=TABLE + 'except src/base/c.hpp includes "c2.hpp"\n')

    def folder_exception_that_is_not_needed_is_reported(folder):
        complains(folder, "holds 6 files, its exception says 35", {f"test/six/{number}": "" for number in range(6)},
                  TABLE + "except test/six holds 35 files\n")

    def exception_that_is_not_understood_is_reported(folder):
        complains(folder, "no exception that is understood", table=TABLE + "except all\n")

    def include_under_a_condition_is_reported(folder):
        complains(folder, "include/mscclpp/low/a.hpp:3: an include under a condition",
                  {"include/mscclpp/low/a.hpp": "#pragma once\n#if B\n#include <vector>\n#endif\n"})

    def condition_in_a_layer_by_machine_passes(folder):
        passes(folder, {"include/mscclpp/low/a.hpp": "#if B\n#include <vector>\n#endif\n"},
               TABLE + "by machine mscclpp/low\n")

    def tree_without_sources_is_reported(folder):
        os.makedirs(os.path.join(folder, "empty"))
        done = subprocess.run([sys.executable, "-B", script, f"--root={folder}/empty"], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        assert done.returncode == 1 and "there is no source" in done.stdout, done.stdout

    return toolchain.self_test([
        tree_as_the_table_says_passes, edge_upwards_is_reported, edge_to_a_neighbour_is_reported,
        public_header_with_a_private_one_is_reported, cycle_in_the_table_is_reported,
        folder_without_a_layer_is_reported, unknown_layer_in_the_table_is_reported, full_folder_is_reported,
        thirty_files_pass, name_alone_is_reported_in_src, angle_brackets_are_reported, way_up_is_reported,
        missing_header_is_reported, exceptions_pass, edge_exception_that_is_not_needed_is_reported,
        name_exception_that_is_not_needed_is_reported, folder_exception_that_is_not_needed_is_reported,
        exception_that_is_not_understood_is_reported, include_under_a_condition_is_reported,
        condition_in_a_layer_by_machine_passes, tree_without_sources_is_reported,
    ])


if __name__ == "__main__":
    sys.exit(main())
