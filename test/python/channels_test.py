# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Channels and what they are made of, used by kernels of one's own: what arrives, what is refused, and what outlives what."""

import gc
import importlib.util
import pathlib
import threading
import time
import unittest

import mscclpp
import numpy as np
from mscclpp.errors import Aborted, InternalError, InvalidUsage, Timeout
from support import finish, run_processes, script, start_ranks

HERE = pathlib.Path(__file__).resolve().parent
EXAMPLES = HERE.parents[1] / "examples" / "python_channels"
COUNT = 1000  # floats of one exchange
BYTES = 4 * COUNT


def compiled():
    """The module of channel_kernels.cu."""
    return mscclpp.compile_native("channel_kernels", str(HERE / "channel_kernels.cu"))


class Machine:
    """A rank with a stream and the kernels."""

    def __init__(self, group):
        self.group = group
        self.communicator = group.communicator
        self.kernels = compiled()
        self.stream = mscclpp.Stream(group.device)

    def start(self, kernel, what, *numbers):
        """By what a kernel takes of a channel, or the like."""
        raw = what.device_handle().raw
        getattr(self.kernels, kernel)(raw, self.group.device.ordinal, self.stream.handle, *numbers)

    def run(self, kernel, what, *numbers):
        """Raises what the kernel reports."""
        self.start(kernel, what, *numbers)
        self.group.synchronize(self.stream.handle)

    def buffer(self, count=2 * COUNT, dtype="float32"):
        """Memory and an array over it."""
        buffer = mscclpp.GpuBuffer(count, dtype, self.group.device)
        return buffer, np.from_dlpack(buffer)

    def register(self, buffer):
        """As memory for kernels alone."""
        return self.communicator.register_memory(buffer.data_ptr(), buffer.nbytes)


class Case(unittest.TestCase):
    """Ranks as threads; what they raise fails the test."""

    @classmethod
    def setUpClass(cls):
        if importlib.util.find_spec("pybind11") is None:
            raise unittest.SkipTest("there is no pybind11")
        compiled()

    def ranks(self, count, main, **how):
        """What each rank's main(Machine) returns."""
        return mscclpp.run_ranks(count, lambda group: main(Machine(group)), device="sim", **how)

    def refused(self, kind, words, call, *arguments, **named):
        """Calls it; it raises this, in these words."""
        with self.assertRaises(kind) as caught:
            call(*arguments, **named)
        for word in [words] if isinstance(words, str) else words:
            self.assertIn(word, str(caught.exception))


def exchange_with(machine, kernel, channels, values, start):
    """Puts own numbers to each peer, one after the other, and compares what has come."""
    for turn, (peer, channel) in enumerate(channels.items()):
        values[:COUNT] = start + 10 * turn + machine.group.my_rank
        machine.group.barrier()
        machine.run(kernel, channel, BYTES, 0, BYTES)
        assert (values[COUNT:] == start + 10 * turn + peer).all(), values
        machine.group.barrier()


class MemoryChannels(Case):
    def test_puts_and_signals(self):
        def main(machine):
            peers = [rank for rank in range(2) if rank != machine.group.my_rank]
            buffer, values = machine.buffer()
            channels = machine.group.make_memory_channels(buffer, peers)
            for start in range(3):
                exchange_with(machine, "put_by_threads", channels, values, start)
            [handle] = [channel.device_handle() for channel in channels.values()]
            self.assertEqual((handle.src, handle.src_bytes), (buffer.data_ptr(), buffer.nbytes))
            self.assertEqual((handle.dst_bytes, handle.semaphore.peer), (buffer.nbytes, peers[0]))
            self.assertNotEqual(handle.dst, handle.src)
            return len(handle.raw)

        self.assertEqual(len(set(self.ranks(2, main))), 1)

    def test_each_to_each(self):
        def main(machine):
            own = machine.group.my_rank
            buffer, values = machine.buffer(4)
            channels = machine.group.make_memory_channels(buffer, [rank for rank in range(4) if rank != own])
            values[own] = own + 1
            streams = [mscclpp.Stream(machine.group.device) for _ in channels]
            for stream, channel in zip(streams, channels.values()):
                raw = channel.device_handle().raw
                machine.kernels.put_by_threads(raw, machine.group.device.ordinal, stream.handle, 4 * own, 4 * own, 4)
            for stream in streams:
                machine.group.synchronize(stream.handle)
            machine.group.barrier()
            return values.tolist()

        self.assertEqual(self.ranks(4, main), [[1, 2, 3, 4]] * 4)

    def test_packets(self):
        def main(machine):
            peer = 1 - machine.group.my_rank
            (buffer, values), (scratch, _) = machine.buffer(), machine.buffer(4 * COUNT)
            channel = machine.group.make_memory_channels_with_scratch(buffer, scratch, [peer])[peer]
            self.assertEqual(channel.device_handle().packet_buffer, scratch.data_ptr())
            values[:COUNT] = np.arange(COUNT) + peer
            machine.run("put_packets", channel, BYTES)
            self.assertTrue((values[COUNT:] == np.arange(COUNT) + machine.group.my_rank).all())
            machine.group.barrier()

        self.ranks(2, main)

    def test_signals_alone(self):
        def main(machine):
            channel = mscclpp.BaseMemoryChannel(machine.communicator.build_semaphore(1 - machine.group.my_rank, tag=3))
            machine.run("signal" if machine.group.my_rank == 0 else "wait", channel)
            machine.group.barrier()

        self.ranks(2, main)

    def test_processes(self):
        code = f"""
            import sys
            sys.path.insert(0, {str(HERE)!r})
            from channels_test import Machine, exchange_with
            import mscclpp
            machine = Machine(mscclpp.CommGroup())
            peer = 1 - machine.group.my_rank
            buffer, values = machine.buffer()
            exchange_with(machine, "put_by_threads", machine.group.make_memory_channels(buffer, [peer]), values, 1)
            service = mscclpp.ProxyService(machine.communicator)
            connections = machine.group.make_connection([peer])
            channels = machine.group.make_port_channels(service, buffer, connections)
            service.start_proxy()
            exchange_with(machine, "put_by_proxy", channels, values, 2)
        """
        run_processes(code, 2)

    def test_what_it_is_made_of_must_fit(self):
        def main(machine):
            own, peer = machine.group.my_rank, 1 - machine.group.my_rank
            communicator = machine.communicator
            self.refused(InvalidUsage, [f"rank {own}", "itself"], communicator.build_semaphore, own)
            self.refused(InvalidUsage, f"rank {own}", communicator.build_semaphore, 2)
            self.refused(InvalidUsage, f"rank {own}", communicator.recv_memory, -1)
            buffer, _ = machine.buffer()
            self.refused(InvalidUsage, "", communicator.register_memory, buffer.data_ptr(), buffer.nbytes + 4096)
            self.refused(InvalidUsage, "", communicator.register_memory, np.zeros(8).ctypes.data, 64)
            self.refused(InvalidUsage, "", machine.group.make_memory_channels, np.zeros(8), [peer])
            semaphore, mine = communicator.build_semaphore(peer), machine.register(buffer)
            theirs = communicator.exchange_memory(mine)[peer]
            self.refused(InvalidUsage, f"memory received from rank {peer}", mscclpp.MemoryChannel, semaphore, mine, mine)
            self.refused(InvalidUsage, "this rank's own memory", mscclpp.MemoryChannel, semaphore, theirs, theirs)
            odd = communicator.register_memory(buffer.data_ptr() + 4, 400)
            self.refused(InvalidUsage, "aligned to 16 bytes", mscclpp.MemoryChannel, semaphore, theirs, odd)
            self.refused(
                InvalidUsage, "aligned", mscclpp.MemoryChannel, semaphore, theirs, mine, packet_buffer=buffer.data_ptr() + 8
            )
            with self.assertRaises(TypeError):
                mscclpp.MemoryChannel(None, theirs, mine)
            # Only the memory that it has: a kernel refuses the rest.
            channel = mscclpp.MemoryChannel(semaphore, theirs, mine)
            self.refused(InvalidUsage, f"rank {own}", machine.run, "put_by_threads", channel, buffer.nbytes, 0, 4)
            # A kernel's handle is not any bytes.
            self.refused(ValueError, "another handle", machine.run, "put_by_proxy", channel, 0, 0, 4)
            machine.group.barrier()

        self.ranks(2, main)


class Memory(Case):
    def test_what_it_says_of_itself(self):
        def main(machine):
            own, peer = machine.group.my_rank, 1 - machine.group.my_rank
            buffer, values = machine.buffer()
            values[0] = own + 7
            mine = machine.communicator.register_memory(buffer.data_ptr(), 400, [mscclpp.Transport.tcp])
            self.assertEqual((mine.data(), mine.size(), mine.rank, mine.reach), (buffer.data_ptr(), 400, own, "own memory"))
            self.assertEqual(mine.device, machine.group.device)
            theirs = machine.communicator.exchange_memory(mine)
            self.assertEqual([each.rank for each in theirs], [0, 1])
            self.assertIn(mscclpp.Transport.tcp, theirs[peer].transports())
            # Its bytes may go by any other way.
            machine.group.send(mine.serialize(), peer)
            there = mscclpp.RegisteredMemory.deserialize(machine.group.recv(peer), machine.group.device)
            self.assertEqual((there.rank, there.size()), (peer, 400))
            self.refused(InvalidUsage, "", there.serialize)
            self.refused(InvalidUsage, "", mscclpp.RegisteredMemory.deserialize, b"nonsense", machine.group.device)
            self.assertTrue(machine.communicator.reaches(peer) and machine.communicator.lines_arrive_whole())
            machine.group.barrier()

        self.ranks(2, main)

    def test_windows(self):
        def main(machine):
            own = machine.group.my_rank
            (buffer, values), (out, found) = machine.buffer(16, "int32"), machine.buffer(4, "int32")
            values[0] = own + 5
            window = mscclpp.MemoryWindow(machine.communicator, buffer.data_ptr(), buffer.nbytes)
            handle = window.device_handle()
            self.assertEqual((handle.rank, handle.size, handle.bytes, handle.multicast), (own, 3, 64, 0))
            self.assertEqual((handle.bases[own], len(handle.bases)), (buffer.data_ptr(), 3))
            self.assertEqual((window.data(), window.size()), (buffer.data_ptr(), 64))
            self.assertEqual([each.rank for each in window.memories()], [0, 1, 2])
            machine.group.barrier()
            machine.run("collect", window, out.data_ptr())
            self.assertEqual(found.tolist(), [5, 6, 7, 0])
            # Of some of the ranks, in their own order.
            if own != 1:
                some = mscclpp.MemoryWindow(machine.communicator, buffer.data_ptr(), 64, [2, 0])
                machine.run("collect", some, out.data_ptr())
                self.assertEqual(found.tolist()[:2], [7, 5])
            machine.group.barrier()
            sizes = [64, 64, 32]
            self.refused(
                InvalidUsage, "same size", mscclpp.MemoryWindow, machine.communicator, buffer.data_ptr(), sizes[own]
            )

        self.ranks(3, main)

    def test_arenas(self):
        def main(machine):
            own, peers = machine.group.my_rank, machine.communicator.size
            (buffer, values), (out, found) = machine.buffer(256, "int32"), machine.buffer(4, "int32")
            values[:] = 9
            sizes = [12, 200]
            self.assertEqual(mscclpp.SymmetricArena.room(sizes), 128 + 256)
            for memory in (0, buffer.data_ptr()):
                arena = mscclpp.SymmetricArena(machine.communicator, 1024, memory)
                self.assertEqual((arena.size, arena.used, arena.ranks), (1024, 0, list(range(peers))))
                first, second = arena.take("first", sizes[0]), arena.take("second", bytes=sizes[1], alignment=256)
                self.assertEqual((first.size(), second.size(), arena.used), (12, 200, 456))
                begin = arena.window.data()
                self.assertEqual((first.data(), second.data()), (begin, begin + 256))
                if memory != 0:
                    self.assertEqual((begin, values[0], values[255]), (memory, 0, 9))  # cleared as far as taken
                    values[0] = own + 5
                    machine.group.barrier()
                    machine.run("collect", first, out.data_ptr())
                    self.assertEqual(found.tolist(), [5, 6, 7, 0])
                self.refused(InvalidUsage, "568 are free", arena.take, "third", 569)
                self.refused(InvalidUsage, "same parts in the same order", arena.take, "third", 8 * (own + 1))
                self.assertEqual(arena.used, 456)
                machine.group.barrier()
            self.refused(InvalidUsage, "0 bytes", mscclpp.SymmetricArena, machine.communicator, 0)
            # A team in it outlives it, and so does what keeps a part.
            arena = mscclpp.SymmetricArena(machine.communicator, 1 << 20)
            team, part = mscclpp.Team(arena, blocks=1, packet_bytes=2 * 3 * BYTES), arena.take("part", 64)
            self.assertGreater(arena.used, 2 * 3 * BYTES)
            del arena
            numbers, sums = machine.buffer(COUNT)
            sums[:] = own + 1
            machine.run("sum_in_team", team, numbers.data_ptr(), COUNT)
            self.assertTrue((sums == 6).all())
            machine.group.barrier()
            machine.run("collect", part, out.data_ptr())
            self.assertEqual(found.tolist()[:3], [0, 0, 0])
            machine.group.barrier()
            # Of two ranks, in their own order.
            if own != 1:
                some = mscclpp.SymmetricArena(machine.communicator, 128, ranks=[2, 0]).take("some", 4)
                self.assertEqual((some.device_handle().rank, some.device_handle().size), (own == 0, 2))

        self.ranks(3, main)

    def test_teams(self):
        def main(machine):
            own = machine.group.my_rank
            buffer, values = machine.buffer(COUNT)
            values[:] = own + 1
            team = mscclpp.Team(machine.communicator, blocks=1, packet_bytes=2 * 3 * BYTES)
            self.assertEqual((team.rank, team.size, len(team.device_handle().workspaces)), (own, 3, 3))
            machine.run("sum_in_team", team, buffer.data_ptr(), COUNT)
            self.assertTrue((values == 6).all())
            machine.group.barrier()
            self.refused(InvalidUsage, "at least 1", mscclpp.Team, machine.communicator, 0)
            self.refused(InvalidUsage, "same", mscclpp.Team, machine.communicator, 1, packet_bytes=256 * (own + 1))

        self.ranks(3, main)

    def test_switch_channels(self):
        def main(machine):
            (buffer, values), (out, found) = machine.buffer(4), machine.buffer(4)
            values[:] = np.arange(4) + machine.group.my_rank
            channel = mscclpp.SwitchChannel(machine.communicator, buffer.data_ptr(), buffer.nbytes)
            handle = channel.device_handle()
            self.assertEqual((handle.rank, handle.own), (machine.group.my_rank, buffer.data_ptr()))
            self.assertEqual((handle.memory_bytes, handle.semaphore.ranks), (16, 3))
            machine.run("sum_by_switch", channel, out.data_ptr())
            self.assertEqual(found.tolist(), [3, 6, 9, 12])
            machine.group.barrier()

        self.ranks(3, main)


class PortChannels(Case):
    def test_over_each_transport(self):
        def main(machine):
            peer = 1 - machine.group.my_rank
            for transport in (None, mscclpp.Transport.memory, mscclpp.Transport.tcp):
                buffer, values = machine.buffer()
                service = mscclpp.ProxyService(machine.communicator, fifo_size=16, proxies=2)
                connections = machine.group.make_connection([peer], transport)
                self.assertEqual(connections[peer].peer, peer)
                wanted = transport or machine.communicator.transport_to(peer)
                self.assertEqual(connections[peer].transport, wanted)
                channels = machine.group.make_port_channels(service, buffer, connections)
                service.start_proxy()
                exchange_with(machine, "put_by_proxy", channels, values, 0)
                service.stop_proxy()
                handle = channels[peer].device_handle()
                self.assertEqual((handle.dst_bytes, handle.base.peer), (buffer.nbytes, peer))
                self.assertEqual(handle.base.fifo.size, 16)

        self.ranks(2, main)

    def test_made_step_by_step(self):
        def main(machine):
            own, peer = machine.group.my_rank, 1 - machine.group.my_rank
            (buffer, values), (scratch, found) = machine.buffer(COUNT), machine.buffer(COUNT)
            service = mscclpp.ProxyService(machine.communicator)
            connections = machine.group.make_connection([peer])
            number = service.add_semaphore(machine.group.make_semaphores(connections)[peer])
            memory = machine.group.register_memory_with_proxy(service, scratch, connections)
            self.assertEqual(sorted([number, *memory.values(), service.next_memory_id()]), [0, 0, 1, 2])
            source = service.add_memory(machine.register(buffer))
            channel = service.base_port_channel(number)
            self.assertEqual((channel.peer, channel.device_handle().semaphore_id), (peer, number))
            values[:] = own
            # Without a thread of the service: this one takes its steps.
            machine.start("put_named", channel, memory[peer], source, 0, BYTES)
            limit = time.monotonic() + 60
            while not machine.stream.idle() and time.monotonic() < limit:
                service.progress()
            machine.group.synchronize(machine.stream.handle)
            self.assertTrue((found == peer).all())
            machine.group.barrier()
            whole = machine.group.make_port_channels_with_scratch(service, buffer, scratch, connections)[peer]
            values[:] = own + 3
            service.start_proxy()
            machine.run("put_by_proxy", whole, 0, 0, BYTES)
            self.assertTrue((found == peer + 3).all())
            machine.group.barrier()
            service.stop_proxy()

        self.ranks(2, main)

    def test_connections_without_a_service(self):
        def main(machine):
            peer = 1 - machine.group.my_rank
            buffer, values = machine.buffer()
            connection = machine.communicator.connect(peer, mscclpp.Transport.memory, tag=1)
            memory = machine.group.register_tensor_with_connections(buffer, {peer: connection})
            values[:COUNT] = machine.group.my_rank
            connection.write(memory[peer], BYTES, memory[1 - peer], 0, BYTES)
            while connection.progress() < connection.posted():
                pass
            machine.group.barrier()
            self.assertTrue((values[COUNT:] == peer).all())
            self.refused(
                InvalidUsage, "", connection.write, memory[peer], BYTES + 4, memory[1 - peer], 0, BYTES
            )
            self.refused(InvalidUsage, "", connection.write, memory[1 - peer], 0, memory[1 - peer], 0, 4)
            machine.group.barrier()

        self.ranks(2, main)

    def test_what_it_is_made_of_must_fit(self):
        def main(machine):
            own, peer = machine.group.my_rank, 1 - machine.group.my_rank
            communicator = machine.communicator
            self.refused(InvalidUsage, f"rank {own}", communicator.connect, 2)
            for size in (0, 48):
                self.refused(InvalidUsage, "power of two", mscclpp.ProxyService, communicator, fifo_size=size)
            self.refused(InvalidUsage, "at least 1", mscclpp.ProxyService, communicator, proxies=0)
            service = mscclpp.ProxyService(communicator)
            self.refused(InvalidUsage, "no semaphore 0 in this service, which has 0", service.base_port_channel, 0)
            buffer, _ = machine.buffer()
            connections = machine.group.make_connection([peer])
            semaphore = service.build_and_add_semaphore(connections[peer])
            memory = machine.group.register_memory_with_proxy(service, buffer, connections)
            self.refused(InvalidUsage, "memory 7 as its target", service.port_channel, semaphore, 7, memory[own])
            # The own memory as the target, the peer's as the source.
            self.refused(InvalidUsage, f"rank {peer}", service.port_channel, semaphore, memory[own], memory[peer])
            with self.assertRaises(TypeError):
                service.build_and_add_semaphore(None)
            self.refused(InvalidUsage, "512", service.next_memory_id, 512)
            self.refused(InvalidUsage, "proxy 3", service.progress, 3)
            service.start_proxy()
            self.refused(InvalidUsage, "started already", service.start_proxy)
            self.refused(InvalidUsage, "thread of its own", service.progress)
            channel = service.port_channel(semaphore, memory[peer], memory[own])
            self.refused(InvalidUsage, f"rank {own}", machine.run, "put_by_proxy", channel, buffer.nbytes, 0, 4)
            service.stop_proxy()
            service.stop_proxy()  # harmless
            machine.group.barrier()

        self.ranks(2, main)


class Proxies(Case):
    def test_a_handler(self):
        def main(machine):
            seen = []

            def handler(trigger, position):
                seen.append((trigger.fst, trigger.snd, position))
                return mscclpp.ProxyAction.stop if trigger.fst == 1005 else None

            proxy = mscclpp.Proxy(machine.communicator, handler, fifo_size=4)
            self.assertEqual((proxy.fifo.size, proxy.running), (4, False))
            proxy.start()
            self.assertTrue(proxy.running)
            machine.run("push", proxy.fifo, 1000, 6)
            proxy.stop()
            self.assertEqual(seen, [(1000 + i, 7, i) for i in range(6)])
            # Again, from where it was.
            proxy.start()
            machine.run("push", proxy.fifo, 5, 2)
            proxy.stop()
            self.assertEqual(seen[6:], [(5, 7, 6), (6, 7, 7)])
            # By this thread.
            other = mscclpp.Proxy(machine.communicator, handler)
            machine.run("push", other.fifo, 1, 2)
            self.assertTrue(other.progress())
            self.assertFalse(other.progress())
            self.assertEqual(seen[8:], [(1, 7, 0), (2, 7, 1)])

        self.ranks(1, main)

    def test_a_handler_that_fails(self):
        def raises(trigger, _):
            raise KeyError(f"no {trigger.fst}")

        for handler, words in ((raises, "KeyError: 'no 9'"), (lambda *_: 3, "neither None nor a ProxyAction")):

            def main(machine, handler=handler, words=words):
                proxy = mscclpp.Proxy(machine.communicator, handler)
                proxy.start()
                machine.start("push", proxy.fifo, 9, 1)
                limit = time.monotonic() + 60
                while machine.communicator.fault() is None and time.monotonic() < limit:
                    machine.stream.idle()
                machine.stream.synchronize()
                self.refused(InternalError, ["proxy 0 has failed at trigger 0", words], machine.communicator.check_reports)
                proxy.stop()
                self.refused(InvalidUsage, "make a new one", proxy.start)

            self.ranks(1, main)
        with self.assertRaises(TypeError):
            self.ranks(1, lambda machine: mscclpp.Proxy(machine.communicator, None))

    def test_the_interpreter_ends_while_it_runs(self):
        code = f"""
            import sys
            sys.path.insert(0, {str(HERE)!r})
            from channels_test import Machine
            import mscclpp
            machine = Machine(mscclpp.CommGroup())
            service = mscclpp.ProxyService(machine.communicator)
            service.start_proxy()
            taken = []
            proxy = mscclpp.Proxy(machine.communicator, lambda trigger, _: taken.append(trigger.fst))
            proxy.start()
            machine.run("push", proxy.fifo, 0, 100)
            machine.start("push", proxy.fifo, 100, 100)
            machine.stream.synchronize()
        """
        [result] = finish(start_ranks(code, 1), 60)
        self.assertEqual(result, (0, "", ""))


class Ends(Case):
    """What outlives what, and what is told when something has ended."""

    def test_a_channel_keeps_what_it_needs(self):
        def main(machine):
            peer = 1 - machine.group.my_rank
            buffer, values = machine.buffer()
            channel = machine.group.make_memory_channels(buffer, [peer])[peer]
            service = mscclpp.ProxyService(machine.communicator)
            port = machine.group.make_port_channels(service, buffer, machine.group.make_connection([peer]))[peer]
            service.start_proxy()
            del service
            gc.collect()
            exchange_with(machine, "put_by_proxy", {peer: port}, values, 5)
            # Without a communicator there is nobody to tell of reports; the memory is there.
            bootstrap, ordinal, stream = machine.group.bootstrap, machine.group.device.ordinal, machine.stream
            raw = channel.device_handle().raw
            del port
            machine.group = machine.communicator = None
            gc.collect()
            values[:COUNT] = peer
            bootstrap.barrier()
            machine.kernels.put_by_threads(raw, ordinal, stream.handle, BYTES, 0, BYTES)
            stream.synchronize()
            self.assertTrue((values[COUNT:] == 1 - peer).all())
            bootstrap.barrier()
            del channel

        self.ranks(2, main)

    def test_a_proxy_that_goes_first_handles_what_was_pushed(self):
        def main(machine):
            seen = []
            proxy = mscclpp.Proxy(machine.communicator, lambda trigger, _: seen.append(trigger.fst))
            machine.run("push", proxy.fifo, 0, 300)
            proxy.start()
            del proxy
            self.assertEqual(seen, list(range(300)))

        self.ranks(1, main)

    def test_a_wait_for_nobody(self):
        def main(machine):
            peer = 1 - machine.group.my_rank
            channel = mscclpp.BaseMemoryChannel(machine.communicator.build_semaphore(peer))
            if machine.group.my_rank == 0:
                self.refused(Timeout, ["semaphore", "rank 1"], machine.run, "wait", channel)
            machine.group.barrier()

        self.ranks(2, main, limit=0.3)

    def test_after_abort(self):
        def main(machine):
            peer = 1 - machine.group.my_rank
            channel = mscclpp.BaseMemoryChannel(machine.communicator.build_semaphore(peer))
            if machine.group.my_rank == 0:
                later = threading.Timer(0.2, machine.communicator.abort)
                later.start()
                self.refused(Aborted, "", machine.run, "wait", channel)
                later.join()
                self.refused(Aborted, "", machine.run, "wait", channel)
            machine.group.barrier()

        self.ranks(2, main, limit=60)

    def test_the_peer_has_ended(self):
        code = f"""
            import os, sys
            sys.path.insert(0, {str(HERE)!r})
            from channels_test import Machine
            import mscclpp
            machine = Machine(mscclpp.CommGroup())
            peer = 1 - machine.group.my_rank
            buffer, _ = machine.buffer()
            channel = machine.group.make_memory_channels(buffer, [peer])[peer]
            machine.group.barrier()
            if peer == 0:
                os._exit(9)
            for call in (
                lambda: machine.run("put_by_threads", channel, 0, 0, 4),
                lambda: machine.communicator.build_semaphore(peer),
                lambda: machine.communicator.connect(peer),
            ):
                try:
                    call()
                except mscclpp.errors.RemoteError as error:
                    assert "rank 1" in str(error), error
                else:
                    raise AssertionError("nothing was raised")
        """
        begin = time.monotonic()
        results = finish(start_ranks(code, 2))
        self.assertEqual([status for status, _, _ in results], [0, 9], results)
        self.assertLess(time.monotonic() - begin, 20)

    def test_a_service_that_is_stopped(self):
        def main(machine):
            peer = 1 - machine.group.my_rank
            buffer, values = machine.buffer()
            service = mscclpp.ProxyService(machine.communicator)
            channels = machine.group.make_port_channels(service, buffer, machine.group.make_connection([peer]))
            service.start_proxy()
            service.stop_proxy()
            if machine.group.my_rank == 0:
                self.refused(Timeout, "rank 1", machine.run, "put_by_proxy", channels[peer], 0, 0, 4)
            machine.group.barrier()
            del values

        self.ranks(2, main, limit=0.3)


class Examples(unittest.TestCase):
    """Each rank says what it has compared."""

    def check(self, name, ranks):
        output = "".join(run_processes(script(EXAMPLES / name), ranks))
        for rank in range(2):
            self.assertRegex(output, rf"rank {rank}: .* is right\n")

    @unittest.skipUnless(importlib.util.find_spec("pybind11"), "there is no pybind11")
    def test_kernels_in_cuda(self):
        self.check("exchange.py", 1)

    @unittest.skipUnless(importlib.util.find_spec("triton"), "there is no Triton")
    def test_a_kernel_in_triton(self):
        self.check("triton_exchange.py", 2)


if __name__ == "__main__":
    unittest.main()
