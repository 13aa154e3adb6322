// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What ranks share, and what kernels of users take of it: registered memory, connections, semaphores, memory channels,
// switch channels, windows, arenas and teams. proxies.cpp has what needs a proxy.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "handles.hpp"
#include "mscclpp/host/connection.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/fused/symmetric_arena.hpp"
#include "mscclpp/host/memory.hpp"
#include "mscclpp/host/memory_channel.hpp"
#include "mscclpp/host/memory_window.hpp"
#include "mscclpp/host/port_semaphore.hpp"
#include "mscclpp/host/semaphore.hpp"
#include "mscclpp/host/switch_channel.hpp"
#include "mscclpp/host/team.hpp"

namespace mscclpp::python {
namespace {

using Ranks = std::vector<int>;
using Transports = std::vector<Transport>;

layout::WorkspaceRequirement requirementOf(std::uint32_t blocks, std::uint64_t packetBytes, std::uint64_t lineBytes,
                                           std::uint64_t stageBytes, bool multicast) {
  return {.blocks = blocks,
          .packetBytes = packetBytes,
          .lineBytes = lineBytes,
          .stageBytes = stageBytes,
          .multicast = multicast ? 1u : 0u};
}

TransportSet setOf(Transports const& several) {
  TransportSet set;
  for (auto const one : several) set = set | one;
  return set;
}

Transports listOf(TransportSet set) {
  Transports several;
  for (auto const one : allTransports) {
    if (set.has(one)) several.push_back(one);
  }
  return several;
}

void bindChannelHandles(nb::module_& module) {
  using layout::MemoryChannelHandle, layout::SemaphoreHandle, layout::SwitchChannelHandle,
      layout::SwitchSemaphoreHandle, layout::TeamHandle, layout::WindowHandle;
  HandleClass<SemaphoreHandle>(module, "SemaphoreHandle", "A kernel's DeviceHandle<MemoryDevice2DeviceSemaphore>.")
      .with<&SemaphoreHandle::inbound>("inbound", "Address of 8 bytes here: signals that arrived.")
      .with<&SemaphoreHandle::remoteInbound>("remote_inbound", "Address of the peer's `inbound`, as mapped here.")
      .with<&SemaphoreHandle::expected>("expected", "Address of 8 bytes here: signals waited for so far.")
      .with<&SemaphoreHandle::peer>("peer")
      .with<&SemaphoreHandle::id>("id", "Shown in reports.");
  HandleClass<MemoryChannelHandle>(module, "MemoryChannelHandle", "A kernel's DeviceHandle<MemoryChannel>.")
      .with<&MemoryChannelHandle::semaphore>("semaphore")
      .with<&MemoryChannelHandle::dst>("dst", "Address of the peer's memory, as mapped here.")
      .with<&MemoryChannelHandle::src>("src", "Address of this rank's memory.")
      .with<&MemoryChannelHandle::packetBuffer>("packet_buffer", "Address, or 0.")
      .with<&MemoryChannelHandle::dstBytes>("dst_bytes")
      .with<&MemoryChannelHandle::srcBytes>("src_bytes")
      .with<&MemoryChannelHandle::packetBytes>("packet_bytes");
  HandleClass<SwitchSemaphoreHandle>(module, "SwitchSemaphoreHandle", "A counter that all ranks count up.")
      .with<&SwitchSemaphoreHandle::inbound>("inbound", "Address of 8 bytes here: signals of all ranks that arrived.")
      .with<&SwitchSemaphoreHandle::multicastInbound>("multicast_inbound", "Everybody's; for multicast accesses.")
      .with<&SwitchSemaphoreHandle::expected>("expected", "Address of 8 bytes here: signals waited for so far.")
      .with<&SwitchSemaphoreHandle::ranks>("ranks")
      .with<&SwitchSemaphoreHandle::id>("id", "Shown in reports.");
  HandleClass<SwitchChannelHandle>(module, "SwitchChannelHandle", "A kernel's DeviceHandle<SwitchChannel>.")
      .with<&SwitchChannelHandle::semaphore>("semaphore")
      .with<&SwitchChannelHandle::multicast>("multicast", "Address of everybody's memory; for multicast accesses.")
      .with<&SwitchChannelHandle::own>("own", "Address of this rank's memory.")
      .with<&SwitchChannelHandle::memoryBytes>("memory_bytes")
      .with<&SwitchChannelHandle::rank>("rank", "Of this process among the channel's.");
  HandleClass<WindowHandle>(module, "WindowHandle", "A kernel's layout::WindowHandle, for a SymmetricView.")
      .with<&WindowHandle::rank>("rank", "Of this process in the window.")
      .with<&WindowHandle::size>("size", "Ranks.")
      .with<&WindowHandle::bytes>("bytes", "Of each rank.")
      .with<&WindowHandle::multicast>("multicast", "Address of everybody's memory, or 0; for multicast accesses.")
      .withTable<&WindowHandle::bases>("bases", "Addresses of the ranks' memory, as mapped here; 0: only by proxies.");
  HandleClass<TeamHandle>(module, "TeamHandle", "A kernel's DeviceHandle<Team>.")
      .with<&TeamHandle::rank>("rank", "Of this process in the team.")
      .with<&TeamHandle::size>("size", "Ranks.")
      .withTable<&TeamHandle::workspaces>("workspaces", "Addresses of the ranks' workspaces, as mapped here.");
}

void bindMemory(nb::module_& module) {
  nb::enum_<Transport>(module, "Transport", "How a proxy moves data to a peer.")
      .value("memory", Transport::memory, "Mapped memory, by copy engines.")
      .value("ib", Transport::ib, "InfiniBand or RoCE.")
      .value("tcp", Transport::tcp);

  nb::class_<RegisteredMemory>(
      module, "RegisteredMemory",
      "Memory of some rank that kernels of this rank's device, or its proxies, can use. It stays that of whoever "
      "allocated it, who keeps it for as long as anybody uses this.")
      .def(
          "data", [](RegisteredMemory const& self) { return reinterpret_cast<std::uintptr_t>(self.data()); },
          "Its address for kernels here. Raises Unsupported where it is on another host.")
      .def("size", &RegisteredMemory::size, "Bytes.")
      .def_prop_ro("rank", &RegisteredMemory::rank, "That owns the memory.")
      .def_prop_ro("device", &RegisteredMemory::device, "On which data() is valid.")
      .def_prop_ro(
          "reach", [](RegisteredMemory const& self) { return nameOf(self.reach()); },
          "How it is reached from here, in words: 'own memory', ...")
      .def(
          "transports", [](RegisteredMemory const& self) { return listOf(self.transports()); },
          "Ways for proxies that its owner has registered it with.")
      .def(
          "serialize",
          [](RegisteredMemory const& self) {
            auto const bytes = self.serialize();
            return nb::bytes(bytes.data(), bytes.size());
          },
          "Of the own memory: bytes that a peer gives to deserialize().")
      .def_static(
          "deserialize",
          [](nb::bytes const& bytes, Device device) {
            std::span const all(static_cast<std::byte const*>(bytes.data()), bytes.size());
            nb::gil_scoped_release const released;
            return RegisteredMemory::deserialize(all, device);
          },
          nb::arg("bytes"), nb::arg("device"), "Maps what serialize() wrote, for use on `device`.");

  nb::class_<Connection>(
      module, "Connection",
      "A one-sided way to a peer's memory, for a proxy. One thread at a time uses it: a service that "
      "has it, or the caller. Offsets and sizes are bytes.")
      .def_prop_ro("transport", &Connection::transport)
      .def_prop_ro("peer", &Connection::peer)
      .def("write", &Connection::write, nb::arg("dst"), nb::arg("dst_offset"), nb::arg("src"), nb::arg("src_offset"),
           nb::arg("bytes"), WithoutGil(), "Posts a copy from own memory `src` to the peer's `dst`.")
      .def("signal", &Connection::signal, nb::arg("dst"), nb::arg("dst_offset"), nb::arg("count"), WithoutGil(),
           "Posts: once all earlier writes are there, the 8 bytes at `dst_offset` become `count`, which grows by one.")
      .def("posted", &Connection::posted, "Writes and signals posted so far.")
      .def("progress", &Connection::progress, WithoutGil(),
           "One step that does not block; how many posts, from the first on, are complete.");
}

void bindSemaphores(nb::module_& module) {
  using Semaphore = MemoryDevice2DeviceSemaphore;
  nb::class_<Semaphore>(module, "MemoryDevice2DeviceSemaphore",
                        "Between the devices of two ranks. Both make it, with the same tag, naming each other.")
      .def(nb::init<Communicator const&, int, int>(), nb::arg("communicator"), nb::arg("peer"), nb::arg("tag") = 0,
           WithoutGil())
      .def_prop_ro("peer", &Semaphore::peer)
      .def("device_handle", &Semaphore::deviceHandle);
  nb::class_<Host2DeviceSemaphore>(module, "Host2DeviceSemaphore",
                                   "The signals of a port channel. Both ranks make it over their ends of one "
                                   "connection, with the same tag.")
      .def(nb::init<Communicator const&, std::shared_ptr<Connection>, int>(), nb::arg("communicator"),
           nb::arg("connection"), nb::arg("tag") = 0, WithoutGil())
      .def_prop_ro("connection", &Host2DeviceSemaphore::connection)
      .def_prop_ro("peer", &Host2DeviceSemaphore::peer)
      .def("signal", &Host2DeviceSemaphore::signal, WithoutGil(),
           "Posts the next signal. By whoever uses the connection.");
}

void bindCommunicator() {
  auto communicator = nb::borrow<nb::class_<Communicator>>(nb::type<Communicator>());
  communicator
      .def("reaches", &Communicator::reaches, nb::arg("peer"), "Whether kernels here can use the memory of `peer`.")
      .def(
          "lines_arrive_whole",
          [](Communicator const& self, std::optional<int> peer) {
            return peer ? self.linesArriveWhole(*peer) : self.linesArriveWhole();
          },
          nb::arg("peer") = nb::none(),
          "Whether a warp's 128 bytes arrive as one at `peer`, or at all peers: LL128 packets need it.")
      .def(
          "register_memory",
          [](Communicator const& self, std::uintptr_t pointer, std::size_t bytes, Transports const& transports) {
            return self.registerMemory(pointerOf(pointer), bytes, setOf(transports));
          },
          nb::arg("pointer"), nb::arg("bytes"), nb::arg("transports") = Transports(), WithoutGil(),
          "Memory of this rank's device, for peers; with transports, for their proxies, too.")
      .def("send_memory", &Communicator::sendMemory, nb::arg("memory"), nb::arg("peer"), nb::arg("tag") = 0,
           WithoutGil(), "Own memory, to the peer's recv_memory() of this tag.")
      .def("recv_memory", &Communicator::recvMemory, nb::arg("peer"), nb::arg("tag") = 0, WithoutGil())
      .def("exchange_memory", &Communicator::exchangeMemory, nb::arg("memory"), WithoutGil(),
           "Everybody's memory, by rank. Collective.")
      .def("build_semaphore", &Communicator::buildSemaphore, nb::arg("peer"), nb::arg("tag") = 0, WithoutGil(),
           "By both ranks, with the same tag.")
      .def("transport_to", &Communicator::transportTo, nb::arg("peer"), "What connect() chooses.")
      .def(
          "transports", [](Communicator const& self) { return listOf(self.transports()); },
          "What connect() chooses for any peer: what to register memory with.")
      .def(
          "connect",
          [](Communicator const& self, int peer, std::optional<Transport> transport, int tag) {
            return self.connect(peer, {.transport = transport}, tag);
          },
          nb::arg("peer"), nb::arg("transport") = nb::none(), nb::arg("tag") = 0, WithoutGil(),
          "For proxies. By both ranks, with the same tag, over the same transport.");
}

void bindMemoryChannels(nb::module_& module) {
  nb::class_<BaseMemoryChannel>(module, "BaseMemoryChannel", "Signals only.")
      .def(nb::init<MemoryDevice2DeviceSemaphore>(), nb::arg("semaphore"))
      .def("device_handle", &BaseMemoryChannel::deviceHandle);
  nb::class_<MemoryChannel>(module, "MemoryChannel", "A semaphore, and the memory that kernels put to and get from.")
      .def(
          "__init__",
          [](MemoryChannel* self, MemoryDevice2DeviceSemaphore semaphore, RegisteredMemory dst, RegisteredMemory src,
             std::uintptr_t packetBuffer) {
            new (self) MemoryChannel(std::move(semaphore), std::move(dst), std::move(src), pointerOf(packetBuffer));
          },
          nb::arg("semaphore"), nb::arg("dst"), nb::arg("src"), nb::arg("packet_buffer") = 0,
          "`dst` is memory of the semaphore's peer, `src` of this rank; `packet_buffer`, an address, is memory of this "
          "rank that the peer has as its `dst`. All are aligned to 16 bytes.")
      .def("device_handle", &MemoryChannel::deviceHandle);
  nb::class_<SwitchChannel>(module, "SwitchChannel",
                            "Memory of one size on each rank, read and written through the switch between them, and a "
                            "barrier. Collective over its ranks; none: all.")
      .def(
          "__init__",
          [](SwitchChannel* self, Communicator const& communicator, std::uintptr_t memory, std::size_t bytes,
             Ranks ranks) { new (self) SwitchChannel(communicator, pointerOf(memory), bytes, std::move(ranks)); },
          nb::arg("communicator"), nb::arg("memory"), nb::arg("bytes"), nb::arg("ranks") = Ranks(), WithoutGil())
      .def("device_handle", &SwitchChannel::deviceHandle);
}

void bindWindows(nb::module_& module) {
  nb::enum_<WindowUse>(module, "WindowUse", "Who reaches the memory of other ranks through a window.")
      .value("threads", WindowUse::threads, "Kernels of ranks of one host.")
      .value("multicast", WindowUse::multicast, "And multicast accesses.")
      .value("proxies", WindowUse::proxies, "Kernels within a host, proxies everywhere.");
  nb::class_<MemoryWindow>(module, "MemoryWindow",
                           "Memory of one size on several ranks, mapped by all of them. Collective over its ranks; "
                           "none: all.")
      .def(
          "__init__",
          [](MemoryWindow* self, Communicator const& communicator, std::uintptr_t memory, std::size_t bytes,
             Ranks ranks,
             WindowUse use) { new (self) MemoryWindow(communicator, pointerOf(memory), bytes, std::move(ranks), use); },
          nb::arg("communicator"), nb::arg("memory"), nb::arg("bytes"), nb::arg("ranks") = Ranks(),
          nb::arg("use") = WindowUse::threads, WithoutGil())
      .def("device_handle", &MemoryWindow::deviceHandle)
      .def(
          "data", [](MemoryWindow const& self) { return reinterpret_cast<std::uintptr_t>(self.data()); },
          "Address of the own memory.")
      .def("size", &MemoryWindow::size, "Bytes of each rank.")
      .def("memories", &MemoryWindow::memories, "By rank in the window, for proxies.");
  nb::class_<SymmetricArena>(
      module, "SymmetricArena",
      "One window that all its ranks cut into the same parts, in the same order. Collective over "
      "its ranks; none: all.")
      .def(
          "__init__",
          [](SymmetricArena* self, Communicator const& communicator, std::size_t bytes, std::uintptr_t memory,
             Ranks ranks, WindowUse use) {
            if (memory == 0) {
              new (self) SymmetricArena(communicator, bytes, std::move(ranks), use);
            } else {
              new (self) SymmetricArena(communicator, pointerOf(memory), bytes, std::move(ranks), use);
            }
          },
          nb::arg("communicator"), nb::arg("bytes"), nb::arg("memory") = 0, nb::arg("ranks") = Ranks(),
          nb::arg("use") = WindowUse::threads, nb::keep_alive<1, 2>(), WithoutGil(),
          "`memory`: the address of somebody's who keeps it as long as the arena and its parts; 0: of its own. Its "
          "content is lost as parts are taken.")
      .def(
          "take",
          [](SymmetricArena& self, std::string const& name, std::size_t bytes, std::size_t alignment) {
            return self.take(name, bytes, alignment);
          },
          nb::arg("name"), nb::arg("bytes"), nb::arg("alignment") = SymmetricArena::line, WithoutGil(),
          "The next bytes, zero, aligned alike on every rank, as a window; for good, it may outlive the arena. `name` "
          "is what errors call it. Collective: raises on all ranks where they do not take the same, or it does not "
          "fit.")
      .def_static(
          "room",
          [](std::vector<std::size_t> const& parts) {
            std::size_t total = 0;
            for (auto const bytes : parts) total += SymmetricArena::room({bytes});
            return total;
          },
          nb::arg("parts"), "Bytes that parts of these sizes take together.")
      .def_prop_ro("window", &SymmetricArena::window, nb::rv_policy::reference_internal)
      .def_prop_ro("size", &SymmetricArena::size, "Bytes in all.")
      .def_prop_ro("used", &SymmetricArena::used, "Bytes of parts, and what lies unused ahead of them.")
      .def_prop_ro("ranks", &SymmetricArena::ranks);
  nb::class_<Team>(module, "Team",
                   "Ranks that run collectives of the library together in kernels of users, with a workspace each. "
                   "Collective over its ranks; none: all.")
      .def(
          "__init__",
          [](Team* self, Communicator const& communicator, std::uint32_t blocks, std::uint64_t packetBytes,
             std::uint64_t lineBytes, std::uint64_t stageBytes, bool multicast, Ranks ranks) {
            new (self) Team(communicator, requirementOf(blocks, packetBytes, lineBytes, stageBytes, multicast),
                            std::move(ranks));
          },
          nb::arg("communicator"), nb::arg("blocks"), nb::arg("packet_bytes") = 0, nb::arg("line_bytes") = 0,
          nb::arg("stage_bytes") = 0, nb::arg("multicast") = false, nb::arg("ranks") = Ranks(), WithoutGil(),
          "`blocks`: of the largest grid; bytes: that each block must be able to receive in one round.")
      .def(
          "__init__",
          [](Team* self, SymmetricArena& arena, std::uint32_t blocks, std::uint64_t packetBytes,
             std::uint64_t lineBytes, std::uint64_t stageBytes, bool multicast) {
            new (self) Team(arena, requirementOf(blocks, packetBytes, lineBytes, stageBytes, multicast));
          },
          nb::arg("arena"), nb::arg("blocks"), nb::arg("packet_bytes") = 0, nb::arg("line_bytes") = 0,
          nb::arg("stage_bytes") = 0, nb::arg("multicast") = false, WithoutGil(),
          "In a part of an arena, which it takes, over its ranks.")
      .def_prop_ro("rank", &Team::rank)
      .def_prop_ro("size", &Team::size)
      .def("device_handle", &Team::deviceHandle);
}

}  // namespace

void bindChannels(nb::module_& module) {
  bindChannelHandles(module);
  bindMemory(module);
  bindSemaphores(module);
  bindCommunicator();
  bindMemoryChannels(module);
  bindWindows(module);
}

}  // namespace mscclpp::python
