# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ranks that are processes: how they meet, what they hear of each other, and how the interpreter ends."""

import os
import signal
import subprocess
import time
import unittest

from support import QUICK, Forked, finish, free_port, run_processes, start, start_ranks

REDUCE = """
    import numpy as np
    x = np.full(1000, group.my_rank + 1, np.float32)
    group.all_reduce(x)
    assert (x == group.nranks * (group.nranks + 1) // 2).all(), x
    print("done", group.my_rank, group.nranks, group.device, end="")
"""


class Meeting(unittest.TestCase):
    def test_as_torchrun_starts_them(self):
        outputs = run_processes("import mscclpp\ngroup = mscclpp.CommGroup()" + self.flat(REDUCE), 4)
        self.assertEqual(outputs, [f"done {rank} 4 sim:{rank}" for rank in range(4)])

    def test_at_an_address(self):
        code = f"""import os, mscclpp
group = mscclpp.CommGroup(interfaceIpPortTrio="lo:127.0.0.1:{free_port()}", rank=int(os.environ["RANK"]), size=3)
"""
        outputs = run_processes(code + self.flat(REDUCE), 3)
        self.assertEqual(len(outputs), 3)

    @staticmethod
    def flat(code):
        return "\n" + "\n".join(line.strip() for line in code.strip().splitlines()) + "\n"


class Failures(unittest.TestCase):
    def test_a_rank_that_is_killed(self):
        code = """
            import os, signal, time, mscclpp, numpy as np
            group = mscclpp.CommGroup()
            x = np.ones(1000, np.float32)
            group.all_reduce(x)
            group.barrier()
            if group.my_rank == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            begin = time.monotonic()
            try:
                group.all_reduce(x)
            except mscclpp.Error as error:
                print(type(error).__name__, error)
                assert time.monotonic() - begin < 15
            else:
                print("nothing was raised")
        """
        results = finish(start_ranks(code, 3, MSCCLPP_KERNEL_TIMEOUT="10"))
        self.assertEqual(results[2][0], -signal.SIGKILL)
        for rank in (0, 1):
            status, output, errors = results[rank]
            self.assertEqual(status, 0, errors)
            self.assertIn("rank 2", output)

    def test_a_group_that_nobody_joins(self):
        code = f"""
            import mscclpp
            try:
                mscclpp.CommGroup(interfaceIpPortTrio="127.0.0.1:{free_port()}", rank=0, size=2, timeout=1)
            except TimeoutError as error:
                print(error)
        """
        [output] = run_processes(code, 1)
        self.assertIn("rank", output)

    def test_use_after_fork(self):
        code = """
            import os, mscclpp, numpy as np
            group = mscclpp.CommGroup()
            group.all_reduce(np.ones(8, np.float32))
            child = os.fork()
            if child == 0:
                status = 3
                try:
                    group.barrier()
                    group.all_reduce(np.ones(8, np.float32))
                except mscclpp.Error as error:
                    status = 0 if "fork" in str(error) else 4
                os._exit(status)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            group.all_reduce(np.ones(8, np.float32))
        """
        run_processes(code, 2)

    def test_the_interpreter_ends_while_others_work(self):
        code = """
            import mscclpp, numpy as np
            group = mscclpp.CommGroup()
            kept = mscclpp.GpuBuffer(1000, "float32")
            group.all_reduce(kept)
            raise SystemExit(5 if group.my_rank == 1 else 0)
        """
        begin = time.monotonic()
        self.assertEqual([status for status, _, _ in finish(start_ranks(code, 3))], [0, 5, 0])
        self.assertLess(time.monotonic() - begin, 60)


class Forks(unittest.TestCase):
    """Of rank_server.py, which the tests with PyTorch use."""

    def test_they_are_as_processes_that_are_started(self):
        for code in (
            "import os, sys; print(sys.argv, __name__, sys.path, sorted(os.environ)); print(1, file=sys.stderr)",
            "import atexit; atexit.register(print, 'in the end'); raise SystemExit(3)",
            "import os; print('not written'); os._exit(7)",
            "import os, signal; print('written', flush=True); os.kill(os.getpid(), signal.SIGTERM)",
            "def a(): pass\nimport pickle; print(pickle.loads(pickle.dumps(a)) is a)",
            "raise ValueError('a reason')",
        ):
            own = {"MSCCLPP_TEST_OWN": "1"}
            processes = [start(code, fork=False, **own), Forked(code, {**os.environ, **QUICK, **own})]
            started, forked = finish(processes)
            self.assertEqual(forked[:2], started[:2], forked[2])
            self.assertEqual(forked[2].splitlines()[-1:], started[2].splitlines()[-1:])  # a trace has a line more

    def test_a_limit(self):
        process = Forked("import time; time.sleep(100)", dict(os.environ))
        with self.assertRaises(subprocess.TimeoutExpired):
            finish([process], 0.3)
        self.assertEqual(finish([process]), [(-signal.SIGKILL, "", "")])


if __name__ == "__main__":
    unittest.main()
