// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Messages between pairs of ranks: random patterns, sizes on both sides of every limit, calls of some ranks only, and
// what goes wrong.
#include "mscclpp/algorithms/collective/send_recv.hpp"

#include <doctest/doctest.h>

#include <string>

#include "support/messages.hpp"

using namespace mscclpp_test;

namespace {

// Small slots, so that messages take many chunks and rings go round.
layout::PointToPointRequirement smallRings() {
  return {.lanes = 2, .slots = 2, .stageBytes = 256, .packetBytes = 128, .packetLimit = 5000};
}
std::vector<std::int64_t> const sizes{0, 1, 7, 128, 1919, 1921, 3840, 4999, 5000, 5001, 8192, 20011};

// The links that the tests' machine makes are those of whole lines.
using Format = LL128;

std::string errorOf(std::function<void()> const& call) {
  try {
    call();
  } catch (Error const& error) {
    return error.what();
  }
  return {};
}

void checkContains(std::string const& text, char const* part) {
  CHECK_MESSAGE(text.find(part) != std::string::npos, text);
}

}  // namespace

TEST_CASE("random patterns of messages, one kernel after the other") {
  for (int ranks : {1, 2, 3, 4, 7}) {
    CAPTURE(ranks);
    if (!canRun(ranks)) continue;
    forEachRank(ranks, [&](Rank& rank) {
      PointToPoint const links(rank.communicator, smallRings());
      std::vector<std::unique_ptr<MessageBuffers>> calls;
      for (std::uint64_t seed = 1; seed <= 4; ++seed) {
        auto const pattern = MessagePattern::random(rank.size, seed, sizes);
        calls.push_back(std::make_unique<MessageBuffers>(rank, pattern, seed, seed % 2 == 0 ? 3 : 0));
      }
      rank.meet();
      for (std::uint64_t seed = 1; seed <= 4; ++seed) {
        // Ranks may launch different grids.
        auto const blocks = 2u + static_cast<unsigned>((seed + static_cast<std::uint64_t>(rank.rank)) % 5);
        startMessages<Format>(rank, links, *calls[seed - 1], blocks, seed % 2 == 0 ? 64 : 32, seed > 2,
                              1 + static_cast<int>(seed % 2));
        rank.pace();
      }
      rank.synchronize();
      for (auto const& call : calls) call->check();
      for (int peer = 0; peer < rank.size; ++peer) CHECK(links.undelivered(peer) == 0);
    });
  }
}

namespace {

// Messages whose bytes differ each time, so that one that is too early shows. Two blocks: what the first has written it
// sends, and what the second has received it looks at.
struct RoundsKernel {
  MSCCLPP_DEVICE void operator()(layout::PointToPointHandle const& links, layout::Messages const& messages,
                                 std::uint32_t rounds, unsigned* wrong) const {
    auto const block = thisBlock();
    bool const sends = thisGrid().blockRank() == 0;
    int const peer = 1 - links.rank;
    auto* const out = static_cast<std::uint32_t*>(const_cast<void*>(messages.send[peer].data));
    auto* const in = static_cast<std::uint32_t*>(messages.recv[peer].data);
    auto const words = static_cast<std::uint32_t>(messages.send[peer].bytes / 4);
    for (std::uint32_t round = 1; round <= rounds; ++round) {
      for (auto i = block.rank(); sends && i < words; i += block.size()) out[i] = round * 4099 + i;
      block.sync();
      SendRecv<Format>{links}(thisGrid(), messages);
      block.sync();
      for (auto i = block.rank(); !sends && i < words; i += block.size()) {
        if (in[i] != round * 4099 + i) fetchAdd<Order::relaxed, Scope::device>(wrong, 1u);
      }
      block.sync();
    }
  }
};

}  // namespace

TEST_CASE("round after round in one kernel, each with bytes of its own") {
  if (!canRun(2)) return;
  forEachRank(2, [](Rank& rank) {
    PointToPoint const links(rank.communicator, {.lanes = 1});
    std::uint32_t const rounds = rank.device.kind == DeviceKind::cuda ? 20'000 : 20;
    for (std::size_t words : {1, 4, 30, 333, 1000}) {
      for (std::size_t skipped : {0, 1}) {
        GpuBuffer<std::uint32_t> const out(rank.device, words + skipped), in(rank.device, words + skipped);
        GpuBuffer<unsigned> const wrong(rank.device, 1);
        layout::Messages messages{};
        messages.addSend(1 - rank.rank, out.data() + skipped, words * 4);
        messages.addRecv(1 - rank.rank, in.data() + skipped, words * 4);
        rank.meet();
        launch(rank.stream, {.blocks = 2, .threads = 128}, RoundsKernel{}, links.deviceHandle(), messages, rounds,
               wrong.data());
        rank.synchronize();
        auto const errors = copyToHost(wrong)[0];
        CHECK_MESSAGE(errors == 0, words, " words behind ", skipped);
      }
    }
  });
}

TEST_CASE("only the ranks of a message call") {
  if (!canRun(3)) return;
  forEachRank(3, [](Rank& rank) {
    PointToPoint const links(rank.communicator, smallRings());
    for (std::uint64_t call = 0; call < 6; ++call) {
      int const from = static_cast<int>(call % 3);
      int const to = static_cast<int>((call + 1 + call / 3) % 3);
      if (rank.rank != from && rank.rank != to) continue;
      MessagePattern pattern;
      pattern.bytes.assign(3, std::vector<std::int64_t>(3, -1));
      pattern.bytes[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)] =
          700 * static_cast<std::int64_t>(call);
      MessageBuffers const buffers(rank, pattern, call, 0);
      startMessages<Format>(rank, links, buffers, 2, 32);
      rank.communicator.synchronize(rank.stream);
      buffers.check();
    }
    rank.synchronize();
  });
}

TEST_CASE("a message of another size is refused where it is received") {
  if (!canRun(2)) return;
  forEachRank(2, [](Rank& rank) {
    for (auto const& [sent, expected] : {std::pair<std::int64_t, std::int64_t>{100, 101}, {100, 9000}, {512, 0}}) {
      // The sender needs no more room than there is, so only the receiver has something to say.
      auto need = smallRings();
      need.packetLimit = 200;
      PointToPoint const links(rank.communicator, need);
      MessagePattern pattern;
      pattern.bytes = {{-1, rank.rank == 0 ? sent : expected}, {-1, -1}};
      MessageBuffers const buffers(rank, pattern, 1, 0);
      startMessages<Format>(rank, links, buffers, 2, 32);
      auto const error = errorOf([&] { rank.communicator.synchronize(rank.stream); });
      if (rank.rank == 1) {
        checkContains(error, ("refused a message of " + std::to_string(sent) + " bytes from rank 0, where " +
                              std::to_string(expected) + " are to be received")
                                 .c_str());
      }
      rank.communicator.bootstrap()->barrier();
    }
  });
}

TEST_CASE("grids and formats that do not fit the links are refused") {
  if (!canRun(1)) return;
  forEachRank(1, [](Rank& rank) {
    PointToPoint const links(rank.communicator, smallRings());
    layout::Messages const none{};
    auto const refusal = [&](auto kernel, unsigned blocks) {
      launch(rank.stream, {.blocks = blocks, .threads = 32}, kernel, links.deviceHandle(), none, 1);
      return errorOf([&] { rank.communicator.synchronize(rank.stream); });
    };
    checkContains(refusal(MessageKernel<LL128>{}, 1), "a grid of 1 blocks: at least 2 are needed");
    checkContains(refusal(MessageKernel<LL16>{}, 2), "messages by LL16 packets: the links were made for LL128");
  });
}

TEST_CASE("what cannot be made is refused on all ranks") {
  if (!canRun(2)) return;
  forEachRank(2, [](Rank& rank) {
    auto const refusal = [&](layout::PointToPointRequirement const& need, std::vector<int> ranks = {}) {
      return errorOf([&] { PointToPoint const links(rank.communicator, need, std::move(ranks)); });
    };
    auto need = smallRings();
    need.lanes = 0;
    checkContains(refusal(need), "PointToPoint with lanes = 0; 1 to 1024 are possible");
    need = smallRings();
    if (rank.rank == 1) need.slots = 4;
    checkContains(refusal(need), "all must ask for the same");
    need = smallRings();
    need.stagesLater = rank.rank == 1;
    checkContains(refusal(need), "asks for stagesLater = ");
    need.slots = 3;
    checkContains(refusal(need), "PointToPoint with slots = 3; a power of two is possible");
    checkContains(refusal(smallRings(), {rank.rank, 9}), "9");
    PointToPoint const links(rank.communicator, smallRings());
    checkContains(errorOf([&] { (void)links.undelivered(2); }), "there are ranks 0 to 1");
  });
}

TEST_CASE("what nobody has received is counted") {
  if (!canRun(2)) return;
  forEachRank(2, [](Rank& rank) {
    PointToPoint const links(rank.communicator, smallRings());
    MessagePattern pattern;
    pattern.bytes = {{-1, 128}, {-1, -1}};
    MessageBuffers buffers(rank, pattern, 1, 0);
    if (rank.rank == 0) startMessages<Format>(rank, links, buffers, 2, 32);
    rank.synchronize();
    if (rank.rank == 0) CHECK(links.undelivered(1) == 1);
    rank.communicator.bootstrap()->barrier();
    if (rank.rank == 1) startMessages<Format>(rank, links, buffers, 2, 32);
    rank.synchronize();
    CHECK(links.undelivered(1 - rank.rank) == 0);
    buffers.check();
  });
}

TEST_CASE("chunks grow with the message, as far as slots hold them") {
  if (!canRun(2)) return;
  forEachRank(2, [](Rank& rank) {
    constexpr std::int64_t KiB = 1024;
    PointToPoint const links(rank.communicator,
                             {.lanes = 1, .slots = 16, .stageBytes = 512 * KiB, .packetLimit = 100 * KiB});
    std::pair<std::int64_t, std::uint64_t> const expected[] = {{300 * KiB, 3},     // of 128 KiB
                                                               {1024 * KiB, 8},    // still
                                                               {1025 * KiB, 8},    // of an eighth, the last shorter
                                                               {2048 * KiB, 8},    // of 256 KiB
                                                               {6144 * KiB, 12}};  // of 512 KiB
    for (auto const& [bytes, chunks] : expected) {
      MessagePattern pattern;
      pattern.bytes = {{-1, bytes}, {-1, -1}};
      MessageBuffers const buffers(rank, pattern, chunks, 0);
      if (rank.rank == 0) startMessages<Format>(rank, links, buffers, 2, 128);
      rank.synchronize();
      if (rank.rank == 0) CHECK_MESSAGE(links.undelivered(1) == chunks, bytes, " bytes");
      rank.communicator.bootstrap()->barrier();
      if (rank.rank == 1) startMessages<Format>(rank, links, buffers, 2, 64);
      rank.synchronize();
      buffers.check();
      rank.communicator.bootstrap()->barrier();
    }
  });
}
