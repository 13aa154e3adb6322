#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Pins the instructions that kernels become: compiles a .cu to PTX for each GPU generation and checks its text.
#
#   ptx.py SOURCE --nvcc=NVCC [--architectures=80,90,100] -- FLAGS...
#   ptx.py --self-test --nvcc=NVCC
#
# The source says what it expects, per kernel (the function's name in the source; it must fit exactly one entry):
#   // ptx: <kernel> : <regular expression>        found in the kernel's body, after the match of its line before
#   // ptx-not: <kernel> : <regular expression>    found nowhere in the kernel's body
#   // ptx-architectures: 90,100                   only these of the architectures asked for
# Blanks in the PTX count as one blank; a match may not span two instructions unless the expression says `;`.
"""Driver of the PTX tests."""

import argparse
import os
import re
import sys
import tempfile

import toolchain

DIRECTIVE = re.compile(r"^\s*//\s*(ptx(?:-not)?):\s*([A-Za-z_]\w*)\s*:\s*(.*\S)\s*$", re.MULTILINE)
MISTYPED = re.compile(r"^\s*//\s*ptx\b.*$", re.MULTILINE)
ARCHITECTURES = re.compile(r"^\s*//\s*ptx-architectures:\s*([\daf,\s]+)$", re.MULTILINE)
ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*\(.*?^\{\n(.*?)^\}", re.MULTILINE | re.DOTALL)


def entries(ptx):
    """Mangled name to body, comments and line information removed and blanks folded."""
    ptx = re.sub(r"//[^\n]*|^\s*\.(?:loc|file)\b[^\n]*", "", ptx, flags=re.MULTILINE)
    return {name: toolchain.flatten(body) for name, body in ENTRY.findall(ptx)}


def source_name(symbol):
    """The unqualified name that a mangled function was written with."""
    name, rest = symbol, re.sub(r"^_ZN?K?", "", symbol)
    if rest == symbol:
        return symbol
    while component := re.match(r"L?(\d+)", rest):
        end = component.end() + int(component.group(1))
        name, rest = rest[component.end():end], rest[end:]
    return name


def check_text(ptx, directives, where):
    """Returns a list of complaints about one compilation."""
    complaints = []
    bodies = entries(ptx)
    position = {}
    for kind, kernel, pattern in directives:
        found = [name for name in bodies if source_name(name) == kernel]
        if len(found) != 1:
            complaints.append(f"{where}: {len(found)} kernels are named {kernel}, need 1; there are: {', '.join(bodies)}")
            continue
        body = bodies[found[0]]
        if kind == "ptx-not":
            match = re.search(pattern, body)
            if match:
                begin, end = body.rfind(";", 0, match.start()) + 1, body.find(";", match.end())
                complaints.append(f"{where}: {kernel} must not contain '{pattern}', but has: {body[begin:end].strip()}")
            continue
        start = position.get(kernel, 0)
        match = re.compile(pattern).search(body, start)
        if match:
            position[kernel] = match.end()
        else:
            earlier = " (it does earlier, so the order is wrong)" if re.search(pattern, body[:start]) else ""
            complaints.append(f"{where}: {kernel} does not contain '{pattern}'{earlier}. The rest of its body:\n"
                              + body[start:].replace("; ", ";\n"))
    return complaints


def check(source, nvcc, architectures, flags):
    """Returns a list of complaints; empty when the kernels are as the source says."""
    with open(source, encoding="utf-8") as file:
        text = file.read()
    directives = DIRECTIVE.findall(text)
    lines = [line for line in MISTYPED.findall(text) if not DIRECTIVE.match(line) and not ARCHITECTURES.match(line)]
    complaints = [f"{source}: not a directive: {line.strip()}" for line in lines]
    if not any(kind == "ptx" for kind, _, _ in directives):
        complaints.append(f"{source} has no line '// ptx: <kernel> : <regular expression>'")
    limited = ARCHITECTURES.search(text)
    if limited:
        wanted = re.findall(r"\d+[af]?", limited.group(1))
        # What one generation alone has (100a) is looked at whatever the build is for.
        architectures = [architecture for architecture in wanted
                         if architecture in architectures or not architecture.isdigit()]
        if not architectures:
            complaints.append(f"{source} is for {', '.join(wanted)} only, and none of these is asked for")
    if complaints:
        return complaints
    with tempfile.TemporaryDirectory(prefix="mscclpp-ptx-") as folder:
        for architecture in architectures:
            out = os.path.join(folder, f"{architecture}.ptx")
            command = [nvcc, *toolchain.usable_flags(flags), f"-arch=compute_{architecture}", "-ptx", "-o", out, source]
            status, output = toolchain.compile_source(command)
            if status != 0:
                complaints.append(f"sm_{architecture}: does not compile: {' '.join(command)}\n{output}")
                continue
            with open(out, encoding="utf-8") as file:
                complaints += check_text(file.read(), directives, f"sm_{architecture}")
    return complaints


def self_test(nvcc):
    """A driver that lets everything pass would be worse than none."""
    kernels = """
extern "C" __global__ void publish(unsigned* p) { asm volatile("st.relaxed.sys.u32 [%0], 1;" ::"l"(p) : "memory");
                                                  asm volatile("fence.acq_rel.sys;" ::: "memory"); }
namespace a { template <class T> __global__ void twice(T* p) { *p = *p * 2; } template __global__ void twice(int*); }
"""

    def judge(folder, directives, architectures=("90",)):
        source = os.path.join(folder, "case.cu")
        with open(source, "w", encoding="utf-8") as file:
            file.write(directives + kernels)
        return check(source, nvcc, list(architectures), ["-std=c++20"])

    def present_in_order_passes(folder):
        text = "// ptx: publish : st\\.relaxed\\.sys\n// ptx: publish : fence\\.acq_rel\\.sys\n"
        assert judge(folder, text, ("80", "90", "100")) == []

    def absent_is_reported_for_each_architecture(folder):
        complaints = judge(folder, "// ptx: publish : st\\.release\\.sys\n", ("80", "100"))
        assert len(complaints) == 2 and "sm_80" in complaints[0] and "sm_100" in complaints[1], complaints

    def wrong_order_is_reported(folder):
        text = "// ptx: publish : fence\\.acq_rel\\.sys\n// ptx: publish : st\\.relaxed\\.sys\n"
        assert any("the order is wrong" in c for c in judge(folder, text))

    def forbidden_is_reported(folder):
        text = "// ptx: publish : st\n// ptx-not: publish : fence\n"
        assert any("must not contain" in c for c in judge(folder, text))

    def forbidden_and_absent_passes(folder):
        assert judge(folder, "// ptx: publish : st\n// ptx-not: publish : membar\n") == []

    def template_in_a_namespace_is_found(folder):
        assert judge(folder, "// ptx: twice : ld\\.global\n// ptx: twice : st\\.global\n") == []

    def unknown_kernel_is_reported(folder):
        assert any("0 kernels are named wice" in c for c in judge(folder, "// ptx: wice : ld\n"))

    def other_kernels_do_not_count(folder):
        assert judge(folder, "// ptx: twice : fence\n") != []

    def source_without_directive_is_reported(folder):
        assert judge(folder, "// nothing\n") != []

    def mistyped_directive_is_reported(folder):
        assert any("not a directive" in c for c in judge(folder, "// ptx: publish : st\n// ptx-no: publish : st\n"))

    def architectures_can_be_limited(folder):
        text = "// ptx-architectures: 90\n// ptx: publish : never\n"
        assert len(judge(folder, text, ("80", "90"))) == 1
        assert any("none of these" in c for c in judge(folder, text, ("80",)))

    def architectures_of_one_generation_need_not_be_asked_for(folder):
        text = "// ptx-architectures: 90a\n// ptx: publish : never\n"
        assert len(judge(folder, text, ("80",))) == 1
        assert any("sm_90a" in c for c in judge(folder, text, ("80",)))

    def refused_source_is_reported(folder):
        assert any("does not compile" in c for c in judge(folder, "// ptx: publish : st\nint x = ;\n"))

    return toolchain.self_test([
        present_in_order_passes, absent_is_reported_for_each_architecture, wrong_order_is_reported,
        forbidden_is_reported, forbidden_and_absent_passes, template_in_a_namespace_is_found,
        unknown_kernel_is_reported, other_kernels_do_not_count, source_without_directive_is_reported,
        mistyped_directive_is_reported, architectures_can_be_limited,
        architectures_of_one_generation_need_not_be_asked_for, refused_source_is_reported,
    ])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", nargs="?")
    parser.add_argument("--nvcc", required=True)
    parser.add_argument("--architectures", default="80,90,100")
    parser.add_argument("--self-test", action="store_true")
    own, flags = toolchain.split_arguments(sys.argv[1:])
    arguments = parser.parse_args(own)
    if arguments.self_test:
        return self_test(arguments.nvcc)
    if not arguments.source:
        parser.error("name a source, or --self-test")
    complaints = check(arguments.source, arguments.nvcc, arguments.architectures.split(","), flags)
    for complaint in complaints:
        print(f"error: {complaint}")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
