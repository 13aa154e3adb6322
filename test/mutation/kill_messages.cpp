// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Messages between pairs of ranks.
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "explored.hpp"
#include "mscclpp/host/wait.hpp"
#include "support/messages.hpp"

using namespace mscclpp_test;

namespace {

// Small slots, so that messages take many chunks and rings go round.
layout::PointToPointRequirement const small{
    .lanes = 2, .slots = 2, .stageBytes = 256, .packetBytes = 1920, .packetLimit = 3841, .farBytes = 128};
// The last byte of 3841 is in the second lane only because parts are rounded up.
std::vector<std::int64_t> const sizes{0, 1, 200, 3841, 3842, 4200};

// Several calls in one kernel, each with a pattern of its own.
template <class P>
struct CallsKernel {
  MSCCLPP_DEVICE void operator()(layout::PointToPointHandle const& links, layout::Messages const* calls,
                                 int count) const {
    SendRecv<P> const exchange{links};
    for (int i = 0; i < count; ++i) exchange(thisGrid(), calls[i]);
  }
};

template <class P>
void patterns(sim::World const& world, std::uint64_t seed, std::vector<std::int64_t> const& bytes = sizes) {
  everySchedule(
      world,
      [&](Rank& rank) {
        constexpr int calls = 3;
        constexpr int kernels = 2;
        PointToPoint const links(rank.communicator, small);
        auto handle = links.deviceHandle();
        if (!P::wholeWarp) handle.layout.lines = 0;
        std::vector<std::unique_ptr<MessageBuffers>> buffers;
        std::vector<layout::Messages> messages;
        for (std::uint64_t i = 0; i < calls * kernels; ++i) {
          auto const pattern = MessagePattern::random(rank.size, seed + i, bytes);
          buffers.push_back(std::make_unique<MessageBuffers>(rank, pattern, i, i % 3));
          messages.push_back(buffers.back()->messages);
        }
        GpuBuffer<layout::Messages> const list(rank.device, messages.size());
        copyToDevice(list, std::span<layout::Messages const>(messages));
        for (unsigned kernel = 0; kernel < kernels; ++kernel) {
          // One block for each end, or several for some; ranks differ.
          auto const blocks = 2 + kernel + static_cast<unsigned>(rank.rank) % 2;
          launch(rank.stream, {.blocks = blocks, .threads = 32, .overlapPrevious = true}, CallsKernel<P>{}, handle,
                 list.data() + kernel * calls, calls);
        }
        rank.synchronize();
        for (auto const& call : buffers) call->check();
        for (int peer = 0; peer < rank.size; ++peer) CHECK(links.undelivered(peer) == 0);
      },
      1);
}

template <class P>
void start(Rank& rank, PointToPoint const& links, layout::Messages const& messages, bool overlap = false) {
  launch(rank.stream, {.blocks = 2, .threads = 32, .overlapPrevious = overlap}, MessageKernel<P>{},
         links.deviceHandle(), messages, 1);
}

}  // namespace

TEST_CASE("patterns of messages") {
  patterns<LL128>({.ranks = 3}, 1);
  patterns<LL128>({.ranks = 2}, 11);
  patterns<LL16>({.ranks = 3}, 24);
}

TEST_CASE("patterns of messages between nodes") {
  std::vector<std::int64_t> const bytes{0, 1, 128, 129, 257, 600};
  patterns<LL128>({.ranks = 2, .machine = {.devicesPerNode = 1}}, 31, bytes);
  patterns<LL128>({.ranks = 3, .machine = {.devicesPerNode = 2}}, 37, bytes);
}

namespace {

void checkAnotherSize(Rank& rank) {
  PointToPoint const links(rank.communicator, small);
  GpuBuffer<std::byte> const buffer(rank.device, 128);
  layout::Messages messages{};
  if (rank.rank == 0) messages.addSend(1, buffer.data(), 100);
  if (rank.rank == 1) messages.addRecv(0, buffer.data(), 101);
  start<LL128>(rank, links, messages);
  auto const text = reportOf(rank);
  // One thread looks.
  CHECK_MESSAGE(contains(text, rank.rank == 0 ? ""
                                              : "rank 1 block 1 thread 0 refused a message of 100 bytes from "
                                                "rank 0, where 101 are to be received"),
                text);
  rank.communicator.bootstrap()->barrier();
}

void onNodes(std::function<void(Rank&)> const& body) {
  sim::install({.devices = 2, .devicesPerNode = 1});
  forEachRank(2, body);
  sim::install({.devices = 8});
}

// Pushes what the proxy refuses.
struct WrongTrigger {
  MSCCLPP_DEVICE void operator()(layout::PointToPointHandle const& links) const {
    BasePortChannelDeviceHandle(links.far[0].taken).put(99, 0, 99, 0, 8);
  }
};

}  // namespace

TEST_CASE("between nodes: another size, chunks that nobody receives, and a proxy that has failed") {
  onNodes(checkAnotherSize);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> const chunks{{0, 1},   {1, 1},   {128, 1}, {129, 2},
                                                                    {256, 2}, {257, 3}, {512, 4}};
  onNodes([&](Rank& rank) {
    GpuBuffer<std::byte> const buffer(rank.device, 512);
    for (auto const& [bytes, count] : chunks) {
      PointToPoint const links(rank.communicator, small);
      layout::Messages messages{};
      if (rank.rank == 0) messages.addSend(1, buffer.data(), bytes);
      start<LL128>(rank, links, messages);
      rank.synchronize();
      CHECK_MESSAGE(links.undelivered(1 - rank.rank) == (rank.rank == 0 ? count : 0), bytes, " bytes");
      rank.communicator.bootstrap()->barrier();
    }
  });
  onNodes([](Rank& rank) {
    PointToPoint const links(rank.communicator, small);
    GpuBuffer<std::byte> const buffer(rank.device, 128);
    layout::Messages messages{};
    if (rank.rank == 1) messages.addRecv(0, buffer.data(), 100);
    if (rank.rank == 0) {
      launch(rank.stream, {.blocks = 1, .threads = 1}, WrongTrigger{}, links.deviceHandle());
    } else {
      start<LL128>(rank, links, messages);
    }
    // Of a proxy of its own the host is told when that has handled the trigger.
    if (rank.rank == 0) hostWait([&] { return rank.communicator.fault().has_value(); }, std::chrono::seconds(10));
    std::string text;
    try {
      rank.communicator.synchronize(rank.stream);
    } catch (Error const& error) {
      text = error.what();
    }
    CHECK_MESSAGE(
        contains(text, rank.rank == 0 ? "it names memory 99" : "whose proxy or connection to here has failed"), text);
    rank.communicator.bootstrap()->barrier();
  });
}

TEST_CASE("a kernel passes on what the one before it has received") {
  everySchedule(2, [](Rank& rank) {
    PointToPoint const links(rank.communicator, small);
    GpuBuffer<std::uint32_t> const data(rank.device, 4 * 100);
    std::vector<std::uint32_t> const values(100, 7 + static_cast<std::uint32_t>(rank.rank));
    copyToDevice(data, std::span<std::uint32_t const>(values));
    for (std::size_t step = 0; step < 3; ++step) {
      layout::Messages messages{};
      auto const peer = step == 1 ? rank.rank : 1 - rank.rank;
      messages.addSend(peer, data.data() + step * 100, 400);
      messages.addRecv(peer, data.data() + (step + 1) * 100, 400);
      start<LL128>(rank, links, messages, true);
    }
    rank.synchronize();
    CHECK(copyToHost(data).back() == 7 + static_cast<std::uint32_t>(rank.rank));
  });
}

TEST_CASE("a message to oneself in place moves nothing, nor does one that is only prepared") {
  everySchedule(2, [](Rank& rank) {
    PointToPoint const links(rank.communicator, small);
    GpuBuffer<std::uint8_t> const in(rank.device, 4000), out(rank.device, 4000);
    in.fill(static_cast<unsigned char>(1 + rank.rank));
    auto const peer = 1 - rank.rank;
    layout::Messages messages{};
    // Other blocks read it meanwhile.
    messages.addSend(rank.rank, in.data(), in.size());
    messages.addRecv(rank.rank, in.data(), in.size());
    messages.addSend(peer, in.data(), in.size());
    messages.addRecv(peer, out.data(), out.size());
    start<LL128>(rank, links, messages);
    layout::Messages prepared{};
    prepared.send[rank.rank] = {in.data(), in.size()};
    prepared.recv[rank.rank] = {out.data(), out.size()};
    start<LL128>(rank, links, prepared);
    rank.synchronize();
    CHECK(copyToHost(out) == std::vector<std::uint8_t>(out.size(), static_cast<std::uint8_t>(1 + peer)));
  });
}

TEST_CASE("launches that do not fit the links") {
  forEachRank(1, [](Rank& rank) {
    PointToPoint const links(rank.communicator, small);
    auto const refusal = [&](auto kernel, unsigned blocks, unsigned threads, std::uint32_t lines) {
      auto handle = links.deviceHandle();
      handle.layout.lines = lines;
      launch(rank.stream, {.blocks = blocks, .threads = threads}, kernel, handle, layout::Messages{}, 1);
      return reportOf(rank);
    };
    CHECK(contains(refusal(MessageKernel<LL128>{}, 1, 32, 1), "a grid of 1 blocks: at least 2 are needed"));
    CHECK(contains(refusal(MessageKernel<LL16>{}, 2, 32, 1), "LL16 packets: the links were made for LL128"));
    CHECK(contains(refusal(MessageKernel<LL128>{}, 2, 32, 0), "LL128 packets: the links were made for LL16"));
    CHECK(contains(refusal(MessageKernel<LL128>{}, 2, 40, 1), "blocks of 40 threads: at least 32 are needed"));
    CHECK(refusal(MessageKernel<LL128>{}, 2, 32, 1).empty());
    CHECK(refusal(MessageKernel<LL16>{}, 2, 40, 0).empty());
  });
}

TEST_CASE("messages to oneself of which one end is missing, or shorter") {
  forEachRank(1, [](Rank& rank) {
    PointToPoint const links(rank.communicator, small);
    GpuBuffer<std::byte> const buffer(rank.device, 64);
    auto const refusal = [&](int sent, int received) {
      layout::Messages messages{};
      if (sent >= 0) messages.addSend(0, buffer.data(), static_cast<std::uint64_t>(sent));
      if (received >= 0) messages.addRecv(0, buffer.data() + 32, static_cast<std::uint64_t>(received));
      start<LL128>(rank, links, messages);
      return reportOf(rank);
    };
    CHECK(contains(refusal(8, -1), "a message of 0 bytes to itself, of which it receives 0"));
    CHECK(contains(refusal(-1, 8), "a message of 0 bytes to itself, of which it receives 0"));
    CHECK(contains(refusal(8, 7), "a message of 8 bytes to itself, of which it receives 7"));
    CHECK(refusal(8, 8).empty());
  });
}

TEST_CASE("a message of another size") { forEachRank(2, checkAnotherSize); }

TEST_CASE("the chunks of a message that nobody receives") {
  // By the limits of lanes and of packets; one chunk of each lane is always on its way.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> const chunks{{0, 1},    {1, 1},    {1919, 1}, {1920, 1},
                                                                    {1921, 2}, {3840, 2}, {3841, 3}};
  forEachRank(2, [&](Rank& rank) {
    GpuBuffer<std::byte> const buffer(rank.device, 4096);
    for (auto const& [bytes, count] : chunks) {
      PointToPoint const links(rank.communicator, small);
      layout::Messages messages{};
      if (rank.rank == 0) messages.addSend(1, buffer.data(), bytes);
      start<LL128>(rank, links, messages);
      rank.synchronize();
      CHECK(links.undelivered(1) == (rank.rank == 0 ? count : 0));
      rank.communicator.bootstrap()->barrier();
    }
  });
}

TEST_CASE("a wait without an end says for what, and which thread") {
  // Rank 0 sends `sends` messages to rank 1, which receives `receives`; `asks`: and wants one back.
  auto const uneven = [](std::uint64_t bytes, int sends, int receives, bool asks = false) {
    return deadLockOf(2, [=](Rank& rank) {
      PointToPoint const links(rank.communicator, small);
      GpuBuffer<std::byte> const buffer(rank.device, 8192);
      layout::Messages messages{};
      if (rank.rank == 0) messages.addSend(1, buffer.data(), bytes);
      if (rank.rank == 0 && asks) messages.addRecv(1, buffer.data(), bytes);
      if (rank.rank == 1) messages.addRecv(0, buffer.data(), bytes);
      for (int i = 0; i < (rank.rank == 0 ? sends : receives); ++i) start<LL128>(rank, links, messages);
      rank.synchronize();
    });
  };
  auto const none = uneven(100, 1, 2);
  CHECK_MESSAGE(contains(none, "block 1 thread 0: waits for a message of rank 0, lane 0, chunk expected 2, seen 1"),
                none);
  auto const room = uneven(5000, 1, 0);
  CHECK_MESSAGE(contains(room,
                         "block 0 thread 0: waits for room for a message to rank 1, lane 0, chunks taken "
                         "expected 1, seen 0"),
                room);
  auto const rest = uneven(5000, 1, 1, true);
  CHECK_MESSAGE(contains(rest, "block 1 thread 0: waits for a message of rank 1, lane 0, chunk expected 1, seen 0"),
                rest);
}
