# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What a compilation costs: its processor time, the memory of its largest process, and what it printed. How fast a machine
# is drifts within seconds, so what is compared is measured in turn, and the least counts. What differs by less than the
# machine does is compared by instructions instead, which are the same every time; counting takes 30 times as long.
"""Costs of compilations."""

import dataclasses
import glob
import os
import re
import tempfile


@dataclasses.dataclass
class Cost:
    """Of one compilation."""
    seconds: float
    megabytes: float
    output: str


def source_of(folder, name, text, phase="-c"):
    """Writes a source; arguments of its compilation, up to that phase."""
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return [phase, path, "-o", os.path.join(folder, "unit.o")]


def cost_of(command):
    """Of a command that must succeed."""
    with tempfile.TemporaryFile() as output:
        child = os.posix_spawnp(command[0], command, os.environ,
                                file_actions=[(os.POSIX_SPAWN_DUP2, output.fileno(), 1), (os.POSIX_SPAWN_DUP2, 1, 2)])
        _, status, usage = os.wait4(child, 0)
        output.seek(0)
        text = output.read().decode(errors="replace")
    if status != 0:
        raise SystemExit(f"error: {' '.join(command)}\n{text}")
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, text)


def instructions_of(command):
    """Of all processes of a command that must succeed. Needs Valgrind."""
    with tempfile.TemporaryDirectory(prefix="mscclpp-instructions-") as folder:
        cost_of(["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null", "--trace-children=yes",
                 f"--log-file={folder}/%p", *command])
        logs = [open(path, encoding="utf-8", errors="replace").read() for path in glob.glob(folder + "/*")]
    counts = [re.search(r"I +refs: +([0-9,]+)", log) for log in logs]
    if not counts or not all(counts):
        raise SystemExit(f"error: Valgrind counted no instructions of: {' '.join(command)}")
    return sum(int(count[1].replace(",", "")) for count in counts)


def least_in_turn(commands, within, most=3):
    """The least of each command over turns, `most` of them, until within(costs)."""
    least = []
    for _ in range(most):
        costs = [cost_of(command) for command in commands]
        least = [min(pair, key=lambda cost: cost.seconds) for pair in zip(least, costs)] if least else costs
        if within(least):
            break
    return least
