// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Collectives without copies, and the agreement on a number.
#include "explored_collective.hpp"
#include "mscclpp/algorithms/agree.hpp"

using namespace mscclpp_test;

namespace {

// Several turns of each thread and a ragged end; aligned, in place, and neither.
CollectiveCase const ragged{.ranks = 3, .counts = {1007, 5}, .blocks = 2, .threads = 32, .root = 1};
CollectiveCase const whole{.ranks = 2, .counts = {1024, 0}, .blocks = 2, .threads = 32, .overlap = true};
CollectiveCase const shifted{.ranks = 2, .counts = {200}, .blocks = 1, .threads = 40, .inPlace = true, .offset = 1};

using Stores = PeerMemory<2>;
using Bulk = BulkMemory<128, 3>;

struct AgreeKernel {
  MSCCLPP_DEVICE void operator()(std::uint64_t* out, std::uint64_t high, DeviceTeam const& team) const {
    auto const grid = thisGrid();
    for (std::uint64_t round = 0; round < 3; ++round) {
      auto const mine = high + (static_cast<std::uint64_t>(team.rank) * 7 + round) % 5;
      out[round * grid.size() + grid.rank()] = agreeOnLargest(team, grid, mine);
    }
  }
};

}  // namespace

TEST_CASE("stores") {
  explored<AllGather<Push, Stores>>(ragged);
  explored<AllGather<Push, Stores, 2>>(whole);
  explored<AllToAll<Push, Stores>>(ragged);
  explored<Broadcast<Push, Stores>>(ragged);
  explored<Broadcast<Push, Stores>>(shifted);
  explored<Broadcast<Push, Stores>>({.ranks = 1, .counts = {77}, .blocks = 2, .threads = 32});
  explored<Scatter<Push, Stores>>(ragged);
  explored<Gather<Push, Stores>>(shifted);
}

TEST_CASE("bulk copies") {
  explored<AllGather<Push, Bulk>>(ragged);
  explored<AllToAll<Push, Bulk, 2>>(whole);
  explored<Gather<Push, Bulk>>(ragged);
  explored<AllGather<Push, Bulk>>(shifted);
}

TEST_CASE("loads") {
  explored<AllReduce<Pull, Stores, Sum>, BFloat16>(ragged);
  explored<ReduceScatter<Pull, Stores, Avg, 2>, float>(whole);
  explored<Reduce<Pull, Stores, Max>, float>(shifted);
}

TEST_CASE("agreement") {
  everySchedule(3, [](Rank& rank) {
    constexpr unsigned blocks = 2;
    constexpr unsigned threads = 40;
    Team const team(rank.communicator, agreementRequirement(3, blocks));
    GpuBuffer<std::uint64_t> const out(rank.device, 3 * blocks * threads);
    constexpr auto high = std::uint64_t{5} << 40;
    launch(rank.stream, {.blocks = blocks, .threads = threads}, AgreeKernel{}, out.data(), high, team.deviceHandle());
    rank.synchronize();
    auto const result = copyToHost(out);
    for (std::uint64_t i = 0; i < result.size(); ++i) {
      auto const round = i / (blocks * threads);
      std::uint64_t largest = 0;
      for (std::uint64_t r = 0; r < 3; ++r) largest = std::max(largest, (r * 7 + round) % 5);
      CHECK(result[i] == high + largest);
    }
  });
}
