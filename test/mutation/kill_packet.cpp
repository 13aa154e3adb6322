// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Packets between channels, of every format.
#include <vector>

#include "pair.hpp"
#include "support/reference.hpp"

using namespace mscclpp_test;

namespace {

template <class P>
struct PacketKernel {
  MSCCLPP_DEVICE void operator()(MemoryChannelDeviceHandle const& channel, std::uint64_t bytes, std::uint32_t rounds,
                                 std::uint64_t half) const {
    for (std::uint32_t flag = 1; flag <= rounds; ++flag) {
      auto const offset = flag % 2 * half;
      channel.template putPackets<P>(offset, 8, bytes, thisBlock().rank(), thisBlock().size(), flag);
      channel.template unpackPackets<P>(offset, 8 + bytes, bytes, thisBlock().rank(), thisBlock().size(), flag);
      thisBlock().sync();
    }
  }
};

}  // namespace

TEST_CASE_TEMPLATE("packets of a channel", P, LL8, LL16, LL128) {
  for (std::size_t bytes : {1, 24, 119, 121, 600}) {
    everySchedule(
        2,
        [&](Rank& rank) {
          std::uint64_t const half = 2048;
          // Eight bytes in front and behind that must stay as they are.
          Pair pair(rank, 2 * bytes + 16, 2 * half);
          auto const mine = randomInput<std::uint8_t>(bytes, rank.rank, bytes);
          auto const theirs = randomInput<std::uint8_t>(bytes, 1 - rank.rank, bytes);
          pair.local.fill(0xee);
          copyToDevice(pair.local, std::span<std::uint8_t const>(mine), 8);
          launch(rank.stream, {.blocks = 1, .threads = 32}, PacketKernel<P>{}, pair.channel.deviceHandle(), bytes, 4u,
                 half);
          rank.synchronize();
          std::vector<std::uint8_t> expected(8, 0xee);
          expected.insert(expected.end(), mine.begin(), mine.end());
          expected.insert(expected.end(), theirs.begin(), theirs.end());
          expected.insert(expected.end(), 8, 0xee);
          CHECK(copyToHost(pair.local) == expected);
          // Nothing is sent past the last packet.
          auto const inbox = copyToHost(pair.inbox);
          auto const used = P::slotsFor(bytes) * P::slotBytes;
          for (auto const begin : {used, half + used}) {
            auto const at = inbox.begin() + static_cast<std::ptrdiff_t>(begin);
            CHECK(std::vector<std::uint8_t>(at, at + static_cast<std::ptrdiff_t>(half - used)) ==
                  std::vector<std::uint8_t>(half - used, 0));
          }
        },
        4);
  }
}

TEST_CASE("flags of packets") {
  CHECK(packetFlag(0) != 0);
  CHECK(packetFlag(std::uint64_t{1} << 31) != 0);
  for (std::uint64_t epoch = 1; epoch < 100; ++epoch) {
    CHECK(packetFlag(epoch) != packetFlag(epoch + 1));
    CHECK(packetFlag(epoch) != packetFlag(epoch + 2));
  }
}
