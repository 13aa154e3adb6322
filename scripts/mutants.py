# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Finds the places in a header where one token, call or condition makes it right, and says how to weaken each.
"""Mutants of the device headers: where, what, and by which rule."""

import dataclasses
import re

CLASSES = {
    "order": "a memory order weakened",
    "scope": "a scope narrowed",
    "fence": "a fence removed",
    "barrier": "a barrier of threads removed",
    "wait": "a wait removed",
    "publish": "a store, signal or publication removed",
    "reorder": "a synchronizing statement swapped with its neighbour",
    "flag": "a flag without its epoch, or not compared",
    "epoch": "an epoch not advanced, or not used",
    "active": "inactive slots treated as active",
    "condition": "a condition, or a part of one, made constant",
    "bounds": "a bound off by one, a minimum or a rounding dropped",
    "arguments": "two arguments swapped",
    "require": "a check of the caller's arguments removed",
}


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One change: characters [start, end) of the file become `replacement`."""
    path: str
    kind: str
    start: int
    end: int
    replacement: str
    line: int
    column: int
    original: str
    key: str  # names it while its line stays as it is, whatever lines are added elsewhere

    def apply(self, text):
        return text[:self.start] + self.replacement + text[self.end:]

    def __str__(self):
        change = f"{flatten(self.original)} -> {flatten(self.replacement) or '(nothing)'}"
        return f"{self.path}:{self.line}:{self.column}: {self.kind}: {change}"


def flatten(text):
    return re.sub(r"\s+", " ", text).strip()


# ---- what may be changed ---------------------------------------------------------------------------------------------

_SKIPPED = re.compile(
    r"//[^\n]*|/\*.*?\*/"  # comments
    r"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])'"  # literals
    r"|^[ \t]*#(?:\\\n|[^\n])*"  # preprocessor
    r"|\[\[[^\]]*\]\]"  # attributes
    r"|\bconcept\b"  # up to the ; that ends it
    r"|\bMovement movement(?=\()"  # what the cost model reads; kernels do not
    r"|\b(?:static_assert|requires)(?=\s*\()", re.S | re.M)


def mask(text):
    """The text with blanks in place of everything that is not executable code; offsets stay."""
    result = list(text)

    def blank(start, end):
        for i in range(start, end):
            if result[i] != "\n":
                result[i] = " "

    at = 0
    while True:
        found = _SKIPPED.search(text, at)
        if not found:
            return "".join(result)
        end = found.end()
        if found.group() == "concept":
            end = end_of_statement(text, end)
        elif found.group() == "Movement movement":
            end = matching(text, text.index("{", matching(text, text.index("(", end)))) + 1
        elif found.group() in ("static_assert", "requires"):
            end = matching(text, text.index("(", end)) + 1
        blank(found.start(), end)
        at = end


def matching(code, opening):
    """Offset of the bracket that closes the one at `opening`."""
    closing = {"(": ")", "{": "}", "[": "]"}[code[opening]]
    depth = 0
    for i in range(opening, len(code)):
        if code[i] == code[opening]:
            depth += 1
        elif code[i] == closing:
            depth -= 1
            if depth == 0:
                return i
    raise ValueError(f"'{code[opening]}' at offset {opening} is never closed")


def end_of_statement(code, at):
    """Offset of the next ; that stands in no bracket."""
    depth = 0
    for i in range(at, len(code)):
        depth += (code[i] in "([{") - (code[i] in ")]}")
        if depth == 0 and code[i] == ";":
            return i
    raise ValueError(f"the statement at offset {at} has no end")


def arguments_of(code, opening):
    """[(start, end)] of the arguments of the call whose '(' is at `opening`, without blanks around them."""
    close = matching(code, opening)
    parts = []
    start, depth = opening + 1, 0
    for i in range(opening + 1, close + 1):
        if code[i] in "([{":
            depth += 1
        elif code[i] in ")]}" and i != close:
            depth -= 1
        elif (code[i] == "," and depth == 0) or i == close:
            part = code[start:i]
            parts.append((start + len(part) - len(part.lstrip()), i - (len(part) - len(part.rstrip()))))
            start = i + 1
    return parts if code[opening + 1:close].strip() else []


def starts_statement(code, at):
    before = code[:at].rstrip()
    return before.endswith((";", "{", "}", ")"))


# ---- rules: each yields (start, end, replacement) --------------------------------------------------------------------

_WEAKER_ORDER = {"acquire": ["relaxed"], "release": ["relaxed"], "acquireRelease": ["relaxed", "acquire", "release"],
                 "sequential": ["acquireRelease"]}
_NARROWER_SCOPE = {"system": "device", "device": "block"}


def orders(code):
    for m in re.finditer(r"\bOrder::(acquireRelease|acquire|release|sequential)\b", code):
        for weaker in _WEAKER_ORDER[m.group(1)]:
            yield m.start(1), m.end(1), weaker


def scopes(code):
    for m in re.finditer(r"\bScope::(system|device)\b", code):
        yield m.start(1), m.end(1), _NARROWER_SCOPE[m.group(1)]


def statements(code, callee):
    """Whole statements that are a call of `callee` (a pattern)."""
    for m in re.finditer(rf"(?<![\w.:>])(?:{callee})(?=\()", code):
        end = matching(code, m.end()) + 1
        if starts_statement(code, m.start()) and code[end:end + 1] == ";":
            yield m.start(), end + 1, ";"


def fences(code):
    yield from statements(code, r"[\w:]*\bfence<[^;]*?>")


def barriers(code):
    yield from statements(code, r"[\w.:()]*(?:\.sync|\bsync(?:Whole|Warp|Block|Barrier))")


def waits(code):
    yield from statements(code, r"(?:mscclpp::)?poll|awaitPhase|waitForPreviousKernel|waitFor<[^;]*?>|session\.receive")
    for m in re.finditer(r"\bwhile \((![^;]*?)\) \{", code):
        yield m.start(1), m.end(1), "false"


def publications(code):
    yield from statements(code, r"publishPhase|commitEpoch|store<[^;()]*?>|reduceAdd<[^;]*?>|storeWords\d|storeLines"
                          r"|P::store|session\.(?:put|open|beginRound|commit|exchange|endRound)")


_SYNCHRONIZES = re.compile(
    r"\.sync\(\)|syncWhole\(|publishPhase\(|awaitPhase\(|commitEpoch\(|session\.(?:open|beginRound|commit|exchange|endRound|receive)\("
    r"|waitForPreviousKernel\(|store<Order::release|\bsignal\(\);")


def reorderings(code):
    lines = []
    at = 0
    for line in code.split("\n"):
        lines.append((at, line))
        at += len(line) + 1

    def simple(line):
        return re.match(r"\s+[^\s/}].*;\s*$", line) and line.count("(") == line.count(")") and not re.match(
            r"\s*(?:return|if|for|while|case|using|template|friend|break|continue|MSCCLPP_|struct)\b", line)

    def touches_memory(line):  # or synchronizes; what stays in registers may come before or after
        return _SYNCHRONIZES.search(line) or not re.match(r"\s*(?:auto\b|round \+=)", line)

    for (first_at, first), (second_at, second) in zip(lines, lines[1:]):
        if not (simple(first) and simple(second)) or len(first) - len(first.lstrip()) != len(second) - len(second.lstrip()):
            continue
        if (_SYNCHRONIZES.search(first) or _SYNCHRONIZES.search(second)) and touches_memory(first) and touches_memory(second):
            yield first_at, second_at + len(second), second + "\n" + first


def flags(code):
    for m in re.finditer(r"\bpacketFlag\((\w+)\)(?=;)", code):
        yield m.start(1), m.end(1), "1"
    for m in re.finditer(r" \| 1u\b", code):
        yield m.start(), m.end(), ""
    for m in re.finditer(r"\bepoch( << 1)", code):
        yield m.start(1), m.end(1), ""
    for m in re.finditer(r"[\w.\[\]]+ (==|!=|>=|<) (flag|epoch|next|mine)\b", code):
        as_found = {"==": "true", ">=": "true", "<": "false"}.get(m.group(1)) or ("false" if m.group(2) == "flag" else "true")
        yield m.start(), m.end(), as_found
    for m in re.finditer(r"(?<=[,?] )flag(?= :|[,}])", code):
        if code.rfind("{{", 0, m.start()) > code.rfind(";", 0, m.start()):
            yield m.start(), m.end(), "1u"


def epochs(code):
    for m in re.finditer(r"(?<=\s)\+\+epoch\w*;|\*expected = next;", code):
        yield m.start(), m.end(), ";"
    for m in re.finditer(r"\bepoch_? % 2", code):
        yield m.start(), m.end(), "0"
    for m in re.finditer(r"(?:readEpoch\([^()]*\)|\bmine|\*expected|\bepoch_?)( \+ 1)\b", code):
        yield m.start(1), m.end(1), ""
    for m in re.finditer(r"(?<=, )epoch_(?=\))", code):
        yield m.start(), m.end(), "epoch_ - 1"


def inactive(code):
    for m in re.finditer(r"(?<![&\w.])(active|mine\.valid\[\w+\])(?= \?)", code):
        yield m.start(1), m.end(1), "true"
    for m in re.finditer(r"(?<=, )(active|sources\[\w+\]\.active|mine\.active\[[\w %]+\])(?=[,)}])", code):
        yield m.start(1), m.end(1), "true"
    for m in re.finditer(r"\bmine\.active\b", code):
        yield m.start() + 5, m.end(), "valid"


def conditions(code):
    for m in re.finditer(r"\bif (\()", code):
        end = matching(code, m.start(1))
        for constant in ("true", "false"):
            yield m.end(1), end, constant
    for m in re.finditer(r" (&&|\|\|) ", code):
        neutral = "true" if m.group(1) == "&&" else "false"
        yield _operand_before(code, m.start()), m.start(), neutral
        yield m.end(), _operand_after(code, m.end()), neutral


def _operand_before(code, at):
    depth = 0
    for i in range(at - 1, 0, -1):
        if code[i] in ")]":
            depth += 1
        elif code[i] in "([":
            depth -= 1
        ends = (depth < 0 or code[i] in "{;,?" or code[i - 1:i + 1] in ("&&", "||") or code[i - 6:i + 1] == "return "
                or re.fullmatch(r"[^=!<>]= ", code[i - 2:i + 1]))
        if depth <= 0 and ends:
            return i + 1 + len(code[i + 1:at]) - len(code[i + 1:at].lstrip())
    raise ValueError("no operand")


def _operand_after(code, at):
    depth = 0
    for i in range(at, len(code)):
        if code[i] in "([":
            depth += 1
        elif code[i] in ")]":
            depth -= 1
        if depth < 0 or (depth == 0 and (code[i] in ";,}" or code[i:i + 2] in ("&&", "||", "? "))):
            return i - (len(code[at:i]) - len(code[at:i].rstrip()))
    raise ValueError("no operand")


def bounds(code):
    off_by_one = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
    for m in re.finditer(r"(?<= )(<=?|>=?)(?= )", code):
        yield m.start(), m.end(), off_by_one[m.group()]
    for m in re.finditer(r"(?<=[\w)]) - 1\b", code):
        yield m.start(), m.end(), ""
    for m in re.finditer(r"\((\w+) \+ \d+\) / (\d+)", code):
        yield m.start(), m.end(), f"{m.group(1)} / {m.group(2)}"
    for m in re.finditer(r" / (\w+) \* \1\b", code):
        yield m.start(), m.end(), ""
    for m in re.finditer(r"\b(ceilDiv|minimum)(?:<[\w:]+>)?\(", code):
        arguments = arguments_of(code, m.end() - 1)
        end = matching(code, m.end() - 1) + 1
        if len(arguments) != 2 or any(re.match(r"T \w+$", code[a:b]) for a, b in arguments):
            continue
        first, second = (code[a:b] for a, b in arguments)
        if m.group(1) == "ceilDiv":
            yield m.start(), end, f"(({first}) / ({second}))"
        else:
            yield m.start(), end, f"({first})"
            yield m.start(), end, f"({second})"


_PLAIN = re.compile(r"[\w.]+(?: \+ [\w.]+)*")


def swapped_arguments(code):
    for m in re.finditer(r"\b(?:signal|session\.put|at|offset|copy|put|get|unpack|unpackPackets|putPackets|publishPhase"
                         r"|awaitPhase|commitEpoch|P::store|awaitPackets(?:<P>)?|copyToPackets|copyFromPackets(?:<P>)?"
                         r"|impl::(?:read|write)(?:Whole|Pieces)<[^;]*?>|op|map|rowSlots)\(", code):
        arguments = arguments_of(code, m.end() - 1)
        for (a, b), (c, d) in zip(arguments, arguments[1:]):
            if _PLAIN.fullmatch(code[a:b]) and _PLAIN.fullmatch(code[c:d]):
                yield a, d, code[c:d] + code[b:c] + code[a:b]
    for m in re.finditer(r"\bteam\.signal(\()", code):  # whose word, written by whom
        (a, b), *_, (c, d) = arguments_of(code, m.start(1))
        yield a, d, code[c:d] + code[b:c] + code[a:b]


def requirements(code):
    yield from statements(code, "require|requireAlone|checkRemote|checkLocal")


_RULES = {
    "order": orders, "scope": scopes, "fence": fences, "barrier": barriers, "wait": waits, "publish": publications,
    "reorder": reorderings, "flag": flags, "epoch": epochs, "active": inactive, "condition": conditions,
    "bounds": bounds, "arguments": swapped_arguments, "require": requirements,
}


def find(path, text):
    """All mutants of one file, in the order of their places; none twice."""
    code = mask(text)
    found = {}
    for kind, rule in _RULES.items():
        for start, end, replacement in rule(code):
            if text[start:end] != replacement:
                found.setdefault((start, end, replacement), kind)
    mutants = []
    keys = {}
    for (start, end, replacement), kind in sorted(found.items()):
        head = text.rfind("\n", 0, start) + 1
        tail = text.find("\n", end)
        tail = len(text) if tail < 0 else tail
        key = (f"{path} {kind} {flatten(text[head:start])}"
               f"[-{flatten(text[start:end])}-]{{+{flatten(replacement)}+}}{flatten(text[end:tail])}")
        keys[key] = keys.get(key, 0) + 1
        if keys[key] > 1:
            key += f" ({keys[key]})"
        mutants.append(Mutant(path, kind, start, end, replacement, text.count("\n", 0, start) + 1, start - head + 1,
                              text[start:end], key))
    return mutants
