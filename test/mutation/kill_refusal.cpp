// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every check of a caller's arguments: what is just right goes through, one more is refused with its numbers.
#include <string>
#include <vector>

#include "explored.hpp"
#include "mscclpp/algorithms/collective/alltoall.hpp"
#include "mscclpp/device/barrier.hpp"
#include "mscclpp/device/device_handle.hpp"
#include "mscclpp/device/symmetric_view.hpp"
#include "mscclpp/host/memory_channel.hpp"
#include "mscclpp/host/memory_window.hpp"
#include "support/allreduce.hpp"

using namespace mscclpp_test;

namespace {

// ---- channels
// --------------------------------------------------------------------------------------------------------

enum class Call { put, get, read, write, putPackets, unpackPackets };

struct ChannelKernel {
  MSCCLPP_DEVICE void operator()(MemoryChannelDeviceHandle const& channel, Call call, std::uint64_t remote,
                                 std::uint64_t local, std::uint64_t bytes) const {
    auto const block = thisBlock();
    // An address outside, if it were used, must not be touched: no thread but one moves anything.
    auto const group = threadRange(block.rank(), block.size());
    switch (call) {
      case Call::put:
        return channel.put(group, remote, local, bytes);
      case Call::get:
        return channel.get(group, remote, local, bytes);
      case Call::read:
        if (block.rank() == 0) channel.read<std::uint64_t>(remote);
        return;
      case Call::write:
        if (block.rank() == 0) channel.write<std::uint64_t>(remote, 1);
        return;
      case Call::putPackets:
        return channel.putPackets<LL16>(group, remote, local, bytes, 1);
      case Call::unpackPackets:
        return channel.unpackPackets<LL16>(group, remote, local, bytes, 1);
    }
  }
};

}  // namespace

TEST_CASE("ranges of a channel") {
  constexpr std::uint64_t localBytes = 1000;
  constexpr std::uint64_t inboxBytes = 512;
  constexpr auto most = ~std::uint64_t{0};
  struct Case {
    Call call;
    std::uint64_t remote, local, bytes;
    std::uint64_t end;  // named by the refusal; 0: accepted
  };
  // LL16 packets take 16 bytes for 8 of data. The inbox is also the packet buffer.
  std::vector<Case> const cases{
      {Call::put, 12, 0, 500, 0},
      {Call::put, 13, 0, 500, 513},
      {Call::put, 0, 900, 100, 0},
      {Call::put, 0, 901, 100, 1001},
      {Call::get, 12, 0, 500, 0},
      {Call::get, 13, 0, 500, 513},
      {Call::get, 0, 900, 100, 0},
      {Call::get, 0, 901, 100, 1001},
      {Call::read, 63, 0, 0, 0},
      {Call::read, 64, 0, 0, 520},
      {Call::write, 63, 0, 0, 0},
      {Call::write, 64, 0, 0, 520},
      {Call::putPackets, 0, 0, 256, 0},
      {Call::putPackets, 0, 0, 257, 528},
      {Call::putPackets, 16, 0, 256, 528},
      {Call::putPackets, 0, 992, 8, 0},
      {Call::putPackets, 0, 993, 8, 1001},
      {Call::unpackPackets, 0, 0, 257, 528},
      {Call::unpackPackets, 16, 0, 256, 528},
      {Call::unpackPackets, 0, 993, 8, 1001},
      // Ends that 64 bits do not hold would lie inside.
      {Call::put, most - 4, 0, 8, most},
      {Call::put, 0, most - 4, 8, most},
      {Call::put, 8, 8, most - 4, most},
      {Call::get, most - 4, 0, 8, most},
      {Call::get, 0, most - 4, 8, most},
      {Call::read, std::uint64_t{1} << 61, 0, 0, most},
      {Call::write, (std::uint64_t{1} << 61) + 1, 0, 0, most},
      {Call::putPackets, most - 15, 0, 8, most},
      {Call::putPackets, 0, most - 4, 8, most},
      {Call::unpackPackets, most - 15, 0, 8, most},
      {Call::unpackPackets, 0, most - 4, 8, most},
  };
  for (auto const& test : cases) {
    CAPTURE(static_cast<int>(test.call));
    CAPTURE(test.end);
    forEachRank(2, [&](Rank& rank) {
      GpuBuffer<std::uint8_t> local(rank.device, localBytes);
      GpuBuffer<std::uint8_t> inbox(rank.device, inboxBytes);
      auto& communicator = rank.communicator;
      auto const all = communicator.exchangeMemory(communicator.registerMemory(inbox.data(), inbox.bytes()));
      auto const peer = static_cast<std::size_t>(1 - rank.rank);
      MemoryChannel const channel(communicator.buildSemaphore(static_cast<int>(peer)), all[peer],
                                  communicator.registerMemory(local.data(), local.bytes()), inbox.data());
      if (rank.rank == 0) {
        launch(rank.stream, {.blocks = 1, .threads = 64}, ChannelKernel{}, channel.deviceHandle(), test.call,
               test.remote, test.local, test.bytes);
        auto const text = reportOf(rank);
        CAPTURE(text);
        CHECK(text.empty() == (test.end == 0));
        if (test.end != 0) {
          CHECK(contains(text, std::to_string(test.end)));
          CHECK(contains(text, "rank 1"));
          CHECK(contains(text, "rank 0 block 0 thread"));
        }
      }
      communicator.bootstrap()->barrier();
    });
  }
}

namespace {

struct ViewKernel {
  MSCCLPP_DEVICE void operator()(layout::WindowHandle const& window, std::uint64_t offset, std::size_t count, int ranks,
                                 layout::Watch* watch) const {
    if (thisBlock().rank() == 0) SymmetricView<float>(window, offset, count).check(watch, ranks);
  }
};

struct RootKernel {
  MSCCLPP_DEVICE void operator()(DeviceTeam const& team, int root) const {
    if (thisBlock().rank() == 0) requireRoot(team, root);
  }
};

}  // namespace

TEST_CASE("views of symmetric memory, and roots") {
  struct Case {
    std::uint64_t offset;
    std::size_t count;
    int ranks;
    char const* refusal;
  };
  std::vector<Case> const cases{{16, 60, 2, ""},
                                {0, 64, 2, ""},
                                {16, 61, 2, "a view up to byte 260 of a symmetric window of 256"},
                                {16, ~std::size_t{0}, 2, "of a symmetric window of 256"},
                                {0, 64, 3, "a symmetric window of 2 ranks with a team of 3"}};
  std::vector<std::pair<int, std::string>> const roots{
      {0, ""}, {1, ""}, {2, "root 2: the team has ranks 0 to 1"}, {-1, "root -1: the team has ranks 0 to 1"}};
  forEachRank(2, [&](Rank& rank) {
    Team const team(rank.communicator, {.blocks = 1});
    GpuBuffer<float> const buffer(rank.device, 64);
    MemoryWindow const window(rank.communicator, buffer.data(), buffer.bytes());
    auto const ended = [&](std::string const& refusal) {
      auto const text = reportOf(rank);
      CHECK_MESSAGE((refusal.empty() ? text.empty() : contains(text, refusal)), text);
    };
    for (auto const& test : cases) {
      launch(rank.stream, {.blocks = 1, .threads = 32}, ViewKernel{}, window.deviceHandle(), test.offset, test.count,
             test.ranks, rank.communicator.watch());
      ended(test.refusal);
    }
    for (auto const& [root, refusal] : roots) {
      launch(rank.stream, {.blocks = 1, .threads = 32}, RootKernel{}, team.deviceHandle(), root);
      ended(refusal);
    }
    rank.communicator.bootstrap()->barrier();
  });
}

namespace {

// Rank 1 sends what exactly fills the packet buffer and the local memory of rank 0.
template <class P>
struct FillKernel {
  MSCCLPP_DEVICE void operator()(MemoryChannelDeviceHandle const& channel, int rank, std::uint64_t bytes) const {
    if (rank == 1) channel.template putPackets<P>(thisBlock(), 0, 0, bytes, 1);
    if (rank == 0) channel.template unpackPackets<P>(thisBlock(), 0, 1000 - bytes, bytes, 1);
  }
};

}  // namespace

TEST_CASE_TEMPLATE("packets up to the last byte", P, LL8, LL16, LL128) {
  constexpr std::uint64_t bytes = 240;
  forEachRank(2, [&](Rank& rank) {
    GpuBuffer<std::uint8_t> local(rank.device, 1000);
    GpuBuffer<std::uint8_t> inbox(rank.device, P::slotsFor(bytes) * P::slotBytes);
    auto& communicator = rank.communicator;
    auto const all = communicator.exchangeMemory(communicator.registerMemory(inbox.data(), inbox.bytes()));
    auto const peer = static_cast<std::size_t>(1 - rank.rank);
    MemoryChannel const channel(communicator.buildSemaphore(static_cast<int>(peer)), all[peer],
                                communicator.registerMemory(local.data(), local.bytes()), inbox.data());
    local.fill(static_cast<unsigned char>(rank.rank + 1));
    launch(rank.stream, {.blocks = 1, .threads = 32}, FillKernel<P>{}, channel.deviceHandle(), rank.rank, bytes);
    CHECK(reportOf(rank).empty());
    communicator.bootstrap()->barrier();
    if (rank.rank == 0) CHECK(copyToHost(local).back() == 2);
  });
}

namespace {

struct UnwatchedKernel {
  MSCCLPP_DEVICE void operator()() const { require(false, nullptr, -1, std::uint64_t(layout::Misuse::teamSize), 1, 2); }
};

}  // namespace

TEST_CASE("a refusal that has nowhere to report to ends the kernel") {
  forEachRank(1, [](Rank& rank) {
    launch(rank.stream, {.blocks = 1, .threads = 1}, UnwatchedKernel{});
    std::string text;
    try {
      rank.stream.synchronize();
    } catch (Error const& error) {
      text = error.what();
    }
    INFO(text);
    CHECK(contains(text, "no watch"));
  });
}

// ---- collectives
// -----------------------------------------------------------------------------------------------------

namespace {

template <class Collective>
struct UnevenKernel {
  MSCCLPP_DEVICE void operator()(float const* in, float* out, std::size_t inputs, std::size_t outputs,
                                 DeviceTeam const& team) const {
    Collective{team}(thisGrid(), View{in, inputs}, View{out, outputs});
  }
};

struct Shape {
  layout::WorkspaceRequirement need;
  unsigned blocks = 1;
  unsigned threads = 32;
  std::size_t inCount = 64;
  std::size_t outCount = 64;
  std::size_t inAstray = 0;
  std::size_t outAstray = 0;
  int ranks = 1;
};

// What rank 0 is told of the launch.
template <class Collective>
std::string refusal(Shape const& shape) {
  std::string text;
  forEachRank(shape.ranks, [&](Rank& rank) {
    Team team(rank.communicator, shape.need);
    GpuBuffer<std::byte> in(rank.device, 8192);
    GpuBuffer<std::byte> out(rank.device, 8192);
    launch(rank.stream, {.blocks = shape.blocks, .threads = shape.threads}, UnevenKernel<Collective>{},
           reinterpret_cast<float const*>(in.data() + shape.inAstray),
           reinterpret_cast<float*>(out.data() + shape.outAstray), shape.inCount, shape.outCount, team.deviceHandle());
    auto const mine = reportOf(rank);
    if (rank.rank == 0) text = mine;
    rank.communicator.bootstrap()->barrier();
  });
  return text;
}

using Packets = AllReduce<OneShot, PacketTransport<LL16>, Sum>;
using Lines = AllReduce<OneShot, PacketTransport<LL128>, Sum>;
using Stage = AllReduce<OneShot, MemoryTransport<2>, Sum>;
layout::WorkspaceRequirement const packets{.blocks = 2, .packetBytes = 1 << 12, .lineBytes = 0, .stageBytes = 0};
layout::WorkspaceRequirement const lines{.blocks = 2, .packetBytes = 0, .lineBytes = 1 << 12, .stageBytes = 0};
layout::WorkspaceRequirement const stage{.blocks = 2, .packetBytes = 0, .lineBytes = 0, .stageBytes = 1 << 12};

}  // namespace

TEST_CASE("launches of a collective") {
  CHECK(refusal<Packets>({.need = packets, .blocks = 2}).empty());
  CHECK(contains(refusal<Packets>({.need = packets, .blocks = 3}), "3 blocks"));
  CHECK(contains(refusal<Packets>({.need = packets, .inCount = 10, .outCount = 11}), "11"));
  CHECK(contains(refusal<Packets>({.need = packets, .inAstray = 3}), "3 bytes past a multiple"));
  CHECK(contains(refusal<Packets>({.need = packets, .outAstray = 2}), "2 bytes past a multiple"));
  using Swap = AllToAll<OneExchange, PacketTransport<LL16>>;
  CHECK(refusal<Swap>({.need = packets, .ranks = 2}).empty());
  auto const uneven = refusal<Swap>({.need = packets, .inCount = 63, .outCount = 63, .ranks = 2});
  INFO(uneven);
  CHECK(contains(uneven, "63"));
  using Two = AllReduce<OneShot, PacketTransport<LL16>, Sum, 2>;
  CHECK(contains(refusal<Two>({.need = packets}), "2"));
  CHECK(refusal<Two>({.need = packets, .ranks = 2}).empty());
}

TEST_CASE("blocks that are refused count their reports together") {
  everySchedule(1, [](Rank& rank) {
    Team team(rank.communicator, packets);
    GpuBuffer<float> data(rank.device, 64);
    launch(rank.stream, {.blocks = 3, .threads = 32}, UnevenKernel<Packets>{}, data.data(), data.data(), 64u, 64u,
           team.deviceHandle());
    auto const text = reportOf(rank);
    CHECK(contains(text, "3 blocks"));
    CHECK(contains(text, "64 more reports"));
  });
}

TEST_CASE("a switch that the team has no addresses of") {
  using Handed = AllReduce<OneShot, SwitchPackets<LL8>, Sum>;
  auto const text = refusal<Handed>({.need = packets});
  INFO(text);
  CHECK(contains(text, "multicast"));
}

TEST_CASE("workspaces of a collective") {
  CHECK(contains(refusal<Packets>({.need = lines}), "workspace"));
  CHECK(contains(refusal<Lines>({.need = packets}), "workspace"));
  CHECK(contains(refusal<Stage>({.need = packets}), "workspace"));
  CHECK(refusal<Lines>({.need = lines}).empty());
  CHECK(refusal<Stage>({.need = stage}).empty());
}

TEST_CASE("LL128 wants whole warps and whole lines") {
  CHECK(contains(refusal<Lines>({.need = lines, .threads = 31}), "32"));
  CHECK(refusal<Lines>({.need = lines, .threads = 32}).empty());
  CHECK(refusal<Packets>({.need = packets, .threads = 31}).empty());
  sim::install({.devices = 2, .linesArriveWhole = false});
  auto const torn = refusal<Lines>({.need = lines, .ranks = 2});
  auto const halves = refusal<Packets>({.need = packets, .ranks = 2});
  sim::install({});
  CHECK(contains(torn, "LL128 packets"));
  CHECK(halves.empty());
}

// What the static_assert's of the collectives ask.
namespace {
struct NoNumber {};
}  // namespace
static_assert(fitsTransport<float, PacketTransport<LL8>> && fitsTransport<double, PacketTransport<LL16>>);
static_assert(!fitsTransport<double, PacketTransport<LL8>> && !fitsTransport<NoNumber, PacketTransport<LL16>>);

TEST_CASE("what the host offers by default is one round's need") {
  constexpr auto need = PacketTransport<LL16, 2>::requirement(3, 33, 5);
  static_assert(need.blocks == 3 && need.packetBytes == 5 * 64 * 2 * 16 && need.lineBytes == 0 && need.stageBytes == 0);
  constexpr auto whole = PacketTransport<LL128>::requirement(3, 64, 5);
  static_assert(whole.lineBytes == 5 * 64 * 16 && whole.packetBytes == 0);
  CHECK(need.blocks == whole.blocks);
}

// ---- reports
// ---------------------------------------------------------------------------------------------------------

namespace {

// Another device looks at rank 0's watch while its kernel runs. The checker watches it; the host, for whom reports are
// written, it does not.
struct WatcherKernel {
  MSCCLPP_DEVICE void operator()(layout::Watch* watch, int rank, std::uint64_t* fields) const {
    if (rank == 0) require(false, watch, 7, std::uint64_t(layout::Misuse::teamSize), 11, 12);
    auto const& report = watch->reports[0];
    poll(nullptr, {layout::WaitKind::none, 0, 0, 1}, [&](std::uint64_t& seen) {
      seen = load<Order::acquire, Scope::system>(&report.complete);
      return seen != 0;
    });
    fields[0] = static_cast<std::uint64_t>(report.kind);
    fields[1] = static_cast<std::uint64_t>(report.rank);
    fields[2] = static_cast<std::uint64_t>(report.peer);
    fields[3] = report.block;
    fields[4] = report.thread;
    fields[5] = report.channel;
    fields[6] = report.expected;
    fields[7] = report.seen;
    fields[8] = report.waitedNs;
    poll(nullptr, {layout::WaitKind::none, 0, 0, 1}, [&](std::uint64_t& seen) {
      seen = load<Order::relaxed, Scope::system>(&watch->abort);
      return seen != 0;
    });
  }
};

}  // namespace

TEST_CASE("a report is whole once it says so") {
  everySchedule(2, [](Rank& rank) {
    std::vector<layout::Watch*> watches(2);
    watches[static_cast<std::size_t>(rank.rank)] = rank.communicator.watch();
    rank.communicator.bootstrap()->allGather(watches.data(), sizeof(layout::Watch*));
    GpuBuffer<std::uint64_t> fields(rank.device, 9);
    launch(rank.stream, {.blocks = 1, .threads = 1}, WatcherKernel{}, watches[0], rank.rank, fields.data());
    rank.stream.synchronize();
    rank.communicator.bootstrap()->barrier();
    if (rank.rank == 0) {
      auto const text = reportOf(rank);
      CHECK(contains(text, "compiled for 11"));
    } else {
      std::vector<std::uint64_t> const expected{
          static_cast<std::uint64_t>(layout::WaitKind::misuse), 0, 7, 0, 0, 3, 11, 12, 0};
      CHECK(copyToHost(fields) == expected);
    }
  });
}

// ---- waits that nobody ends
// ------------------------------------------------------------------------------------------

namespace {

struct GridKernel {
  MSCCLPP_DEVICE void operator()(DeviceTeam const& team, unsigned rounds) const {
    for (unsigned round = 0; round < rounds; ++round) gridBarrier(team, thisGrid());
    if (thisGrid().blockRank() == 0) gridBarrier(team, thisGrid());
  }
};

// Of three packets the first is missing, the second is there, and nobody waits for the third.
struct PacketsKernel {
  MSCCLPP_DEVICE void operator()(std::uint32_t* memory, DeviceTeam const& team) const {
    if (thisBlock().rank() != 0) return;
    memory[2] = 5;
    memory[3] = 9;
    auto const* const slots = reinterpret_cast<std::byte const*>(memory);
    Payload<1> payloads[3];
    awaitPackets<LL8>(team.watch, {slots, slots + 8, slots + 16}, {true, true, false}, 9, payloads, [](unsigned i) {
      return WaitFor{layout::WaitKind::packet, 0, 40 + i, 9};
    });
  }
};

struct TeamKernel {
  MSCCLPP_DEVICE void operator()(DeviceTeam const& team) const { teamBarrier(team, thisGrid()); }
};

// The dead-lock that the simulated machine reports when only the ranks below `last` launch.
template <class Launch>
std::string deadLock(int ranks, int last, Launch launchOn) {
  try {
    forEachRank(ranks, [&](Rank& rank) {
      Team team(rank.communicator, {.blocks = 2, .packetBytes = 1 << 12, .lineBytes = 1 << 12, .stageBytes = 1 << 12});
      GpuBuffer<float> data(rank.device, 1024);
      if (rank.rank < last) launchOn(rank, team, data.data());
      rank.synchronize();
    });
  } catch (Error const& error) {
    CHECK(error.code() == ErrorCode::timeout);
    return error.what();
  }
  return {};
}

// The findings when rank 1 makes only two of three calls that rank 0 makes.
template <class Collective>
std::string stuckInThird() {
  auto const result =
      check_test::exploreRanks({.ranks = 2},
                               [](Rank& rank) {
                                 Team team(rank.communicator, {.blocks = 1, .lineBytes = 1 << 12});
                                 GpuBuffer<float> data(rank.device, 64);
                                 data.fill(0x3f);
                                 for (int call = 0; call < (rank.rank == 0 ? 3 : 2); ++call) {
                                   launch(rank.stream, {.blocks = 1, .threads = 32}, UnevenKernel<Collective>{},
                                          data.data(), data.data(), 64u, 64u, team.deviceHandle());
                                 }
                                 rank.synchronize();
                               },
                               {.schedules = 1, .shrink = false});
  return toText(result);
}

template <class Collective>
std::string stuck(int ranks) {
  return deadLock(ranks, ranks - 1, [](Rank& rank, Team& team, float* data) {
    launch(rank.stream, {.blocks = 1, .threads = 32}, UnevenKernel<Collective>{}, data, data, 64u, 64u,
           team.deviceHandle());
  });
}

}  // namespace

TEST_CASE("a stuck wait says what it waited for") {
  for (unsigned rounds : {0u, 1u}) {
    auto const grid = deadLock(1, 1, [&](Rank& rank, Team& team, float*) {
      launch(rank.stream, {.blocks = 2, .threads = 32}, GridKernel{}, team.deviceHandle(), rounds);
    });
    INFO(grid);
    CHECK(contains(grid, "expected " + std::to_string(rounds + 1) + ", seen " + std::to_string(rounds)));
  }
  auto const barrier = deadLock(2, 1, [](Rank& rank, Team& team, float*) {
    launch(rank.stream, {.blocks = 1, .threads = 32}, TeamKernel{}, team.deviceHandle());
  });
  INFO(barrier);
  CHECK(contains(barrier, "team barrier of rank 1, channel 0, epoch expected 1, seen 0"));
  auto const packets = deadLock(1, 1, [](Rank& rank, Team& team, float* data) {
    launch(rank.stream, {.blocks = 1, .threads = 32}, PacketsKernel{}, reinterpret_cast<std::uint32_t*>(data),
           team.deviceHandle());
  });
  INFO(packets);
  CHECK(contains(packets, "in slot 40, flag expected 9, seen 0"));
  auto const signal = stuck<Stage>(3);
  INFO(signal);
  CHECK(contains(signal, "team signal of rank 2 of phase 0, epoch expected 1, seen 0"));
  auto const packet = stuck<AllReduce<OneShot, PacketTransport<LL16>, Sum, 3>>(3);
  INFO(packet);
  CHECK(contains(packet, "a packet of rank 2 in slot 7, flag expected 3, seen 0"));
  // The flag that the slot held two rounds before; a lane that carries none has seen none.
  auto const line = stuckInThird<Lines>();
  INFO(line);
  CHECK(contains(line, "slot 15, flag expected 7, seen 3"));
  CHECK(contains(line, "slot 14, flag expected 7, seen 0"));
}

namespace {

enum class Wait { signal, packet, half };

struct ChannelWaitKernel {
  MSCCLPP_DEVICE void operator()(MemoryChannelDeviceHandle const& channel, Wait wait, bool refused) const {
    if (refused && thisBlock().rank() >= 32) channel.put(thisBlock(), 0, 0, 1u << 30);
    if (thisBlock().rank() >= 32) return;
    if (wait == Wait::packet) return channel.unpackPackets<LL8>(thisWarp(), 0, 512, 64, 9);
    if (wait == Wait::half) return channel.unpackPackets<LL16>(thisWarp(), 0, 512, 16, 9);
    if (thisBlock().rank() == 0) channel.wait();
  }
};

// How a wait on a channel ends whose peer sends nothing.
std::string unanswered(Wait wait, bool refused) {
  std::string text;
  try {
    forEachRank(2, [&](Rank& rank) {
      GpuBuffer<std::uint8_t> memory(rank.device, 1024);
      auto& communicator = rank.communicator;
      auto const all = communicator.exchangeMemory(communicator.registerMemory(memory.data(), memory.bytes()));
      auto const peer = 1 - rank.rank;
      MemoryChannel const channel(communicator.buildSemaphore(peer), all[static_cast<std::size_t>(peer)],
                                  communicator.registerMemory(memory.data(), memory.bytes()), memory.data());
      if (rank.rank == 0) {
        // Of two LL16 packets the one lacks its first half, the other its second.
        std::vector<std::uint32_t> const slots{0, 5, 0, 9, 0, 9, 0, 6};
        if (wait == Wait::half) {
          copyToDevice(rank.device, reinterpret_cast<std::uint32_t*>(memory.data()), std::span(slots));
        }
        launch(rank.stream, {.blocks = 1, .threads = 96}, ChannelWaitKernel{}, channel.deviceHandle(), wait, refused);
        text = reportOf(rank);
      }
      communicator.bootstrap()->barrier();
    });
  } catch (Error const& error) {
    text = error.what();
  }
  return text;
}

}  // namespace

TEST_CASE("a stuck wait of a channel, alone and beside a refusal") {
  auto const signal = unanswered(Wait::signal, false);
  INFO(signal);
  CHECK(contains(signal, "a signal of rank 1 on channel 0, expected 1, seen 0"));
  auto const packet = unanswered(Wait::packet, false);
  INFO(packet);
  CHECK(contains(packet, "a packet of rank 1 in slot 15, flag expected 9, seen 0"));
  auto const half = unanswered(Wait::half, false);
  INFO(half);
  CHECK(contains(half, "slot 0, flag expected 9, seen 5"));
  CHECK(contains(half, "slot 1, flag expected 9, seen 6"));
  // More threads are refused than reports are kept; the waiter leaves with them.
  auto const beside = unanswered(Wait::signal, true);
  INFO(beside);
  CHECK(contains(beside, std::to_string(1u << 30)));
}
