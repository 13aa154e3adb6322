#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Passes when a source is refused by the compiler with the expected text.
#
#   compile_fail.py SOURCE --compiler=COMPILER -- FLAGS...
#   compile_fail.py --self-test --compiler=COMPILER
#
# The source names what must be printed: each line `// expect: <regular expression>` must match somewhere in the
# compiler's output, blanks and line ends counting as one blank. If the source mentions MSCCLPP_EXPECT_FAILURE, it is also
# compiled without that macro, and must then be accepted: the failure is of the guarded lines and of nothing else.
"""Driver of the compile-fail tests."""

import argparse
import os
import re
import sys
import tempfile

import toolchain

MACRO = "MSCCLPP_EXPECT_FAILURE"


def check(source, compiler, flags):
    """Returns a list of complaints; empty when the source fails as it says."""
    with open(source, encoding="utf-8") as file:
        text = file.read()
    expected = re.findall(r"^\s*//\s*expect:\s*(.*\S)\s*$", text, re.MULTILINE)
    if not expected:
        return [f"{source} has no line '// expect: <regular expression>'"]
    with tempfile.TemporaryDirectory(prefix="mscclpp-compile-fail-") as folder:
        # What nvcc refuses its device's half refuses, too, which is half of the time.
        nvcc = toolchain.is_nvcc(compiler)
        command = [compiler, *toolchain.usable_flags(flags), "-ptx" if nvcc else "-c", "-o", os.path.join(folder, "out.o")]
        command += ["-x", "cu" if nvcc else "c++", source]
        status, output = toolchain.compile_source([*command, f"-D{MACRO}"])
        complaints = []
        if status == 0:
            complaints.append(f"{source} compiles, but must be refused")
        for pattern in expected:
            if not re.search(pattern, toolchain.flatten(output)):
                complaints.append(f"the compiler does not say: {pattern}")
        if complaints:
            complaints.append(f"command: {' '.join(command)} -D{MACRO}\n{output}")
        elif MACRO in text:
            status, output = toolchain.compile_source(command)
            if status != 0:
                complaints.append(f"{source} is refused also without {MACRO}:\n{output}")
        return complaints


def self_test(compiler):
    """A driver that lets everything pass would be worse than none."""

    def judge(folder, text):
        source = os.path.join(folder, "case.cpp")
        with open(source, "w", encoding="utf-8") as file:
            file.write(text)
        return check(source, compiler, ["-std=c++20"])

    def expected_failure_passes(folder):
        assert judge(folder, '// expect: named reason\nstatic_assert(sizeof(int) == 0, "named reason");\n') == []

    def source_that_compiles_is_reported(folder):
        complaints = judge(folder, "// expect: anything\nint value;\n")
        assert any("must be refused" in c for c in complaints), complaints

    def warning_with_the_text_is_reported(folder):
        complaints = judge(folder, "// expect: named reason\n#warning named reason\nint value;\n")
        assert any("must be refused" in c for c in complaints), complaints

    def other_reason_is_reported(folder):
        complaints = judge(folder, '// expect: named reason\nstatic_assert(sizeof(int) == 0, "another");\n')
        assert any("does not say: named reason" in c for c in complaints), complaints

    def one_missing_of_two_is_reported(folder):
        complaints = judge(folder, '// expect: first\n// expect: second\nstatic_assert(sizeof(int) == 0, "first");\n')
        assert any("does not say: second" in c for c in complaints), complaints

    def source_without_expectation_is_reported(folder):
        assert judge(folder, "int value = ;\n") != []

    def failure_outside_of_the_guard_is_reported(folder):
        text = f'// expect: always\n#ifdef {MACRO}\n#endif\nstatic_assert(sizeof(int) == 0, "always");\n'
        assert any("also without" in c for c in judge(folder, text))

    def failure_inside_of_the_guard_passes(folder):
        text = f'// expect: guarded\n#ifdef {MACRO}\nstatic_assert(sizeof(int) == 0, "guarded");\n#endif\n'
        assert judge(folder, text) == []

    return toolchain.self_test([
        expected_failure_passes, source_that_compiles_is_reported, warning_with_the_text_is_reported,
        other_reason_is_reported, one_missing_of_two_is_reported, source_without_expectation_is_reported,
        failure_outside_of_the_guard_is_reported, failure_inside_of_the_guard_passes,
    ])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", nargs="?")
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--self-test", action="store_true")
    own, flags = toolchain.split_arguments(sys.argv[1:])
    arguments = parser.parse_args(own)
    if arguments.self_test:
        return self_test(arguments.compiler)
    if not arguments.source:
        parser.error("name a source, or --self-test")
    complaints = check(arguments.source, arguments.compiler, flags)
    for complaint in complaints:
        print(f"error: {complaint}")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
