#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Tests scripts/mutate.py on a small header tree of its own.
#
#   self_test.py --compiler=COMPILER
"""Self-test of the mutation script."""

import argparse
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "drivers"), str(HERE.parent.parent / "scripts")]

import mutants  # noqa: E402  pylint: disable=wrong-import-position
import mutate  # noqa: E402  pylint: disable=wrong-import-position
import toolchain  # noqa: E402  pylint: disable=wrong-import-position

HEADER = """// Order::acquire here is prose, and group.sync(); too.
#pragma once
#define LIMIT(a, b) ((a) < (b))
template <class T>
concept Small = requires(T t) { t.sync(); };
static_assert(sizeof(int) < 5, "Order::release");
inline int last(int count) {
  if (count == 0) return -1;
  return count - 1;
}
inline int rounded(int bytes) { return (bytes + 3) / 4; }
"""

MAIN = """#include "mscclpp/device/small.hpp"
int main() { return last(0) == -1 && last(3) == 2 && last(7) == 6 ? 0 : 1; }
"""


def changes(text, kind=None):
    return [(m.kind, mutants.flatten(m.original), mutants.flatten(m.replacement))
            for m in mutants.find("device/x.hpp", text) if kind in (None, m.kind)]


def applied(text, kind):
    return [mutants.flatten(m.apply(text)) for m in mutants.find("device/x.hpp", text) if m.kind == kind]


class Tree:
    """A header tree with one program, and the folder for results."""

    def __init__(self, folder, compiler, main=MAIN, header=HEADER):
        self.root = pathlib.Path(folder)
        self.include = self.root / "include" / "mscclpp"
        (self.include / "device" / "arch").mkdir(parents=True)
        (self.include / "algorithms").mkdir()
        (self.include / "device" / "small.hpp").write_text(header, encoding="utf-8")
        (self.include / "device" / "arch" / "raw.hpp").write_text("inline int x() { return 1 - 1; }\n", encoding="utf-8")
        (self.root / "main.cpp").write_text(main, encoding="utf-8")
        self.compiler = compiler

    def run(self, jobs=2):
        compile_command = [self.compiler, "-std=c++20", "-I{overlay}", f"-I{self.include.parent}", "-c",
                           str(self.root / "main.cpp"), "-o", "{output}.o"]
        program = mutate.Program("main", str(self.root), compile_command,
                                 [self.compiler, "{output}.o", "-o", "{output}"])
        return mutate.run_all(mutate.collect(self.include), [program], self.root / "work", self.include, jobs, quiet=True)


def statuses(outcomes):
    return {(m.line, m.kind, mutants.flatten(m.replacement)): outcome["status"] for m, outcome in outcomes}


def self_test(compiler):
    """Each case fails when the script misjudges."""

    def only_code_is_changed(_):
        found = changes(HEADER)
        assert ("bounds", "- 1", "") in found, found
        assert ("condition", "count == 0", "true") in found and ("condition", "count == 0", "false") in found, found
        assert ("bounds", "(bytes + 3) / 4", "bytes / 4") in found, found
        assert len(found) == 4, found

    def orders_and_scopes_weaken(_):
        text = "void f() {\n  fetchAdd<Order::acquireRelease, Scope::system>(p, 1u);\n}\n"
        assert [c[2] for c in changes(text, "order")] == ["acquire", "relaxed", "release"], changes(text)
        assert [c[2] for c in changes(text, "scope")] == ["device"], changes(text)

    def statements_are_removed_whole(_):
        text = ("void f() {\n  fence<Order::sequential, Scope::system>();\n  blocks_.block().sync();\n"
                "  syncWhole(group);\n  require(a <= b(c, d),\n          x);\n  poll(watch, {a, b}, [&](auto& seen) {\n    return g(seen);\n  });\n}\n")
        assert [c[1] for c in changes(text, "fence")] == ["fence<Order::sequential, Scope::system>();"]
        assert [c[1] for c in changes(text, "barrier")] == ["blocks_.block().sync();", "syncWhole(group);"]
        assert [c[1] for c in changes(text, "require")] == ["require(a <= b(c, d), x);"]
        assert [c[1] for c in changes(text, "wait")] == ["poll(watch, {a, b}, [&](auto& seen) { return g(seen); });"]

    def neighbours_swap(_):
        text = "void f() {\n  data = 1;\n  group.sync();\n  return;\n}\n"
        assert applied(text, "reorder") == ["void f() { group.sync(); data = 1; return; }"], applied(text, "reorder")

    def parts_of_conditions_become_constant(_):
        text = "bool f() { return !wanted || (a[1] == b && a[3] == c); }\n"
        assert applied(text, "condition") == [
            "bool f() { return false || (a[1] == b && a[3] == c); }",
            "bool f() { return !wanted || false; }",
            "bool f() { return !wanted || (true && a[3] == c); }",
            "bool f() { return !wanted || (a[1] == b && true); }"], applied(text, "condition")

    def epochs_and_flags_lose_their_meaning(_):
        text = "void f() {\n  ++epoch_;\n  flag_ = packetFlag(epoch_);\n  auto const half = epoch_ % 2;\n}\n"
        assert [c[1:] for c in changes(text, "epoch")] == [("++epoch_;", ";"), ("epoch_ % 2", "0")], changes(text)
        assert [c[1:] for c in changes(text, "flag")] == [("epoch_", "1")], changes(text)

    def keys_survive_new_lines_and_differ(_):
        found = mutants.find("device/small.hpp", HEADER)
        later = mutants.find("device/small.hpp", "// More.\n\n" + HEADER)
        assert [m.key for m in found] == [m.key for m in later] and [m.line for m in found] != [m.line for m in later]
        twice = mutants.find("x", "int a(int n) {\n  return n - 1;\n}\nint b(int n) {\n  return n - 1;\n}\n")
        assert len({m.key for m in twice}) == len(twice) == 2

    def mutants_are_judged(folder):
        found = statuses(Tree(folder, compiler).run())
        assert found == {(8, "condition", "true"): "test", (8, "condition", "false"): "survived",
                         (9, "bounds", ""): "test", (11, "bounds", "bytes / 4"): "survived"}, found

    def static_asserts_kill_and_type_errors_do_not(folder):
        header = ("constexpr int last(int n) { return n - 1; }\nstatic_assert(last(3) == 2);\n"
                  "inline void copy(int* to, int n) { *to = n; }\ninline void f(int* a, int b) { copy(a, b); }\n")
        found = statuses(Tree(folder, compiler, header=header).run())
        assert found[(1, "bounds", "")] == "static_assert" and found[(4, "arguments", "b, a")] == "invalid", found

    def a_mutant_that_hangs_is_killed(folder):
        header = "inline bool done(int n) { return n > 9; }\n"
        main = '#include "mscclpp/device/small.hpp"\nint main() { for (volatile int n = 0; !done(n); n = n < 10 ? n + 1 : 0) {} }\n'
        found = statuses(Tree(folder, compiler, main, header.replace("return n > 9", "if (n == 10) return true; return false")).run())
        assert found[(1, "condition", "false")] == "timeout", found

    def findings_of_the_checker_are_told_apart(_):
        assert mutate.classify(1, "a\nchecker: race\nb") == "checker" and mutate.classify(1, "wrong") == "test"
        assert mutate.classify(None, "") == "timeout" and mutate.classify(0, "checker") is None

    def results_are_kept_while_they_hold(folder):
        tree = Tree(folder, compiler)
        first = tree.run()
        again = tree.run()
        assert [o for _, o in first] == [o for _, o in again], "an unchanged run must not judge anew"
        (tree.root / "main.cpp").write_text(MAIN.replace("last(7) == 6", "rounded(3) == 1"), encoding="utf-8")
        assert statuses(tree.run())[(11, "bounds", "bytes / 4")] == "test", "survivors see a new test"
        (stored,) = tree.root.rglob("results.json")
        stored.write_text(stored.read_text(encoding="utf-8").replace('"program": "main"', '"program": "gone"'), encoding="utf-8")
        assert all(o["status"] == "survived" or o["program"] == "main" for _, o in tree.run()), "kills by a program that is gone do not hold"

    def unlisted_and_stale_survivors_fail(folder):
        outcomes = Tree(folder, compiler).run()
        alive = [m.key for m, o in outcomes if o["status"] == "survived"]
        dead = next(m.key for m, o in outcomes if o["status"] == "test")
        assert len(mutate.complaints_of(outcomes, {}, False)) == 2
        assert mutate.complaints_of(outcomes, dict.fromkeys(alive, "unseen: why"), False) == []
        assert "take it off" in mutate.complaints_of(outcomes, dict.fromkeys([*alive, dead], "unseen: why"), False)[0]
        mutants_ = [mutant for mutant, _ in outcomes]
        assert mutate.stale(dict.fromkeys(alive, "unseen: why"), mutants_) == []
        assert "gone" in mutate.stale(dict.fromkeys([*alive, "gone"], "unseen: why"), mutants_)[0]
        assert "50.0 %" in mutate.complaints_of(outcomes, dict.fromkeys(alive, "unseen: why"), True)[-1]
        assert mutate.complaints_of(outcomes, dict.fromkeys(alive, "equivalent: why"), True) == []

    def the_list_of_survivors_wants_reasons(folder):
        path = pathlib.Path(folder, "survivors.txt")
        path.write_text("# prose\n\na [-b-]{+c+}  # unseen: same\n", encoding="utf-8")
        assert mutate.read_survivors(path) == {"a [-b-]{+c+}": "unseen: same"}
        path.write_text("a [-b-]{+c+}  # because\n", encoding="utf-8")
        try:
            mutate.read_survivors(path)
        except SystemExit as error:
            assert "survivors.txt:1" in str(error)
        else:
            raise AssertionError("a line without a reason must be refused")

    def programs_that_fail_unchanged_are_refused(folder):
        tree = Tree(folder, compiler, "#include \"mscclpp/device/small.hpp\"\nint main() { return last(1) + 1; }\n")
        try:
            tree.run()
        except SystemExit as error:
            assert "fails on the unchanged headers" in str(error)
        else:
            raise AssertionError("such a program kills everything and shows nothing")

    def the_page_counts_survivors(folder):
        outcomes = Tree(folder, compiler).run()
        listed = {m.key: "unseen: cannot matter" for m, o in outcomes if o["status"] == "survived"}
        page = mutate.markdown(outcomes, listed)
        assert "**2 of 4 mutants killed: 50.0 %.**" in page and "| device/small.hpp | 4 | 0 | 2 | 0 | 0 | 2 |" in page, page

    return toolchain.self_test([
        only_code_is_changed, orders_and_scopes_weaken, statements_are_removed_whole, neighbours_swap,
        parts_of_conditions_become_constant, epochs_and_flags_lose_their_meaning, keys_survive_new_lines_and_differ,
        mutants_are_judged, static_asserts_kill_and_type_errors_do_not, a_mutant_that_hangs_is_killed,
        findings_of_the_checker_are_told_apart, results_are_kept_while_they_hold, unlisted_and_stale_survivors_fail,
        the_list_of_survivors_wants_reasons, programs_that_fail_unchanged_are_refused,
        the_page_counts_survivors,
    ])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compiler", required=True)
    sys.exit(self_test(parser.parse_args().compiler))
