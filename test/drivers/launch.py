#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Starts a program as several processes and checks that all of them succeed.
#
#   launch.py --as=torchrun --ranks=N [--expect=REGEX] [--limit=SECONDS] -- COMMAND...
#   launch.py --as=mpirun --mpirun=PATH --ranks=N ... -- COMMAND...
#   launch.py --self-test
#
# torchrun: sets the environment that torchrun gives its workers, and holds MASTER_PORT itself, as torchrun's store does.
# Passes when every process returns 0 and the expression is found in their joint output.
"""Driver of the tests that start several processes."""

import argparse
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

import toolchain

# Settings of a launcher that this driver itself may have been started by.
LAUNCHER_VARIABLES = re.compile(r"^(OMPI_|PMIX_|PMI_|SLURM_|TORCHELASTIC_|MSCCLPP_)|"
                                r"^(RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|GROUP_RANK|MASTER_ADDR|MASTER_PORT)$")


def clean_environment():
    return {name: value for name, value in os.environ.items() if not LAUNCHER_VARIABLES.match(name)}


def wait_all(processes, limit):
    """Exit status of each; a process still running at the limit, or once another has failed for 10 s, is ended."""
    deadline = time.monotonic() + limit
    failed = False
    while any(process.poll() is None for process in processes) and time.monotonic() < deadline:
        if not failed and any(process.returncode not in (None, 0) for process in processes):
            failed = True
            deadline = min(deadline, time.monotonic() + 10)
        time.sleep(0.02)
    statuses = []
    for process in processes:
        late = process.poll() is None
        if late:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        statuses.append("did not end" if late else process.returncode)
    return statuses


def start(command, environment, output):
    # A session of its own, so that whatever it started ends with it.
    try:
        return subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
    except OSError as error:
        raise SystemExit(f"error: cannot run {command[0]}: {error.strerror}") from error


def launch(arguments, command):
    """Returns (exit status per process, joint output)."""
    with tempfile.TemporaryFile() as output:
        if arguments.launcher == "mpirun":
            environment = clean_environment()
            environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
            mpirun = [arguments.mpirun, "--oversubscribe", "-np", str(arguments.ranks)]
            statuses = wait_all([start([*mpirun, *command], environment, output)], arguments.limit)
        else:
            with socket.socket() as store:
                store.bind(("127.0.0.1", 0))
                store.listen()
                processes = []
                for rank in range(arguments.ranks):
                    environment = clean_environment()
                    environment.update(RANK=str(rank), LOCAL_RANK=str(rank), GROUP_RANK="0",
                                       WORLD_SIZE=str(arguments.ranks), LOCAL_WORLD_SIZE=str(arguments.ranks),
                                       MASTER_ADDR="127.0.0.1", MASTER_PORT=str(store.getsockname()[1]),
                                       TORCHELASTIC_RUN_ID=f"test-{os.getpid()}")
                    processes.append(start(command, environment, output))
                statuses = wait_all(processes, arguments.limit)
        output.seek(0)
        return statuses, output.read().decode(errors="replace")


def check(arguments, command):
    """Returns a list of complaints, and prints what the processes printed."""
    statuses, output = launch(arguments, command)
    print(output, end="")
    complaints = [f"process {index}: exit status {status}" if isinstance(status, int) else
                  f"process {index} did not end within its limit ({arguments.limit} s, or 10 s after another failed)"
                  for index, status in enumerate(statuses) if status != 0]
    if not re.search(arguments.expect, output):
        complaints.append(f"the output does not contain: {arguments.expect}")
    return complaints


def self_test():
    """A driver that lets everything pass would be worse than none."""

    def judge(script, expect="", limit=20):
        arguments = argparse.Namespace(launcher="torchrun", ranks=3, expect=expect, limit=limit)
        return check(arguments, [sys.executable, "-c", script])

    def success_passes(_):
        script = "import os; print('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'], flush=True)"
        assert judge(script, "rank 2 of 3") == []

    def one_failure_is_reported(_):
        complaints = judge("import os, sys; sys.exit(3 if os.environ['RANK'] == '1' else 0)")
        assert complaints == ["process 1: exit status 3"], complaints

    def process_that_hangs_is_reported(_):
        complaints = judge("import os, time; time.sleep(60 if os.environ['RANK'] == '2' else 0)", limit=1)
        assert len(complaints) == 1 and "process 2 did not end" in complaints[0], complaints

    def missing_output_is_reported(_):
        assert any("does not contain" in c for c in judge("print('a')", "b"))

    def rendezvous_port_is_taken(_):
        script = ("import os, socket, sys\n"
                  "try:\n  socket.socket().bind(('127.0.0.1', int(os.environ['MASTER_PORT'])))\n"
                  "except OSError:\n  sys.exit(0)\nsys.exit(1)\n")
        assert judge(script) == []

    return toolchain.self_test([success_passes, one_failure_is_reported, process_that_hangs_is_reported,
                                missing_output_is_reported, rendezvous_port_is_taken])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--as", dest="launcher", choices=("torchrun", "mpirun"), default="torchrun")
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--expect", default="")
    parser.add_argument("--limit", type=float, default=60)
    parser.add_argument("--self-test", action="store_true")
    own, command = toolchain.split_arguments(sys.argv[1:])
    arguments = parser.parse_args(own)
    if arguments.self_test:
        return self_test()
    if not command:
        parser.error("give the command after --")
    complaints = check(arguments, command)
    for complaint in complaints:
        print(f"error: {complaint}")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
