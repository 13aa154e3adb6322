#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Builds the site as scripts/site.sh does and looks at its pages: all are there, none needs another server, none names a
# folder of this machine, and the search knows functions; where there is one, also in a browser (site_browser.py). Then
# has a link lead nowhere, which has to be an error.
#
#   site.py build --root=FOLDER [--python=PYTHON]...
#   site.py self-test --root=FOLDER
#
# The first --python with MkDocs builds. self-test: what makes the pages reads C++ rightly, and complains rightly.
# Exit status 0: as it should be; 1: not; 77: MkDocs is not here.
"""Tests of the site and of the API reference."""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

ELSEWHERE = re.compile(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"?(?:https?:)?//[^\s>]*|"
                       r"<link\b[^>]*\bhref=\"?(?:https?:)?//[^\s>]*|url\((?:https?:)?//[^)]*")


def files_under(folder, ends):
    return sorted(os.path.relpath(os.path.join(at, file), folder) for at, _, files in os.walk(folder) for file in files
                  if file.endswith(ends))


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


def run(python, work, *command):
    done = subprocess.run([python, "-B", *command], env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, cwd=work, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.returncode, done.stdout


def faults(root, work, site):
    """What is wrong with a site that was built."""
    pages, built = files_under(os.path.join(work, "pages"), ".md"), set(files_under(site, ".html"))
    for page in pages:
        shown = re.sub(r"README\.md$", "index.md", page).removesuffix(".md") + ".html"
        if shown not in built:
            yield f"{page} is not in the site"
    for file in files_under(site, (".html", ".css")):
        text = read(site, file)
        for match in ELSEWHERE.findall(text):
            yield f"{file} needs another server: {match}"
        if os.path.realpath(root) + "/" in text:
            yield f"{file} names a folder of this machine"
    found = {entry["location"] for entry in json.loads(read(site, "search", "search_index.json"))["docs"]}
    for location in ("docs/host.html", "reference/host/communicator.html#communicator", "examples/hello.html"):
        if location not in found:
            yield f"the search does not know {location}"


def build(root, pythons):
    have = [os.path.abspath(python) for python in pythons if os.path.exists(python)]
    have = [python for python in have if run(python, ".", "-c", "import material, mkdocs")[0] == 0]
    if not have:
        print("skipped: no MkDocs with its theme here; scripts/site.sh gets both")
        return 77
    # Of this run alone: several may go on in one build folder.
    with tempfile.TemporaryDirectory(prefix="mscclpp-site-") as work:
        return build_in(work, root, have[0])


def build_in(work, root, python):
    site = os.path.join(work, "site")
    make = ("-m", "mkdocs", "build", "--config-file", os.path.join(work, "mkdocs.yml"), "--site-dir", site)
    assemble = os.path.join(root, "scripts", "site", "assemble.py")
    status, text = run(python, work, assemble, f"--root={root}", f"--out={work}")
    if status == 0:
        status, more = run(python, work, *make)
        text += more
    print(text)
    if status != 0:
        print("error: the site cannot be built")
        return 1
    found = list(faults(root, work, site))
    for fault in found:
        print(f"error: {fault}")
    shown, text = run(python, work, os.path.join(os.path.dirname(os.path.abspath(__file__)), "site_browser.py"), site)
    print(f"In a browser: {text}" if text else "In a browser the pages are as they should be.")

    # The reports of two links on one page are enough; it is faster without most of the others, which are missed, too.
    for folder in ("reference", "examples", "bench"):
        shutil.rmtree(os.path.join(work, "pages", folder))
    page = os.path.join(work, "pages", "docs", "host.md")
    for link in ("[planted](device.md#planted)", "[planted](planted.md)"):
        with open(page, "a", encoding="utf-8") as file:
            file.write(f"\n{link}\n")
    status, text = run(python, work, *make)
    if status == 0 or "link 'device.md#planted'" not in text or "link 'planted.md'" not in text:
        print(f"error: links that lead nowhere are not found: {text}")
        return 1
    return 1 if found or shown not in (0, 77) else 0


# ---- self-test -------------------------------------------------------------------------------------------------------

HEADER = """// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What it is: see poll.hpp, and told().
//
//   a table   as it stands
//
// - an item
//   that goes on
// Behind it Pair<T, int> is `one
// code`, and a < b.
#pragma once

#include "mscclpp/poll.hpp"

namespace mscclpp {
namespace impl {
struct Hidden { int a; };
}  // namespace impl

// Carries out.
template <class T, class U = Pair<T, int>>
  requires(sizeof(T) == 4) && Small<U>
class Worker : public Base<T> {
 public:
  explicit Worker(int size) : Base<T>{size}, size_(size) {}
  // Starts; braces in it end nothing: {.
  template <class F>
  T start(F const& f, std::vector<int> many = {}) const {
    return f("}", '{', size_);
  }
  T stop() const { return {}; }

  bool operator<(Worker const& other) const { return size_ < other.size_; }
  std::function<void(int)> done{};  // called
                                    // at the end
  Pair<T, int> (*weigh)(T const& of, void (*tell)(int)) = nullptr;
  int (Worker::*const next)() const;
  T (&both)[2];

 private:
  int secret() const;
  int size_ = 0;
};

enum class Kind : std::uint8_t { first, second = 4 };

struct Later;
template <>
struct Traits<int> {};

// Both.
int told(int a,
         int b);
int other();

extern "C" {
// Plain C.
struct Plain {
  int size;
};
}

#if ONE
inline constexpr int limit = 3;
#else
inline constexpr int limit = 4;
#endif
}  // namespace mscclpp
"""


def self_test(root):
    sys.path.insert(0, os.path.join(root, "scripts", "site"))
    import api_reference  # pylint: disable=import-outside-toplevel,import-error
    import assemble  # pylint: disable=import-outside-toplevel,import-error
    from cpp_header import Header  # pylint: disable=import-outside-toplevel,import-error

    header = Header(HEADER)
    assert header.contract[0].startswith("What it is") and header.contract[-1] == "code`, and a < b.", header.contract
    said = [(each.kind, each.name) for each in header.declarations]
    assert said == [("type", "Worker"), ("enum", "Kind"), ("function", "told"), ("function", "other"),
                    ("type", "Plain"), ("constant", "limit")], said
    worker, kind, told, other, plain, limit = header.declarations
    members = [(each.kind, each.name, each.special) for each in worker.members]
    assert members == [("function", "Worker", True), ("function", "start", False), ("function", "stop", False),
                       ("function", "operator<", False), ("field", "done", False), ("field", "weigh", False),
                       ("field", "next", False), ("field", "both", False)], members
    assert worker.members[0].text == "explicit Worker(int size)", worker.members[0].text
    assert worker.members[1].text.endswith("std::vector<int> many = {}) const"), worker.members[1].text
    assert worker.members[4].behind == "called at the end", worker.members[4].behind
    assert [each.text for each in kind.members] == ["first", "second = 4"], kind.members
    assert told.comment == ["Both."] and told.text == "int told(int a,\n    int b)" and not other.spaced
    assert plain.comment == ["Plain C."] and "3" in limit.text, limit.text

    bare = [each.name for each, _ in api_reference.bare(header.declarations, "\n".join(header.contract))]
    assert bare == ["Kind"], bare  # stop() follows start(), other() told(), whose comments are theirs too
    without = Header(HEADER.replace("  // Starts; braces in it end nothing: {.\n", "").replace("// Both.\n", ""))
    bare = [each.name for each, _ in api_reference.bare(without.declarations, "\n".join(without.contract))]
    assert bare == ["start", "stop", "Kind", "other"], bare  # the contract names told()

    prose = api_reference.Prose({"mscclpp/worker.hpp": header, "mscclpp/poll.hpp": Header("// Waits.\n")})
    text = prose.markdown(header.contract, "reference/sub/page.md")
    assert "[`poll.hpp`](../poll.md)" in text and "[`told()`](../worker.md)" in text, text
    assert "```text\na table   as it stands\n```" in text and "\n- an item that goes on\n\nBehind it" in text, text
    assert "Behind it `Pair<T, int>` is `one\ncode`, and a &lt; b." in text, text
    page = api_reference.page("mscclpp/worker.hpp", header, prose)
    assert "secret" not in page and "Hidden" not in page and "return" not in page, page

    site = assemble.Site(root, {"README.md", "docs/host.md", "examples/hello/main.cpp", "LICENSE",
                                "include/mscclpp/device/poll.hpp"})
    written = ("[a](host.md#x) [`b`](../include/mscclpp/device/poll.hpp) `device/poll.hpp` [c](../examples/hello)\n"
               "`examples/hello` [d](../LICENSE) [](gone) `[](gone)`\n<!-- compile: sim -->\n```\n[x](y)\n```")
    text = site.rewritten(written, "docs/other.md")
    reference, example = "../reference/device/poll.md", "../examples/hello.md"
    assert text == (f"[a](host.md#x) [`b`]({reference}) [`device/poll.hpp`]({reference}) [c]({example})\n"
                    f"[`examples/hello`]({example}) [d](../LICENSE) [](gone) `[](gone)`\n```\n[x](y)\n```"), text
    assert site.errors == ["docs/other.md: the link gone leads to no file of the repository"], site.errors
    assert site.copies == {"LICENSE"}, site.copies
    site.pages = {"README.md": "# One", "docs/host.md": "# `Two`", "docs/new.md": "# Three"}
    nav = site.navigation("# order\nStart\n  README.md\nMore to read\n  docs/host.md\n  docs/gone.md\n")
    assert nav == [{"Start": "README.md"}, {"More to read": "docs/host.md"}, {"More": "docs/new.md"}], nav
    assert "docs/gone.md is no page" in site.errors[-1], site.errors

    with tempfile.TemporaryDirectory(prefix="mscclpp-house-") as build:
        os.makedirs(os.path.join(build, "examples"))
        for name, status in (("hello", 0), ("faulty", 3)):
            program = os.path.join(build, "examples", f"example_{name}")
            with open(program, "w", encoding="utf-8") as file:
                file.write(f"#!/bin/sh\necho {os.path.realpath(root)}/here >&2; exit {status}\n")
            os.chmod(program, 0o755)
        site = assemble.Site(root, set(), build)
        assert [site.run("hello"), site.run("absent")] == ["here", ""] and not site.errors, site.errors
        assert site.run("faulty") and "examples/faulty: status 3" in site.errors[0], site.errors
    print("headers, pages and links are read as they are meant")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["build", "self-test"])
    parser.add_argument("--root", required=True)
    parser.add_argument("--python", action="append", default=[])
    arguments = parser.parse_args()
    if arguments.what == "self-test":
        return self_test(os.path.abspath(arguments.root))
    return build(os.path.abspath(arguments.root), [*arguments.python, sys.executable])


if __name__ == "__main__":
    sys.exit(main())
