#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Hosts made of network namespaces on one switch, and what peer.cpp does on them. Delay and loss, for which not every
# kernel has the means, are tested in a guest: test/softroce/shaped.sh.
#
#   namespaces.py --peer=PROGRAM [--collectives=PROGRAM [--bench=PROGRAM]] [--experts=PROGRAM] [--nccl=LIBRARY]
#                 [--plan=PROGRAM --plans=FOLDER] [--torch=PYTHON --package=FOLDER] [--whole] [CLASS...]
#                                                       the tests; with --whole, Types has the whole product
#   namespaces.py --peer=PROGRAM --speed[=SECONDS]      the transport's bytes per second beside a plain socket's, and
#                                                       iperf3's where it is installed, in turn; round trips
#
# Needs the rights to make namespaces (root); 77 where they are missing, which is said.
"""Tests of the bootstrap and of the TCP transport over several hosts."""

import itertools
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import unittest



def option(name):
    """What --name= says; None: it is not there."""
    return next((argument.split("=", 1)[1] for argument in sys.argv if argument.startswith(f"--{name}=")), None)


PEER = option("peer")
PORT = 5000
LIMIT = 60   # seconds that one run may take
LEAST = 0.9  # of a plain socket's rate


def command(*arguments):
    """Runs it; its errors are this script's."""
    result = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise OSError(f"{' '.join(arguments)}: {result.stderr.strip()}")
    return result.stdout


class Hosts:
    """Namespaces with an address 10.9.0.x each, on one switch."""

    made = 0

    def __init__(self, count=2):
        Hosts.made += 1
        # Interface names are short, and other runs of this script may be at work.
        tag = f"{os.getpid() % 100000}{chr(ord('a') + Hosts.made % 26)}"
        self.names = [f"mscclpp-{tag}-{i}" for i in range(count)]
        self.switch = f"mscclpp-{tag}-s"
        self.addresses = [f"10.9.0.{i + 1}" for i in range(count)]
        try:
            command("ip", "netns", "add", self.switch)
            # On the host itself, a firewall's rules for bridges would apply.
            command("ip", "-n", self.switch, "link", "add", "switch", "type", "bridge")
            command("ip", "-n", self.switch, "link", "set", "switch", "up")
            for i, name in enumerate(self.names):
                command("ip", "netns", "add", name)
                command("ip", "-n", name, "link", "set", "lo", "up")
                command("ip", "-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", f"port{i}", "netns",
                        self.switch)
                command("ip", "-n", name, "addr", "add", f"{self.addresses[i]}/24", "dev", "eth0")
                command("ip", "-n", name, "link", "set", "eth0", "up")
                command("ip", "-n", self.switch, "link", "set", f"port{i}", "master", "switch", "up")
        except OSError:
            self.close()
            raise

    def close(self):
        for name in [*self.names, self.switch]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def cut(self, i):
        """Takes a host off the switch; it notices nothing itself."""
        command("ip", "-n", self.switch, "link", "set", f"port{i}", "nomaster")

    def start(self, i, *arguments, **environment):
        return subprocess.Popen(["ip", "netns", "exec", self.names[i], *arguments], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True,
                                env={**clean_environment(), "MSCCLPP_SECRET": "of the test", **environment})

    def start_rank(self, i, *arguments, **environment):
        return self.start(i, PEER, f"--rank={i}", f"--ranks={len(self.names)}",
                          f"--address={self.addresses[0]}:{PORT}", *arguments, **environment)


def clean_environment():
    return {name: value for name, value in os.environ.items()
            if not re.match(r"^(OMPI_|PMIX_|PMI_|SLURM_|TORCHELASTIC_|MSCCLPP_)", name)}


def why_not():
    """Why no hosts can be made here; empty: they can."""
    if not shutil.which("ip"):
        return "no ip here; on Debian install iproute2"
    try:
        Hosts(2).close()
    except OSError as error:
        return f"network namespaces cannot be made here ({error}); run as root, on a kernel with veth"
    return ""


class Case(unittest.TestCase):
    limit = LIMIT

    def hosts(self, count):
        hosts = Hosts(count)
        self.addCleanup(hosts.close)
        return hosts

    def finish(self, processes):
        """Exit statuses and texts."""
        results = []
        for process in processes:
            try:
                text, _ = process.communicate(timeout=self.limit)
            except subprocess.TimeoutExpired:
                for other in processes:
                    other.kill()
                text, _ = process.communicate()
                self.fail(f"a rank did not end within {self.limit} s: {text}")
            results.append((process.returncode, text))
        return results


class Exchange(Case):
    """Every rank gets from every other what that one sent."""

    def exchange(self, hosts, *arguments, **environment):
        ranks = [hosts.start_rank(i, *arguments, **environment) for i in range(len(hosts.names))]
        for i, (status, text) in enumerate(self.finish(ranks)):
            self.assertEqual(status, 0, text)
            # Nothing says so but the ranks' being on different hosts.
            self.assertIn(f"rank {i} uses tcp", text)

    def test_two_hosts(self):
        self.exchange(self.hosts(2))

    def test_four_hosts(self):
        self.exchange(self.hosts(4), "--bytes=200K")

    def test_several_sockets(self):
        self.exchange(self.hosts(2), "--bytes=8M", "--rounds=10", MSCCLPP_TCP_SOCKETS="3")

    def test_without_zero_copy(self):
        self.exchange(self.hosts(2), "--bytes=4M", "--rounds=10", MSCCLPP_TCP_ZEROCOPY="0")


class Faults(Case):
    """Whoever waits for a host that is gone is told so, within the limit."""

    def stream(self, hosts):
        ranks = [hosts.start_rank(i, "--action=stream", "--seconds=50", MSCCLPP_TIMEOUT="3") for i in range(2)]
        for rank in ranks:   # both are connected once each has said what it uses
            self.assertIn("uses tcp", rank.stdout.readline())
        time.sleep(1)
        return ranks

    def judge(self, result, own, seconds, most, *fragments):
        status, text = result
        self.assertEqual(status, 1, text)
        self.assertLess(seconds, most, text)
        for fragment in (f"rank {own}: ", f"TCP connection to rank {1 - own} (10.9.0.{2 - own}:", *fragments):
            self.assertIn(fragment, text)

    def test_host_cut_off_in_mid_transfer(self):
        hosts = self.hosts(2)
        ranks = self.stream(hosts)
        hosts.cut(1)
        start = time.monotonic()
        results = self.finish(ranks)
        seconds = time.monotonic() - start
        # The sender counts from the last answer, the kernel in whole seconds.
        self.judge(results[0], 0, seconds, 8, "timeout: ", "progress", "write of 1048576 bytes")
        self.judge(results[1], 1, seconds, 8, "timeout: ", "progress")

    def test_process_killed_in_mid_transfer(self):
        for victim in (0, 1):
            with self.subTest(victim=victim):
                hosts = self.hosts(2)
                ranks = self.stream(hosts)
                ranks[victim].send_signal(signal.SIGKILL)
                start = time.monotonic()
                results = self.finish(ranks)
                self.assertEqual(results[victim][0], -signal.SIGKILL)
                self.judge(results[1 - victim], 1 - victim, time.monotonic() - start, 3, "remote error: ")
                self.assertRegex(results[1 - victim][1], "clos|reset")

    def test_process_stopped_in_mid_transfer(self):
        hosts = self.hosts(2)
        ranks = self.stream(hosts)
        ranks[1].send_signal(signal.SIGSTOP)
        start = time.monotonic()
        result = self.finish(ranks[:1])[0]
        seconds = time.monotonic() - start
        ranks[1].kill()
        self.finish(ranks[1:])
        self.judge(result, 0, seconds, 6, "timeout: ", "it gave no answer within 3.0 s", "write of 1048576 bytes")

    def test_host_that_never_comes(self):
        hosts = self.hosts(2)
        rank = hosts.start_rank(0, MSCCLPP_TIMEOUT="2")
        (status, text), = self.finish([rank])
        self.assertEqual(status, 1, text)
        self.assertIn("timeout: rank 0: ", text)
        self.assertIn("had not joined rank 0 at 10.9.0.1:5000: 1; do they run", text)


class OnHosts(Case):
    def start_on(self, counts, *arguments, program="collectives", **environment):
        """Ranks, of which each host has its count. A variable that is a list has a value for each host."""
        namespaces = self.namespaces = self.hosts(len(counts))
        places = [(host, local) for host, count in enumerate(counts) for local in range(count)]
        return [namespaces.start(host, option(program), *arguments,
                                 MSCCLPP_RANK=str(rank), MSCCLPP_WORLD_SIZE=str(len(places)),
                                 MSCCLPP_LOCAL_RANK=str(local), MSCCLPP_MASTER_ADDR=namespaces.addresses[0],
                                 **{name: value[host] if isinstance(value, list) else value
                                    for name, value in environment.items()})
                for rank, (host, local) in enumerate(places)]

    def run_on(self, counts, nodes, calls, *arguments, **environment):
        """What the ranks print."""
        results = self.finish(self.start_on(counts, *arguments, **environment))
        for rank, (status, text) in enumerate(results):
            self.assertEqual(status, 0, text)
            self.assertIn(f"rank {rank} of {nodes} nodes: {calls} calls, 0 wrong", text)
        return [text for _, text in results]

    def kill_last(self, ranks):
        """Once all are at work; whoever is left ends soon, and names it."""
        for rank in ranks:
            self.assertIn("begins", rank.stdout.readline())
        time.sleep(1)
        ranks[-1].kill()
        start = time.monotonic()
        results = self.finish(ranks)
        self.assertLess(time.monotonic() - start, 15)
        for rank, (status, text) in enumerate(results[:-1]):
            self.assertEqual(status, 1, text)
            self.assertIn(f"rank {rank}: ", text)
            self.assertRegex(text, rf"rank {len(ranks) - 1}\b")


class Collectives(OnHosts):
    """Calls of the host on ranks of several hosts: memory within a host, TCP between them."""

    def test_two_hosts_of_two(self):
        self.run_on([2, 2], 2, 54)

    def test_three_hosts_of_one(self):
        self.run_on([1, 1, 1], 3, 54)

    def test_hosts_of_two_and_one(self):
        self.run_on([2, 1], 3, 54)

    def test_three_hosts_by_each_schedule(self):
        for schedule in ("ring", "doubling", "halving"):
            self.run_on([1, 1, 1], 3, 54, MSCCLPP_NODE_SCHEDULE=schedule)


class Outlive(OnHosts):
    """All-reduces over hosts, during which something happens to one rank, the last one."""

    def begin(self, counts, calls, **environment):
        ranks = self.start_on(counts, "outlive", str(calls), **environment)
        for rank in ranks:
            self.assertIn("begins", rank.stdout.readline())
        time.sleep(0.5)
        return ranks

    def judge(self, results, since, most, enough):
        """All of these have failed within so many seconds and went on without the culprit, which `enough` of them name."""
        naming = 0
        for rank, (status, text) in enumerate(results):
            self.assertEqual(status, 0, text)
            self.assertIn(f"rank {rank} of {len(results)}: 20 calls, 0 wrong", text)
            at, why = re.search(r"failed at ([\d.]+): (.*)", text).groups()
            naming += bool(re.search(rf"rank {len(results)}\b", why))
            self.assertLess(float(at) - since, most, text)
        self.assertGreaterEqual(naming, enough, results)

    def test_process_killed(self):
        ranks = self.begin([2, 1, 1], 10**6)
        since = time.time()
        ranks[3].kill()
        self.judge(self.finish(ranks)[:3], since, 1, enough=3)

    def test_host_cut_off(self):
        """Which is too few to go on by itself. A rank may wait for another that waits for it."""
        ranks = self.begin([2, 1], 10**6, MSCCLPP_KERNEL_TIMEOUT="2", MSCCLPP_TIMEOUT="3")
        since = time.time()
        self.namespaces.cut(1)
        *left, (status, text) = self.finish(ranks)
        self.judge(left, since, 5, enough=1)
        self.assertEqual(status, 1, text)
        self.assertIn("failed at", text)

    def test_process_stopped_for_a_while(self):
        """By less than a wait may take, 10 s."""
        ranks = self.begin([2, 1], 100)
        ranks[2].send_signal(signal.SIGSTOP)
        time.sleep(5)
        ranks[2].send_signal(signal.SIGCONT)
        for rank, (status, text) in enumerate(self.finish(ranks)):
            self.assertEqual(status, 0, text)
            self.assertIn(f"rank {rank} of 3: 100 calls, 0 wrong", text)


class Domains(Outlive):
    """Hosts that a simulated NVLink joins: their ranks map each other's memory, and count as those of one host."""

    FABRIC = {"MSCCLPP_SIM_FABRIC": "rack"}
    test_host_cut_off = test_process_stopped_for_a_while = None

    def check(self, counts, calls, *arguments):
        for text in self.run_on(counts, 1, calls, *arguments, **self.FABRIC):
            self.assertIn("reaches all ranks' memory", text)

    def test_two_hosts_of_two(self):
        self.check([2, 2], 51)

    def test_three_hosts_of_two(self):
        self.check([2, 2, 2], 34, "small")

    def test_two_hosts_and_one_outside(self):
        for text in self.run_on([1, 1, 2], 2, 54, MSCCLPP_SIM_FABRIC=["rack", "rack", ""]):
            self.assertIn("reaches other hosts by tcp", text)

    def test_turned_off(self):
        """On one host only, which the others then do without."""
        self.run_on([2, 1, 1], 4, 54, **self.FABRIC, MSCCLPP_FABRIC=["1", "0", "0"])
        self.run_on([2, 1, 1], 2, 54, **self.FABRIC, MSCCLPP_FABRIC=["0", "1", "1"])

    def test_messages(self):
        self.run_on([2, 2], 1, 6, "messages", **self.FABRIC)
        self.run_on([1, 1, 2], 2, 6, "messages", MSCCLPP_SIM_FABRIC=["rack", "rack", ""])

    def test_plans_whose_buffers_are_mapped(self):
        for text in self.run_on([2, 2], 1, 6, *Programs.TWO_HOSTS, **self.FABRIC):
            self.assertEqual(text.count("by two_hosts_"), 6, text)

    def test_process_killed(self):
        """On another host than all others that map its memory."""
        ranks = self.begin([2, 1, 1], 10**6, **self.FABRIC)
        since = time.time()
        ranks[3].kill()
        self.judge(self.finish(ranks)[:3], since, 1, enough=3)


class Types(OnHosts):
    """Every collective by every type and operation on 2, 3 and 4 hosts, in place and apart. Hosts of two ranks have one
    half of the types and hosts of four the other; with --whole all have all of them."""

    limit = 200
    WHOLE = "--whole" in sys.argv
    REDUCING = ("allreduce", "reducescatter", "reduce")
    MOVING = ("allgather", "alltoall", "broadcast", "gather", "scatter", "sendrecv")
    OPERATIONS = ("sum", "prod", "min", "max", "avg")
    TYPES = ("float32", "float64", "float16", "bfloat16", "float8_e4m3", "float8_e5m2", "int8", "uint8", "int32", "uint32",
             "int64", "uint64")
    ALL = {*itertools.product(REDUCING, OPERATIONS, TYPES), *itertools.product(MOVING, ("move",), TYPES)}

    def types(self, hosts, each, part, **environment):
        """What was called; each of it on every rank, and nothing was wrong."""
        types = self.TYPES if self.WHOLE else self.TYPES[part - 1::2]
        wanted = {call for call in self.ALL if call[2] in types}
        # Of the first type three counts, of others one; in place and apart.
        calls = sum(6 if call[2] == types[0] else 2 for call in wanted)
        begin = time.monotonic()
        # The more ranks share the processors, the longer a round takes, and the fewer there are.
        texts = self.run_on([each] * hosts, hosts, calls, "types" if self.WHOLE else f"types={part}/2",
                            MSCCLPP_ROUND_BYTES=str(hosts * each * 16384), **environment)
        ran = {tuple(found) for found in re.findall(r"^(\w+) (\w+) of (\w+): [26] calls$", texts[0], re.M)}
        self.assertEqual(ran, wanted)
        moves = sum(call[1] == "move" for call in ran)
        wrong = sum(int(count) for text in texts for count in re.findall(r"^rank .* calls, (\d+) wrong$", text, re.M))
        print(f"| {hosts} × {each} | {len(types)} | {len(ran) - moves} | {moves} | {calls} | {wrong} | "
              f"{time.monotonic() - begin:.1f} |", flush=True)
        return ran

    def check(self, hosts, **environment):
        print("\n| hosts × ranks | types | reductions × operations × types | moves × types | calls of a rank | wrong | s |\n"
              "|---|---:|---:|---:|---:|---:|---:|", flush=True)
        ran = self.types(hosts, 2, 1, **environment)
        ran |= self.types(hosts, 4, 2)
        self.assertEqual(ran, self.ALL)

    def test_two_hosts(self):
        self.check(2)

    def test_three_hosts(self):
        # Hosts of two reduce in two exchanges, hosts of four in one.
        self.check(3, MSCCLPP_MESSAGE_BYTES="0")

    def test_four_hosts(self):
        self.check(4, MSCCLPP_MESSAGE_BYTES="0")


class Messages(OnHosts):
    """Groups of messages, between all ranks and the own one, several of each pair."""

    def test_two_hosts_of_two(self):
        self.run_on([2, 2], 2, 6, "messages")

    def test_three_hosts_of_one(self):
        self.run_on([1, 1, 1], 3, 6, "messages")

    def test_hosts_of_two_and_one(self):
        self.run_on([2, 1], 3, 6, "messages")

    def test_in_small_pieces_over_several_sockets(self):
        self.run_on([1, 1], 2, 6, "messages", MSCCLPP_TCP_SOCKETS="3")

    def test_process_killed_in_mid_message(self):
        """Whoever waits for its messages, and whoever has none with it but waits for one that has, is told."""
        ranks = self.start_on([2, 2], "forever", MSCCLPP_TIMEOUT="10")
        self.kill_last(ranks)


class Experts(OnHosts):
    """Tokens to their experts: once to each node by TCP, within a node by mapped memory."""

    def check(self, counts, nodes):
        self.run_on(counts, nodes, 20, program="experts")

    def test_two_hosts_of_two(self):
        self.check([2, 2], 2)

    def test_three_hosts_of_two(self):
        self.check([2, 2, 2], 3)

    def test_hosts_of_two_and_one(self):
        self.check([2, 1], 3)

    def test_process_killed_between_its_tokens(self):
        ranks = self.start_on([2, 2], "forever", program="experts", MSCCLPP_TIMEOUT="10")
        self.kill_last(ranks)


class Graphs(OnHosts):
    """All collectives and messages in one graph, replayed with other data and beside other calls: 9 collectives, the
    messages and the call beside them in 9 turns, of two counts."""

    def test_two_hosts_of_two(self):
        self.run_on([2, 2], 2, 198, "graphs")

    def test_three_hosts_of_two(self):
        self.run_on([2, 2, 2], 3, 198, "graphs")

    def test_hosts_of_two_and_one(self):
        self.run_on([2, 1], 3, 198, "graphs")


class Nccl(OnHosts):
    """NCCL's functions, without NCCL's own library."""

    def start_nccl(self, counts, *arguments):
        namespaces = self.hosts(len(counts))
        script = [sys.executable, "-B", os.path.join(os.path.dirname(os.path.abspath(__file__)), "nccl_rank.py"),
                  option("nccl")]
        (status, text), = self.finish([namespaces.start(0, *script, "id")])
        self.assertEqual(status, 0, text)
        places = [(host, local) for host, count in enumerate(counts) for local in range(count)]
        return [namespaces.start(host, *script, text.split()[-1], str(rank), str(len(places)), str(local), *arguments,
                                 MSCCLPP_TIMEOUT="30")
                for rank, (host, local) in enumerate(places)]

    def check(self, counts):
        for rank, (status, text) in enumerate(self.finish(self.start_nccl(counts))):
            self.assertEqual(status, 0, text)
            self.assertIn(f"rank {rank}: 9 calls, 0 wrong", text)

    def test_two_hosts_of_two(self):
        self.check([2, 2])

    def test_hosts_of_two_and_one(self):
        self.check([2, 1])

    def test_process_killed_in_mid_message(self):
        ranks = self.start_nccl([1, 1], "loop")
        for rank in ranks:
            self.assertIn("begins", rank.stdout.readline())
        time.sleep(1)
        ranks[1].kill()
        status, text = self.finish(ranks)[0]
        self.assertEqual(status, 1, text)
        self.assertRegex(text, r"rank 1\b")


class OfTorch(Case):
    """torch.distributed's backend mscclpp, whose ranks meet by PyTorch's store at MASTER_ADDR."""

    limit = 200

    @classmethod
    def setUpClass(cls):
        """Compiles what PyTorch loads, where that has not been done: no rank waits for it."""
        subprocess.run([option("torch"), "-B", "-c", "import mscclpp.torch, mscclpp.ops; mscclpp.torch.build()"],
                       env={**os.environ, **cls.environment()}, check=True)

    @staticmethod
    def environment():
        kept = {name: os.environ[name] for name in ("MSCCLPP_CXX", "MSCCLPP_CACHE_DIR") if name in os.environ}
        return {"PYTHONPATH": option("package"), "MSCCLPP_DEVICE": "sim", "OMP_NUM_THREADS": "1", **kept}

    def start_torch(self, counts, what):
        namespaces = self.hosts(len(counts))
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_rank.py")
        places = [(host, local) for host, count in enumerate(counts) for local in range(count)]
        # gloo asks for the address of the host's name, which is the same here on all hosts.
        ranks = [namespaces.start(host, option("torch"), "-B", script, what, **self.environment(), RANK=str(rank),
                                  WORLD_SIZE=str(len(places)), LOCAL_RANK=str(local),
                                  MASTER_ADDR=namespaces.addresses[0], MASTER_PORT=str(PORT), GLOO_SOCKET_IFNAME="eth0")
                 for rank, (host, local) in enumerate(places)]
        for rank in ranks:
            self.addCleanup(rank.kill)   # those that train do not end by themselves
        return ranks

    def check(self, counts, compared, what="calls"):
        results = self.finish(self.start_torch(counts, what))
        for rank, (status, text) in enumerate(results):
            self.assertEqual(status, 0, text)
            self.assertIn(f"rank {rank} of {len(results)}: {compared} compared, 0 wrong", text)


class Torch(OfTorch):
    def test_two_hosts_of_two(self):
        self.check([2, 2], 157)

    def test_hosts_of_two_and_one(self):
        self.check([2, 1], 145)

    def killed(self, counts, victim):
        """While all train, and none is known to be in a barrier or between two calls."""
        ranks = self.start_torch(counts, "steps")
        for rank in ranks:
            seen = []
            while not any("begins" in line for line in seen):   # PyTorch has something to tell before
                seen.append(rank.stdout.readline())
                self.assertNotEqual(seen[-1], "", seen)
        time.sleep(0.5)
        ranks[victim].kill()
        start = time.monotonic()
        results = self.finish(ranks)
        self.assertLess(time.monotonic() - start, 10, results)
        self.assertEqual(results.pop(victim)[0], -signal.SIGKILL)
        for status, text in results:
            self.assertEqual(status, 1, text)
            self.assertRegex(text, r"(?ms)^DistBackendError: .*"
                             rf"(rank {victim} is gone|TCP connection to rank {victim} \([^)]*\) has failed)")

    def test_process_killed_in_mid_step(self):
        self.killed([2, 2], 3)

    def test_process_killed_that_is_alone_on_its_host(self):
        self.killed([2, 1], 2)


class TorchPrograms(OfTorch):
    """What stands on the calls; on uneven hosts in a test of its own, since each takes a while."""

    def test_two_hosts_of_two(self):
        self.check([2, 2], 47, "programs")


class TorchUneven(OfTorch):
    def test_hosts_of_two_and_one(self):
        self.check([2, 1], 32, "programs")


class Programs(OnHosts):
    """The same calls by plans of two hosts: chosen on two hosts of two ranks, elsewhere refused, with the reason."""

    TWO_HOSTS = [os.path.join(option("plans") or "", f"two_hosts_{name}.json") for name in ("allreduce", "allgather")]
    # Of the Python package; test/python/language_test.py renews it.
    PACKAGE = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "allreduce_multi_nodes.json")]

    def chosen(self, counts, nodes, *words, plans=None):
        plans = plans or self.TWO_HOSTS
        texts = self.run_on(counts, nodes, 3 * len(plans), *plans)
        for text in texts:
            for word in words:
                self.assertEqual(text.count(word), 3, text)

    def test_on_their_hosts(self):
        self.chosen([2, 2], 2, "allreduce by two_hosts_allreduce", "allgather by two_hosts_allgather")

    def test_a_plan_of_the_package(self):
        self.chosen([2, 2], 2, "allreduce by allreduce_multi_nodes", plans=self.PACKAGE)

    def test_on_other_hosts(self):
        apart = "it has a memory channel between rank 0 and rank 1, which are on different hosts"
        self.chosen([1, 1, 1, 1], 4, f"allreduce by two_level {apart}", f"allgather by two_level {apart}")

    def test_on_fewer_ranks(self):
        few = "it is for 4 ranks, the communicator has 3"
        self.chosen([1, 1, 1], 3, f"allreduce by two_level {few}", f"allgather by two_level {few}")


class Traffic(OnHosts):
    """What the hosts' network devices count during a collective, beside the data that its schedule sends: at most 1.05
    of that. The devices count all there is: the headers of Ethernet, IP and TCP (66 bytes a packet, which between
    namespaces may hold 64 KiB), acknowledgements, the transport's own headers, signals, and the ranks' meeting before
    and after. Of three tries the least counts: on a busy machine the kernel sends a packet of 64 KiB again now and then,
    a schedule what it sends too often every time."""

    # The larger buffer of a call: the data, or all ranks' parts of it. In two rounds.
    BYTES = 4608 << 10
    MOST = 1.05

    @staticmethod
    def bounds(hosts, each):
        """For each collective, in buffers: what one host sends or receives, and what all hosts send."""
        others = (hosts - 1) / hosts
        # Reductions over more than two hosts are in two exchanges: every host reduces one piece, then hands it on.
        twice = hosts > 2
        return {
            "allreduce": (2 * others, hosts * 2 * others),
            "allgather": (others, hosts * others),
            "reducescatter": (others, hosts * others),
            "broadcast": (hosts - 1, hosts - 1),
            "reduce": (2 * others if twice else 1, hosts * others + others if twice else 1),
            "alltoall": (each * others, hosts * each * others),
            "gather": (others, others),
            "scatter": (others, others),
            "sendrecv": (1, hosts),
        }

    def factors(self, hosts, each):
        """For each collective what was counted, in parts of its bounds."""
        texts = self.run_on([each] * hosts, hosts, 10, str(self.BYTES), "eth0", MSCCLPP_ROUND_BYTES=str(self.BYTES // 2))
        factors = {}
        for name, bounds in self.bounds(hosts, each).items():
            counts = [[int(count) for count in re.search(rf"^{name} sent (\d+) received (\d+)$", text, re.M).groups()]
                      for text in texts[::each]]
            found = (max(max(count) for count in counts), sum(sent for sent, _ in counts))
            factors[name] = [count / (self.BYTES * bound) for count, bound in zip(found, bounds)]
            # Less would be data that did not go this way.
            self.assertGreaterEqual(min(factors[name]), 1, name)
        return factors

    def check(self, hosts, each):
        least = self.factors(hosts, each)
        for _ in range(2):
            if max(max(factors) for factors in least.values()) <= self.MOST:
                break
            again = self.factors(hosts, each)
            least = {name: [min(pair) for pair in zip(least[name], again[name])] for name in least}
        for name, factors in least.items():
            print(f"{hosts} hosts of {each}: {name}: {factors[0]:.4f} of the bound of the host with most to do, "
                  f"{factors[1]:.4f} of all hosts'")
            self.assertLessEqual(max(factors), self.MOST, name)

    def test_two_hosts_of_two(self):
        self.check(2, 2)

    def test_three_hosts_of_two(self):
        self.check(3, 2)

    def test_one_exchange_where_a_message_takes_long(self):
        texts = self.run_on([1, 1, 1], 3, 10, str(self.BYTES), "eth0", MSCCLPP_ROUND_BYTES=str(self.BYTES // 2),
                            MSCCLPP_MESSAGE_BYTES=str(1 << 30))
        for text in texts:
            sent, = re.search(r"^allreduce sent (\d+) ", text, re.M).groups()
            # All of it to both others; in two exchanges it is two thirds of that.
            self.assertGreaterEqual(int(sent), 2 * self.BYTES)


class Limits(OnHosts):
    """mscclpp-bench --limits on ranks of several hosts measures the network, and the library chooses by its file."""

    BYTES = 1 << 20

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="mscclpp-limits-")
        self.addCleanup(folder.cleanup)
        self.file = os.path.join(folder.name, "network.json")

    def measured(self, counts):
        results = self.finish(self.start_on(counts, "--device=sim", f"--limits={self.file}", program="bench"))
        for status, text in results:
            self.assertEqual(status, 0, text)
        with open(self.file, encoding="utf-8") as file:
            return json.load(file)

    def sent(self, figures, **parameters):
        """Bytes that the first of three hosts sends in an all-reduce where the network has such parameters."""
        with open(self.file, "w", encoding="utf-8") as file:
            json.dump({**figures, "parameters": {**figures["parameters"], **parameters}}, file)
        texts = self.run_on([1, 1, 1], 3, 10, str(self.BYTES), "eth0", MSCCLPP_MODEL=self.file,
                            MSCCLPP_ROUND_BYTES=str(self.BYTES))
        return int(re.search(r"^allreduce sent (\d+) ", texts[0], re.M).group(1))

    def test_two_hosts_of_two_measure_and_three_choose_by_it(self):
        figures = self.measured([2, 2])
        self.assertEqual(figures["network"], "tcp")
        found = figures["parameters"]
        # A message takes longer than what is only started, and no namespace carries 1,000 GB/s.
        self.assertGreater(found["message_us"], found["transfer_us"])
        self.assertLess(found["message_us"], 1e6)
        self.assertTrue(0.001 < found["rail_gbps"] < 1000, found)
        # All of it to both others in one exchange; two thirds of that in two.
        self.assertGreaterEqual(self.sent(figures, message_us=1e6), 2 * self.BYTES)
        self.assertLess(self.sent(figures, message_us=0), 1.7 * self.BYTES)

    def test_ranks_that_nobody_is_left_for(self):
        self.assertEqual(self.measured([2, 1, 1])["network"], "tcp")

    def test_a_file_that_cannot_be_right(self):
        with open(self.file, "w", encoding="utf-8") as file:
            json.dump({"version": 1, "network": "tcp", "parameters": {"message_us": 1, "transfer_us": 1,
                                                                      "rail_gbps": 0}}, file)
        for status, text in self.finish(self.start_on([1, 1], MSCCLPP_MODEL=self.file)):
            self.assertNotEqual(status, 0, text)
            self.assertIn("rail_gbps is 0; allowed is a number above 0", text)


class Plans(Case):
    """mscclpp-plan with two processes on each of two hosts: memory channels within, ports over TCP between them."""

    def check(self, name, elements, *arguments, **environment):
        hosts = self.hosts(2)
        plan = os.path.join(option("plans"), name)
        ranks = [hosts.start(rank // 2, option("plan"), "run", plan, "--device=sim", *arguments,
                             **{"MSCCLPP_RANK": str(rank), "MSCCLPP_WORLD_SIZE": "4",
                                "MSCCLPP_LOCAL_RANK": str(rank % 2), "MSCCLPP_MASTER_ADDR": hosts.addresses[0],
                                **environment}) for rank in range(4)]
        results = self.finish(ranks)
        for status, text in results:
            self.assertEqual(status, 0, text)
        self.assertIn(f"right: {elements} elements compared", results[0][1])

    def test_packets(self):
        self.check("two_hosts_allreduce.json", 4 * 2 * 4096, "--size=16K")

    def test_from_input_to_output(self):
        self.check("two_hosts_allgather.json", 4 * 2 * 4096, "--size=16K", "--iterations=20")

    def test_a_memory_channel_between_hosts_is_refused(self):
        hosts = self.hosts(2)
        plan = os.path.join(option("plans"), "gather.json")
        ranks = [hosts.start(rank, option("plan"), "run", plan, "--device=sim", MSCCLPP_RANK=str(rank),
                             MSCCLPP_WORLD_SIZE="2", MSCCLPP_LOCAL_RANK="0", MSCCLPP_MASTER_ADDR=hosts.addresses[0])
                 for rank in range(2)]
        for rank, (status, text) in enumerate(self.finish(ranks)):
            self.assertEqual(status, 2, text)
            self.assertIn("it has a memory channel between rank 0 and rank 1, which are on different hosts; use a port "
                          "channel there", text)


# What a transport is compared with: one program that only receives messages of 4 MiB, one that only sends such, for
# argv[2] seconds.
PLAIN_RECEIVER = """
import socket
listener = socket.create_server(("", 5201))
print("listens", flush=True)
connection, _ = listener.accept()
message = memoryview(bytearray(4 << 20))
at = 0
while count := connection.recv_into(message[at:]):
    at = (at + count) % len(message)
connection.sendall(b".")
"""
PLAIN_SENDER = """
import os, socket, sys, time
connection = socket.create_connection((sys.argv[1], 5201))
data = os.urandom(4 << 20)   # zeros would be one page
start = time.monotonic()
sent = 0
while time.monotonic() - start < float(sys.argv[2]):
    connection.sendall(data)
    sent += len(data)
connection.shutdown(socket.SHUT_WR)
connection.recv(1)
print(sent / (time.monotonic() - start))
"""


def plain_socket_rate(hosts, seconds):
    """In GB/s, as the others."""
    receiver = hosts.start(1, sys.executable, "-c", PLAIN_RECEIVER)
    receiver.stdout.readline()
    sender = hosts.start(0, sys.executable, "-c", PLAIN_SENDER, hosts.addresses[1], str(seconds))
    text = sender.communicate(timeout=LIMIT)[0]
    receiver.communicate(timeout=LIMIT)
    return float(text) / 1e9


def iperf3_rate(hosts, seconds):
    server = hosts.start(1, "iperf3", "-s", "-1")
    time.sleep(0.3)
    client = hosts.start(0, "iperf3", "-c", hosts.addresses[1], "-t", str(seconds), "-J")
    report = json.loads(client.communicate(timeout=LIMIT)[0])
    server.communicate(timeout=LIMIT)
    return report["end"]["sum_received"]["bits_per_second"] / 8e9


def own_result(hosts, pattern, *arguments):
    """The number that rank 0 prints after `pattern`."""
    extra = {name: value for name, value in os.environ.items() if name.startswith("MSCCLPP_TCP_")}
    ranks = [hosts.start_rank(i, *arguments, **extra) for i in range(2)]
    texts = [rank.communicate(timeout=LIMIT)[0] for rank in ranks]
    return float(re.search(pattern, texts[0])[1])


def compare(hosts, seconds, size, name, rate, most=5):
    """This library's part of the other's, of the medians. In turn, so that what else the machine does hits both; since
    it does not hit both alike, there are up to `most` turns where five do not reach LEAST."""
    ours, theirs, ratio = [], [], 0
    while len(ours) < 5 or (len(ours) < most and ratio < LEAST):
        theirs.append(rate(hosts, seconds))
        ours.append(own_result(hosts, r"tcp (\d+) bytes/s", "--action=stream", f"--seconds={seconds}",
                               f"--bytes={size}") / 1e9)
        ratio = statistics.median(ours) / statistics.median(theirs)
        print(f"{name} {theirs[-1]:.2f} GB/s, this library by {size} {ours[-1]:.2f} GB/s, "
              f"{ours[-1] / theirs[-1]:.2f} of it", flush=True)
    print(f"medians: {name} {statistics.median(theirs):.2f} GB/s, this library by {size} "
          f"{statistics.median(ours):.2f} GB/s, {ratio:.2f} of it", flush=True)
    return ratio


class Speed(Case):
    def test_large_messages_beside_a_plain_socket(self):
        hosts = self.hosts(2)
        for size in ("1M", "4M", "16M"):
            self.assertGreaterEqual(compare(hosts, 0.5, size, "a plain socket", plain_socket_rate, 15), LEAST, size)


def speed(seconds):
    hosts = Hosts(2)
    try:
        others = [("a plain socket", plain_socket_rate)]
        if shutil.which("iperf3"):
            others.append(("iperf3", iperf3_rate))
        else:
            print("no iperf3 here; on Debian install iperf3")
        ratios = [compare(hosts, seconds, "4M", name, rate) for name, rate in others]
        for size, rounds in (("8", 4000), ("4K", 4000), ("64K", 1000), ("1M", 200)):
            trips = [own_result(hosts, r"tcp ([\d.]+) us", "--action=echo", f"--bytes={size}", f"--rounds={rounds}")
                     for _ in range(5)]
            print(f"there and back with {size}: {statistics.median(trips):.1f} us (medians of {min(trips):.1f} to "
                  f"{max(trips):.1f})", flush=True)
    finally:
        hosts.close()
    return 0 if min(ratios) >= LEAST else 1


if __name__ == "__main__":
    REASON = why_not()
    if REASON:
        print(f"skipped: {REASON}")
        sys.exit(77)
    for given in sys.argv[1:]:
        if given.startswith("--speed"):
            sys.exit(speed(float(given.split("=")[1]) if "=" in given else 3))
    unittest.main(argv=[sys.argv[0], *[given for given in sys.argv[1:] if not given.startswith("--")]])
