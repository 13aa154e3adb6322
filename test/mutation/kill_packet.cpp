// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Packets between channels, of every format, and the width of the accesses that move data.
#include <vector>

#include "explored.hpp"
#include "mscclpp/device/device_handle.hpp"
#include "support/pair.hpp"
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

namespace {

// Waits for the first and the third of three slots, which have come, then for the third alone. What was in the
// registers for the second stays there.
template <class P>
struct AwaitKernel {
  MSCCLPP_DEVICE void operator()(std::byte const* slots, std::uint32_t* taken) const {
    Payload<P::words> payloads[3]{};
    payloads[1].word[0] = 77;
    awaitPackets<P>(nullptr, {slots, slots + P::slotBytes, slots + 2 * P::slotBytes}, {true, false, true}, 9, payloads,
                    [](unsigned slot) {
                      return WaitFor{layout::WaitKind::packet, 0, slot, 9};
                    });
    for (unsigned i = 0; i < 3; ++i) taken[i] = payloads[i].word[0];
    taken[3] =
        awaitPacket<P>(nullptr, slots + 2 * P::slotBytes, 9, {layout::WaitKind::packet, 0, 2, 9}).word[P::words - 1];
  }
};

// What one thread alone does with `bytes` of two buffers.
struct CopyBytes {
  MSCCLPP_DEVICE void operator()(std::uint8_t* to, std::uint8_t const* from, std::uint64_t bytes) const {
    copy(thisBlock(), to, from, bytes);
  }
};
struct ReadPayload {
  MSCCLPP_DEVICE void operator()(std::uint8_t* to, std::uint8_t const* from, std::uint64_t bytes) const {
    PayloadReader<std::uint8_t, 2, 8> const reader({from, bytes});
    auto const payload = reader.read(reader.window(0), 0);
    if (bytes > 8)
      to[0] =  // never; keeps the compiler from leaving out what it reads
          static_cast<std::uint8_t>(payload.word[0] + payload.word[1]);
  }
};
struct WritePayload {
  MSCCLPP_DEVICE void operator()(std::uint8_t* to, std::uint8_t const*, std::uint64_t bytes) const {
    PayloadWriter<std::uint8_t, 2, 8> const writer({to, bytes});
    writer.write(writer.window(0), 0, Payload<2>{{3, 4}});
  }
};

// How many plain accesses the checker sees for `bytes`, beyond those for none, with buffers so far from a multiple
// of 16.
template <class Kernel>
std::int64_t accesses(std::uint64_t toAstray, std::uint64_t fromAstray, std::uint64_t bytes) {
  auto const seen = [&](std::uint64_t count) {
    auto const result = check_test::exploreRanks({.ranks = 1},
                                                 [&](Rank& rank) {
                                                   GpuBuffer<std::uint8_t> to(rank.device, 1024);
                                                   GpuBuffer<std::uint8_t> from(rank.device, 1024);
                                                   launch(rank.stream, {.blocks = 1, .threads = 1}, Kernel{},
                                                          to.data() + toAstray, from.data() + fromAstray, count);
                                                   rank.synchronize();
                                                 },
                                                 {.schedules = 1});
    CHECK(result.ok());
    return static_cast<std::int64_t>(result.checkedAccesses);
  };
  return seen(bytes) - seen(0);
}

}  // namespace

TEST_CASE_TEMPLATE("some slots of several are awaited", P, LL8, LL16) {
  everySchedule(
      1,
      [](Rank& rank) {
        std::vector<std::uint32_t> slots;
        for (std::uint32_t slot = 0; slot < 3; ++slot) {
          for (std::uint32_t word = 0; word < P::words; ++word) {
            slots.insert(slots.end(), {10 * slot + word, slot == 1 ? 8u : 9u});
          }
        }
        GpuBuffer<std::uint32_t> const memory(rank.device, slots.size());
        GpuBuffer<std::uint32_t> const taken(rank.device, 4);
        copyToDevice(memory, std::span<std::uint32_t const>(slots));
        launch(rank.stream, {.blocks = 1, .threads = 1}, AwaitKernel<P>{},
               reinterpret_cast<std::byte const*>(memory.data()), taken.data());
        rank.synchronize();
        CHECK(copyToHost(taken) == std::vector<std::uint32_t>{0, 77, 20, 20 + P::words - 1});
      },
      1);
}

// What costs only time is seen by nothing else. Numbers differ a little with the compiler's optimisation.
TEST_CASE("accesses are as wide as the addresses allow") {
  auto const clearlyFewer = [](std::int64_t few, std::int64_t many) { return 5 * few < 4 * many; };
  // The checker counts one of 16 bytes as two of 8.
  CHECK(clearlyFewer(accesses<CopyBytes>(0, 0, 512), accesses<CopyBytes>(0, 4, 512)));
  CHECK(clearlyFewer(accesses<CopyBytes>(0, 8, 512), accesses<CopyBytes>(0, 4, 512)));
  CHECK(clearlyFewer(accesses<CopyBytes>(0, 4, 512), accesses<CopyBytes>(0, 2, 512)));
  CHECK(clearlyFewer(accesses<CopyBytes>(0, 2, 512), accesses<CopyBytes>(0, 1, 512)));
  // A whole payload that ends where the buffer does.
  CHECK(clearlyFewer(accesses<ReadPayload>(0, 0, 8), accesses<ReadPayload>(0, 1, 8)));
  CHECK(clearlyFewer(accesses<WritePayload>(0, 0, 8), accesses<WritePayload>(1, 0, 8)));
}

TEST_CASE("flags of packets") {
  CHECK(packetFlag(0) != 0);
  CHECK(packetFlag(std::uint64_t{1} << 31) != 0);
  for (std::uint64_t epoch = 1; epoch < 100; ++epoch) {
    CHECK(packetFlag(epoch) != packetFlag(epoch + 1));
    CHECK(packetFlag(epoch) != packetFlag(epoch + 2));
  }
}
