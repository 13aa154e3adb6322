# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Reads what a header of this repository declares, with the comments on it. No compiler: it knows as much of C++ as
# headers in the one format of .clang-format need, in which a body follows a space and an initialiser does not.
"""Declarations of a header and their comments."""

import dataclasses
import re

# Characters of a constant with its value.
MOST_SHOWN = 240
PRIVATE_NAMESPACES = {"impl", "detail", "arch"}
ACCESS = re.compile(r"(public|protected|private)\s*:(?!:)")
TYPE = re.compile(r"(enum(?:\s+class|\s+struct)?|class|struct|union)\s+"
                  r"(?:(?:alignas\([^)]*\)|\[\[.*?\]\]|MSCCLPP_\w+)\s*)*([\w:]+)")
CONSTRUCTOR_INITIALISERS = re.compile(r"\)\s*(?:noexcept\s*)?:\s(?!:)")
NAME_AHEAD = re.compile(r"([\w:]*operator\s*(?:\(\)|\[\]|[^\s\w(]+|\s*[\w:]+[\s*&]*)|[\w:~]+)\s*$")
# Of a pointer or reference to a function or an array: void (*name)(int).
POINTER_NAME = re.compile(r"\((?:\w+::)*[*&]\s*(?:const\s+)?(\w+)\s*[)\[]")
HIDES = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+'(?!\w)", re.DOTALL)


@dataclasses.dataclass
class Declaration:
    """What a header declares; `text` is how, without a body."""

    kind: str  # type, enum, value (of an enum), function, field, constant, alias, concept
    name: str
    text: str
    line: int
    comment: list  # lines, without the slashes
    behind: str  # the comment behind it, on its line
    spaced: bool  # a blank line stands above it
    special: bool = False  # a constructor, destructor, assignment or deduction guide
    members: list = dataclasses.field(default_factory=list)


class Header:
    """`contract`: the lines of the comment at the head; `declarations`: what is public, in order."""

    def __init__(self, text):
        self.source = text
        self.lines = text.split("\n")
        self.code = self._without_conditions(HIDES.sub(self._blank, text))
        self.contract = self._contract()
        self.declarations = []
        self._scope(0, len(self.code), self.declarations, None, True)

    @staticmethod
    def _blank(match):
        return re.sub(r"[^\n]", " ", match.group())

    @staticmethod
    def _without_conditions(code):
        """Blanks lines of the preprocessor, and of an #if all branches but the first."""
        lines, taken, going_on = code.split("\n"), [], False
        for number, line in enumerate(lines):
            directive = re.match(r"\s*#\s*(\w+)", line)
            word = directive.group(1) if directive else ""
            if word.startswith("if"):
                taken.append(True)
            elif word in ("else", "elif") and taken:
                taken[-1] = False
            elif word == "endif" and taken:
                taken.pop()
            if directive or going_on or not all(taken):
                lines[number] = " " * len(line)
            going_on = bool(directive or going_on) and line.endswith("\\")
        return "\n".join(lines)

    def _contract(self):
        comment = []
        for line in self.lines:
            if not line.startswith("//"):
                break
            if "SPDX-License-Identifier" not in line:
                comment.append(line[2:].removeprefix(" "))
        return trimmed(comment)

    # ---- places --------------------------------------------------------------------------------------------------

    def _line_of(self, at):
        return self.source.count("\n", 0, at)

    def _close(self, at):
        """Where the bracket that opens at `at` ends."""
        pairs, depth = {"(": ")", "{": "}", "[": "]"}, 0
        opens, closes = self.code[at], pairs[self.code[at]]
        for i in range(at, len(self.code)):
            depth += (self.code[i] == opens) - (self.code[i] == closes)
            if depth == 0:
                return i
        raise ValueError(f"line {self._line_of(at) + 1}: {opens} has no end")

    def _comment_above(self, line):
        first = line
        while first > 0 and self.lines[first - 1].strip().startswith("//"):
            first -= 1
        comment = [text.strip()[2:].removeprefix(" ") for text in self.lines[first:line]]
        if first == 0 or any(text.startswith("----") for text in comment):
            comment = []
        return trimmed(comment), first == 0 or not self.lines[first - 1].strip()

    def _comment_behind(self, line):
        """Of a declaration that ends on this line, with the lines beneath it that go on with the comment."""
        text = self.lines[line]
        masked = self.code.split("\n", line + 1)[line] if "//" in text else text
        at = text.find("//")
        if at < 0 or masked[at:].strip():
            return ""
        parts = [text[at + 2:].strip()]
        for below in self.lines[line + 1:]:
            if below.find("//") != at or below[:at].strip():
                break
            parts.append(below[at + 2:].strip())
        return " ".join(parts)

    # ---- declarations --------------------------------------------------------------------------------------------

    def _scope(self, at, end, found, inside, public):
        """Declarations between two places: of a namespace (`inside` is None) or of a class (its name)."""
        while True:
            while at < end and (self.code[at].isspace() or self.code[at] == ";"):
                at += 1
            if at >= end:
                return
            access = ACCESS.match(self.code, at) if inside else None
            if access:
                public = access.group(1) == "public"
                at = access.end()
                continue
            at = self._declaration(at, end, found if public else [], inside)

    def _declaration(self, start, end, found, inside):
        """Adds the declaration that begins at `start`; returns where the next may begin."""
        at, body = start, None
        while at < end and self.code[at] != ";":
            if self.code[at] in "([":
                at = self._close(at)
            elif self.code[at] == "{":
                header = self.code[start:at]
                close = self._close(at)
                kind = self._kind_of_body(header)
                if kind == "namespace":
                    named = header.split()[-1] != "namespace"
                    if named and not PRIVATE_NAMESPACES.intersection(re.split(r"\W+", header)):
                        self._scope(at + 1, close, found, None, True)
                    return close + 1
                if kind == "function":
                    self._add(start, at, close, found, inside, None)
                    return close + 1
                if kind == "type":
                    body = (at, close)
                at = close
            at += 1
        self._add(start, body[0] if body else at, at, found, inside, body)
        return at + 1

    def _kind_of_body(self, header):
        rest = without_template(header)
        if re.match(r"(inline\s+)?namespace\b|extern$", rest):
            return "namespace"
        if is_type(rest):
            return "type"
        if "concept " in rest or not header[-1].isspace() or re.search(r"(=|,|\brequires(\s*\([^()]*\))?)\s*$", rest):
            return "initialiser"
        return "function" if "(" in rest else "initialiser"

    def _add(self, start, head_end, end, found, inside, body):
        rest = without_template(self.code[start:head_end])
        words = rest.split()
        if not words or re.match(r"(friend|static_assert|extern)\b|using\s[^=]*$", rest):
            return
        if re.match(r"template\s*<\s*>", self.code[start:]):
            return
        line = self._line_of(start)
        comment, spaced = self._comment_above(line)
        new = Declaration("", "", dedent(self.source[start:head_end]), line + 1, comment,
                          self._comment_behind(self._line_of(end)), spaced)
        name = TYPE.match(rest) if is_type(rest) else None
        if name and not body:
            return  # declared ahead
        if name:
            new.kind = "enum" if name.group(1).startswith("enum") else "type"
            new.name = name.group(2)
            if "::" in new.name or re.match(r"\s*<", rest[name.end():]):
                return  # a member's definition, or a specialisation
            if new.kind == "enum":
                self._values(body[0] + 1, body[1], new.members)
            else:
                self._scope(body[0] + 1, body[1], new.members, new.name, name.group(1) != "class")
        elif words[0] == "using":
            new.kind, new.name = "alias", words[1]
        elif words[0] == "concept":
            new.kind, new.name = "concept", words[1]
        else:
            called = function_name(rest)
            new.kind = "function" if called else "field" if inside else "constant"
            if called:
                self._as_function(new, called, rest, inside)
            elif re.search(r"\w<[^=]*>\s*=", rest):
                return  # a specialisation
            elif pointer := POINTER_NAME.search(rest.split("=")[0]):
                new.name = pointer.group(1)
            else:
                new.name = (re.findall(r"(\w+)\s*(?:\[[^=]*\])?\s*(?:=|\{|:\s|$)", rest) or [""])[0]
                if len(new.text) > MOST_SHOWN:
                    new.text = re.split(r"\s*[={]", new.text)[0] + " = /* ... */"
            if "::" in new.name or not new.name:
                return
        found.append(new)

    @staticmethod
    def _as_function(new, name, rest, inside):
        new.name = name
        initialisers = CONSTRUCTOR_INITIALISERS.search(new.text) if inside else None
        if initialisers:
            new.text = new.text[:initialisers.start() + 1]
        guide = not inside and re.match(r"(explicit\s+)?\w+\s*\([^;]*\)\s*->", rest)
        new.special = bool(guide or name.lstrip("~") == inside or name.replace(" ", "") == "operator=" or
                           re.search(r"=\s*delete\s*$", rest))

    def _values(self, at, end, found):
        """The values of an enum."""
        for match in re.finditer(r"(\w+)\s*(?:=[^,]*)?(?=,|$)", self.code[at:end].rstrip()):
            line = self._line_of(at + match.start())
            comment, spaced = self._comment_above(line)
            found.append(Declaration("value", match.group(1), match.group().rstrip(), line + 1, comment,
                                     self._comment_behind(line), spaced))


def trimmed(lines):
    while lines and not lines[0].strip():
        lines = lines[1:]
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    return lines


def dedent(text):
    """Later lines of a declaration, less what the least indented of them has."""
    first, *rest = text.rstrip().split("\n")
    indents = [len(line) - len(line.lstrip()) for line in rest if line.strip()]
    margin = min(indents, default=0)
    hang = "" if re.match(r"template\b", first) else "    "
    return "\n".join([first] + [hang + line[margin:].rstrip() for line in rest])


def past_angles(text, at):
    """Where the < at `at` ends."""
    depth, i = 0, at
    while i < len(text):
        if text[i] == "(":
            i = past_parentheses(text, i) - 1
        depth += (text[i] == "<") - (text[i] == ">" and text[i - 1] != "-")
        i += 1
        if depth == 0:
            break
    return i


def past_parentheses(text, at):
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] == "(") - (text[i] == ")")
        if depth == 0:
            return i + 1
    return len(text)


def without_template(header):
    """Less attributes, `template <...>` and the `requires` behind it."""
    rest = header.strip()
    while True:
        if re.match(r"template\s*<", rest):
            rest = rest[past_angles(rest, rest.index("<")):].lstrip()
        elif re.match(r"requires\b", rest):
            rest = rest[len("requires"):].lstrip()
            while True:
                if rest.startswith("("):
                    rest = rest[past_parentheses(rest, 0):].lstrip()
                else:
                    rest = re.sub(r"^!?[\w:]+", "", rest)
                    if rest.startswith("<"):
                        rest = rest[past_angles(rest, 0):]
                    rest = rest.lstrip()
                more = re.match(r"(&&|\|\|)\s*", rest)
                if not more:
                    break
                rest = rest[more.end():]
        elif rest.startswith("[["):
            rest = rest[rest.index("]]") + 2:].lstrip()
        else:
            return rest


def is_type(rest):
    """Whether this begins the definition or declaration of a type, no function or variable of one."""
    name = TYPE.match(rest)
    if not name:
        return False
    behind = rest[name.end():].strip()
    if behind.startswith("<"):
        behind = behind[past_angles(behind, 0):].strip()
    return re.match(r"(final\b)?\s*($|:|\{)", behind) is not None


def function_name(rest):
    """The name ahead of the first parenthesis outside of <>; None where there is no function."""
    at = 0
    while at < len(rest):
        if rest[at] == "<" and not rest[:at].rstrip().endswith("operator"):
            at = past_angles(rest, at)
            continue
        if rest[at] == "=" and not re.search(r"operator\s*[^\s\w(]*$", rest[:at]):
            return None
        if rest[at] == "(":
            if POINTER_NAME.match(rest, at):
                return None
            ahead = rest[:at]
            if re.search(r"\b(alignas|decltype|explicit|noexcept)\s*$", ahead):
                at = past_parentheses(rest, at)
                continue
            if re.search(r"operator\s*$", ahead):
                return "operator()"
            name = NAME_AHEAD.search(ahead)
            return name.group(1).strip() if name else None
        at += 1
    return None
