// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All-reduce over quantised packets: nothing to find, whatever the schedule, and what its callers may forget.
#include <doctest/doctest.h>

#include <random>

#include "check/harness.hpp"
#include "check/sweep.hpp"
#include "support/quantised.hpp"

using namespace check_test;
using namespace mscclpp_test;

namespace {

AllReduceCase caseOf(int ranks, std::uint64_t variant) {
  std::mt19937_64 engine(variant * 5003 + static_cast<std::uint64_t>(ranks));
  auto const below = [&](unsigned limit) { return static_cast<unsigned>(engine() % limit); };
  return {.ranks = ranks,
          .counts = {1 + below(600), 1 + below(40), 1 + below(600)},
          .blocks = 1 + below(3),
          .threads = 32 + 8 * below(5),
          .inPlace = below(2) == 0,
          .overlap = below(2) == 0,
          .offset = below(3),
          .regionBytes = below(2) == 0 ? 0 : 8192u * static_cast<unsigned>(ranks),
          .seed = variant};
}

// A second step of the same kernel reads the whole result.
template <Fault F>
struct ResultOfOthers {
  MSCCLPP_DEVICE void operator()(float const* x, float* y, float* z, std::size_t count, DeviceTeam const& team) const {
    auto const grid = thisGrid();
    AllReduce<TwoShot, Wire<Float8E4M3, 16>, Sum>{team}(grid, View{x, count}, View{y, count});
    if constexpr (!planted<F>) gridBarrier(team, grid);
    for (std::size_t i = grid.rank(); i < count; i += grid.size()) z[i] = y[count - 1 - i];  // <- load
  }
};

template <Fault F>
struct ReadsOthers {
  void operator()(Rank& rank) const {
    constexpr std::size_t count = 256;
    Team const team(rank.communicator, {.blocks = 2, .lineBytes = 8192});
    GpuBuffer<float> const x(rank.device, count), y(rank.device, count), z(rank.device, count);
    x.fill(0);
    rank.meet();
    launch(rank.stream, {.blocks = 2, .threads = 32}, ResultOfOthers<F>{}, x.data(), y.data(), z.data(), count,
           team.deviceHandle());
    rank.synchronize();
    expectOnHost(copyToHost(z)[0] == 0, "a wrong sum");
  }
};

}  // namespace

TEST_CASE_TEMPLATE("sums", W, Wire<Float8E4M3, 16>, Wire<std::int8_t, 32, LL16>, Wire<Float8E5M2, 16, LL8>) {
  for (int ranks : {2, 3, 8}) {
    sweep(ranks,
          [=](Rank& rank, std::uint64_t variant) { checkQuantisedRank<W, BFloat16>(rank, caseOf(ranks, variant)); });
  }
}

TEST_CASE("results of other threads are read without a meeting") {
  checkProgram<ReadsOthers>({FindingKind::race, {"load"}});
}
