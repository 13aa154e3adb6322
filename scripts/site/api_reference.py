#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The API reference: a Markdown page of each public header, from its own comments.
#
#   api_reference.py write --root=FOLDER --out=FOLDER     to OUT/reference
#   api_reference.py check --root=FOLDER
#
# A page has the contract at the head of the header, then each public type and function with the comment on it, as it is
# declared. check: every public header opens with a contract, and none of its types and functions is bare. Bare is what
# has no comment on it or on the lines that it stands together with, is named in no comment of its header, and is not
# what the header is named for. Public: include/mscclpp without the folders detail, impl, arch and sim/backend, and
# namespaces of these names.
"""Makes pages of headers, and finds what has no comment."""

import argparse
import os
import posixpath
import re
import sys

from cpp_header import Header, trimmed

NOT_PUBLIC = re.compile(r"(^|/)(detail|impl|arch|sim/backend)/")
# Whoever reads them knows what they do.
PLAIN = re.compile(r"(operator.*|begin|end|size|data|empty|what)$")


def public_headers(root):
    """Names as they are included, in order: what is nearest to the top first."""
    include = os.path.join(root, "include")
    names = []
    for folder, _, files in os.walk(os.path.join(include, "mscclpp")):
        for file in files:
            name = os.path.relpath(os.path.join(folder, file), include).replace(os.sep, "/")
            if name.endswith(".hpp") and not NOT_PUBLIC.search(name):
                names.append(name)
    return sorted(names, key=lambda name: (os.path.dirname(name), name))


def read(root, name):
    with open(os.path.join(root, "include", name), encoding="utf-8") as file:
        try:
            return Header(file.read())
        except ValueError as error:
            raise SystemExit(f"error: {name}: {error}") from error


def page_of(name):
    """Where a site has the page of a header: reference/device/poll.md."""
    return "reference/" + name.removeprefix("mscclpp/").removesuffix(".hpp") + ".md"


# ---- prose -----------------------------------------------------------------------------------------------------------

# Code; a name with what template it is an instance of, or with the brackets of a call; whatever else.
TOKEN = re.compile(r"`[^`]*`|(?:\w+::)*\w+(?:<[^<>\n]*(?:<[^<>\n]*>[^<>\n]*)*>(?:\(\)|\{\})?|\(\))?|.", re.DOTALL)


class Prose:
    """Comments as Markdown, of the page `here`; names that are declared somewhere become links to there."""

    def __init__(self, headers):
        places = {}
        for name, header in headers.items():
            for declaration in header.declarations:
                places.setdefault(declaration.name, set()).add(name)
        self.names = {name for header in headers.values() for name in names_in(header.declarations)}
        self.places = {name: next(iter(where)) for name, where in places.items() if len(where) == 1}
        self.headers = headers

    def _header(self, said, here):
        """Which header a comment means by poll.hpp, device/poll.hpp or mscclpp/device/poll.hpp; None: none of these."""
        beside = posixpath.join(posixpath.dirname(here).replace("reference", "mscclpp", 1), said)
        ends = [name for name in self.headers if name.endswith("/" + said)]
        whole = [name for name in (said, beside) if name in self.headers] or (ends if len(ends) == 1 else [])
        return whole[0] if whole else None

    def inline(self, text, here):
        def header(match):
            name = self._header(match.group(), here)
            return f"\0{self._link(match.group(), page_of(name), here)}\0" if name else match.group()

        parts = re.sub(r"(?<![\w`])[\w/]+\.hpp\b", header, text).split("\0")
        return "".join(part if i % 2 else "".join(self._token(token, here) for token in TOKEN.findall(part))
                       for i, part in enumerate(parts))

    def _token(self, token, here):
        if token.startswith("`"):
            return token if len(token) > 1 else "\\`"
        if not re.match(r"\w", token):
            return re.sub(r"([*\[\]|#])", r"\\\1", token).replace("<", "&lt;")
        word = re.sub(r"<.*|\(\)$", "", token)
        known = self.places.get(word.split("::")[-1]) or self.places.get(word.split("::")[0])
        camel = re.search(r"[a-z0-9][A-Z]", word)
        if known and page_of(known) != here and (word != token or camel):
            return self._link(token, page_of(known), here)
        code = word != token or "::" in token or "_" in token or (camel and word in self.names)
        return f"`{token}`" if code else token

    @staticmethod
    def _link(text, page, here):
        return f"[`{text}`]({posixpath.relpath(page, posixpath.dirname(here))})"

    def markdown(self, lines, here):
        """Paragraphs; lists; and what is set in by two or more as it stands."""
        blocks = []  # (kind, lines), of the kinds text, item and code
        kind = None  # of the block that goes on
        for line in lines:
            indent = len(line) - len(line.lstrip())
            item = re.match(r"\s{0,3}(?:-|\d+\.)\s+(?=\S)", line)
            if not line.strip():
                if kind == "code":
                    blocks[-1][1].append("")
                kind = kind if kind == "code" else None
            elif kind == "code" and indent >= 2:
                blocks[-1][1].append(line[2:])
            elif item:
                kind = "item"
                blocks.append((kind, [line.strip()]))
            elif kind == "item" and indent >= 2:
                blocks[-1][1].append(line.strip())
            else:
                new = "code" if indent >= 2 else "text"
                if kind != new:
                    blocks.append((new, []))
                kind = new
                blocks[-1][1].append(line[2:] if kind == "code" else line)
        ends = [kind == "item" and after != "item" for (kind, _), (after, _) in zip(blocks, [*blocks[1:], ("", [])])]
        return "\n".join(self._block(*block, here) + "\n" * end for block, end in zip(blocks, ends))

    def _block(self, kind, lines, here):
        if kind == "code":
            return "\n".join(["```text", *trimmed(lines), "```", ""])
        if kind == "text":
            return self.inline("\n".join(lines), here) + "\n"
        mark, text = lines[0].split(maxsplit=1)
        return f"{mark} {self.inline(' '.join([text, *lines[1:]]), here)}"


def names_in(declarations):
    for declaration in declarations:
        yield declaration.name
        yield from names_in(declaration.members)


# ---- pages -----------------------------------------------------------------------------------------------------------

def synopsis(declaration, indent=""):
    """A declaration as C++, with comments above those that are inside of another one."""
    lines = [indent + line for line in declaration.text.split("\n")]
    if declaration.kind in ("type", "enum") and declaration.members:
        lines[-1] += " {"
        for number, member in enumerate(declaration.members):
            if member.spaced and number > 0:
                lines.append("")
            lines += [f"{indent}  // {line}".rstrip() for line in member.comment]
            lines += synopsis(member, indent + "  ")
        lines.append(indent + "};")
    else:
        lines[-1] += "," if declaration.kind == "value" else ";"
    if declaration.behind:
        lines[-1] += "  // " + declaration.behind
    return lines


def groups_of(declarations):
    """Types alone; what else stands together, with one comment above it or none, together."""
    groups = []
    for declaration in declarations:
        alone = declaration.kind in ("type", "enum")
        if not groups or alone or declaration.spaced or declaration.comment or groups[-1][-1].kind in ("type", "enum"):
            groups.append([])
        groups[-1].append(declaration)
    return groups


def page(name, header, prose):
    here = page_of(name)
    out = [f"# {name.removeprefix('mscclpp/')}", "", prose.markdown(header.contract, here), "",
           "```cpp", f'#include "{name}"', "```", ""]
    for group in groups_of(header.declarations):
        names = list(dict.fromkeys(declaration.name for declaration in group))
        out += ["## " + ", ".join(f"`{each}`" for each in names), ""]
        if group[0].comment:
            out += [prose.markdown(group[0].comment, here), ""]
        out += ["```cpp", *(line for declaration in group for line in synopsis(declaration)), "```", ""]
    return "\n".join(out)


def first_sentence(header):
    text = " ".join(line.strip() for line in header.contract[:next((i for i, line in enumerate(header.contract)
                                                                  if not line.strip()), len(header.contract))])
    return re.split(r"(?<=[.:])\s", text)[0].rstrip(":")


class Reference:
    """All pages of the reference."""

    def __init__(self, root):
        self.headers = {name: read(root, name) for name in public_headers(root)}
        self.prose = Prose(self.headers)

    def pages(self):
        """(path, text) of each page, the first of all of them: a list of the headers by folder."""
        index, folder = ["# API reference", "", "What every public header declares, from its own comments.", ""], None
        here = "reference/index.md"
        for name, header in self.headers.items():
            if os.path.dirname(name) != folder:
                folder = os.path.dirname(name)
                index += ["", f"## {folder}", "", "| header | |", "|---|---|"]
            about = self.prose.inline(first_sentence(header), here).replace("|", "&#124;")
            index.append(f"| [{os.path.basename(name)}]({page_of(name).removeprefix('reference/')}) | {about} |")
        yield here, "\n".join(index) + "\n"
        for name, header in self.headers.items():
            yield page_of(name), page(name, header, self.prose)


# ---- check -----------------------------------------------------------------------------------------------------------

def bare(declarations, known):
    """(declaration, its type or None) of types and functions without a comment; `known`: what may name them."""
    led = False
    for number, declaration in enumerate(declarations):
        led = bool(declaration.comment or declaration.behind) or (led and not declaration.spaced and number > 0)
        named = re.search(rf"(?<!\w){re.escape(declaration.name)}(?!\w)", known)
        if declaration.kind in ("type", "enum", "function", "concept") and not (
                led or named or declaration.special or PLAIN.match(declaration.name)):
            yield declaration, None
        if declaration.kind == "type":
            for member, _ in bare(declaration.members, known):
                yield member, declaration


def comments_in(declarations):
    for declaration in declarations:
        yield from declaration.comment
        yield declaration.behind
        yield from comments_in(declaration.members)


def check(root):
    failed, found, counted = False, [], 0
    for name in public_headers(root):
        header = read(root, name)
        if not header.contract:
            print(f"error: {name} opens without a contract: what it does, who calls it, what order it gives, its cost")
            failed = True
        counted += sum(1 for _ in everything(header.declarations))
        subject = "".join(word.capitalize() for word in os.path.basename(name).removesuffix(".hpp").split("_"))
        known = "\n".join([subject, *header.contract, *comments_in(header.declarations)])
        found += [(name, declaration, owner) for declaration, owner in bare(header.declarations, known)]
    print(f"{len(found)} of {counted} public types and functions have no comment")
    for name, declaration, owner in found:
        print(f"{name}:{declaration.line}: {owner.name + '::' if owner else ''}{declaration.name}")
    if found:
        print("error: say what these do, on them or where the header explains its own")
        failed = True
    return failed


def everything(declarations):
    for declaration in declarations:
        if declaration.kind in ("type", "enum", "function", "concept") and not declaration.special:
            yield declaration
        if declaration.kind == "type":
            yield from everything(declaration.members)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["write", "check"])
    parser.add_argument("--root", required=True)
    parser.add_argument("--out")
    arguments = parser.parse_args()
    if arguments.what == "check":
        return check(arguments.root)
    if not arguments.out:
        parser.error("write wants --out")
    for place, text in Reference(arguments.root).pages():
        target = os.path.join(arguments.out, place)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "w", encoding="utf-8") as file:
            file.write(text)
    return False


if __name__ == "__main__":
    sys.exit(main())
