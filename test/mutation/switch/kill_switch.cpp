// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Parts that the switch stores into all buffers, and the round around that.
#include "explored_collective.hpp"

using namespace mscclpp_test;

namespace {

using Memory = SwitchMemory<2>;

// Several turns of each thread and ragged ends, then less than what precedes the first whole access.
CollectiveCase const ragged{.ranks = 3, .counts = {1207, 1}, .blocks = 1, .threads = 12, .offset = 1, .root = 1};
CollectiveCase const inPlace{.ranks = 2, .counts = {1030}, .blocks = 2, .threads = 12, .inPlace = true};

}  // namespace

TEST_CASE("all-gather and broadcast") {
  explored<AllGather<SwitchSchedule, Memory>, std::uint8_t>(ragged, 1);
  explored<AllGather<SwitchSchedule, Memory>, std::uint8_t>(inPlace, 1);
  explored<Broadcast<SwitchSchedule, Memory>, std::uint8_t>(ragged, 1);
}

// Packets that the switch hands to all: several rounds with a ragged end, fewer elements than threads.
TEST_CASE("packets to all") {
  using Packets = SwitchPackets<LL8>;
  CollectiveCase const rounds{
      .ranks = 3, .counts = {700, 5}, .blocks = 2, .threads = 32, .regionBytes = 1536, .root = 1};
  explored<AllGather<OneExchange, Packets>>(rounds);
  explored<Broadcast<OneExchange, Packets>>(rounds);
}
