// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Collectives in one exchange, through the workspaces.
#include "explored_collective.hpp"
#include "support/epilogue.hpp"

using namespace mscclpp_test;

namespace {

// Several rounds, of bytes too, ragged ends, then less than a thread each.
CollectiveCase const rounds{
    .ranks = 3, .counts = {1500, 5}, .blocks = 2, .threads = 32, .regionBytes = 1536, .root = 1};
CollectiveCase const alone{.ranks = 1, .counts = {300, 0}, .blocks = 2, .threads = 40};
CollectiveCase const shifted{
    .ranks = 2, .counts = {0, 130}, .blocks = 1, .threads = 48, .inPlace = true, .overlap = true, .offset = 1};

using Fours = PacketTransport<LL16>;
using Lines = PacketTransport<LL128>;
using Stage = MemoryTransport<2>;

}  // namespace

TEST_CASE("parts move") {
  explored<AllGather<OneExchange, Lines>>(rounds);
  explored<AllToAll<OneExchange, Fours, 3>>(rounds);
  explored<AllToAll<OneExchange, Stage>>(rounds);
  explored<Broadcast<OneExchange, Fours>>(rounds);
  explored<Scatter<OneExchange, Stage>>(rounds);
  explored<Gather<OneExchange, Lines>>(rounds);
  explored<AllGather<OneExchange, Stage>>(alone, 1);
  explored<AllToAll<OneExchange, Fours>>(shifted);
}

TEST_CASE("parts are reduced") {
  explored<ReduceScatter<OneExchange, Lines, Sum>, BFloat16>(rounds);
  explored<Reduce<OneExchange, Stage, Max>, float>(rounds);
  explored<ReduceScatter<OneExchange, Fours, Avg>, float>(shifted);
  explored<ReduceScatter<OneExchange, Stage, Sum>, float>(alone, 1);
}

TEST_CASE("no epilogue is asked for an index past the end") {
  checkEpilogueIndices<Reduce<OneExchange, PacketTransport<LL16>, Sum>,
                       Reduce<OneExchange, PacketTransport<LL128>, Sum>>();
}

// A call without elements ends before the peer has made it.
TEST_CASE("no elements") {
  using Collective = AllGather<OneExchange, Fours>;
  everySchedule(
      2,
      [](Rank& rank) {
        Team const team(rank.communicator, Collective::requirement(2, 1, 32));
        GpuBuffer<std::uint8_t> const in(rank.device, 16), out(rank.device, 32);
        for (int turn = 0; turn < 2; ++turn) {
          if (turn == rank.rank) {
            launch(rank.stream, {.blocks = 1, .threads = 32}, CollectiveKernel<Collective, std::uint8_t>{}, in.data(),
                   out.data(), 0u, 0, team.deviceHandle());
            rank.communicator.synchronize(rank.stream);
          }
          rank.communicator.bootstrap()->barrier();
        }
      },
      1);
}

TEST_CASE("results are pushed") {
  explored<AllReduce<TwoShotPush, Stage, Sum>, float>(rounds);
  explored<AllReduce<TwoShotPush, Stage, Sum>, BFloat16>(shifted);
  explored<Reduce<TwoShotPush, Stage, Sum>, float>(rounds);
  explored<Reduce<TwoShotPush, Stage, Sum>, BFloat16>(shifted);
  explored<Reduce<TwoShotPush, Stage, Sum>, float>(alone, 1);
}

TEST_CASE("broadcast and reduce in two exchanges") {
  explored<Broadcast<TwoShotRooted, Stage>, std::uint32_t>(rounds);
  explored<Broadcast<TwoShotRooted, Lines>, BFloat16>(shifted);
  explored<Broadcast<TwoShotRooted, Fours, 3>, std::uint32_t>(rounds);
  explored<Broadcast<TwoShotRooted, Lines>, std::uint8_t>(alone, 1);
  explored<Reduce<TwoShotRooted, Stage, Sum>, float>(rounds);
  explored<Reduce<TwoShotRooted, Lines, Sum>, BFloat16>(shifted);
  explored<Reduce<TwoShotRooted, Fours, Sum, 3>, float>(rounds);
  explored<Reduce<TwoShotRooted, Lines, Sum>, float>(alone, 1);
  checkEpilogueIndices<Reduce<TwoShotRooted, Fours, Sum>, Reduce<TwoShotRooted, Lines, Sum>>();
}
