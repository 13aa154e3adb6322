// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tokens to experts and back: nothing to find, whatever the schedule, and what goes wrong where rows are sent by hand.
#include <doctest/doctest.h>

#include <random>

#include "check/harness.hpp"
#include "check/sweep.hpp"
#include "support/experts.hpp"

using namespace check_test;
using namespace mscclpp_test;

namespace {

ExpertsCase caseOf(int ranks, std::uint64_t variant) {
  std::mt19937_64 engine(variant * 4099 + static_cast<std::uint64_t>(ranks));
  auto const below = [&](unsigned limit) { return static_cast<std::uint32_t>(engine() % limit); };
  ExpertsCase test{.ranks = ranks};
  test.limits = {.experts = 1 + below(2 * static_cast<unsigned>(ranks)),
                 .topK = 1 + below(4),
                 .tokens = 1 + below(6),
                 .hidden = 1 + below(40),
                 .elementBytes = 4,
                 .blocks = 1 + below(3),
                 .partOfEach = below(2) == 0};
  test.crowd = static_cast<Crowd>(below(4));
  test.alignment = 1 + below(4);
  test.rowsOfExpert = below(3) == 0 ? 1 + below(4) : 0;
  test.movers = test.rowsOfExpert == 0 ? below(3) : 0;
  test.threads = 32 + 32 * below(2);
  test.overlap = below(2) == 0;
  test.repeats = 1 + below(2);
  test.byToken = test.movers == 0 && test.rowsOfExpert == 0 && below(3) == 0;
  test.seed = static_cast<unsigned>(variant);
  return test;
}

// One token of each of two ranks, for the other's expert, sent by hand in two rounds.
enum class Flaw : std::uint8_t { none, flagFirst, countsLate, slotReused, partReused };

layout::ExpertLimits const pair{.experts = 2, .topK = 1, .tokens = 1, .hidden = 4, .elementBytes = 4, .blocks = 1};

template <Flaw F>
struct DispatchByHand {
  MSCCLPP_DEVICE void operator()(float const* x, PlacedRows<float> const& out, DeviceExperts const& experts) const {
    auto const warp = thisWarp();
    Dispatch<float, float> const dispatch(experts, thisGrid());
    auto const& round = dispatch.round();
    auto const self = static_cast<unsigned>(experts.rank());
    int const peer = 1 - experts.rank();
    if (warp.rank() == 0 && F != Flaw::slotReused) round.ready(peer);
    warp.sync();
    if (warp.rank() == 0) {
      if constexpr (F == Flaw::countsLate) round.arrive(peer, experts.layout.countFlag(self));
      for (unsigned i = 0; i < 2; ++i) {
        experts.counts(peer, experts.rank())[i] = 1;  // <- counts
        experts.counts(experts.rank(), experts.rank())[i] = 0;
      }
      if constexpr (F != Flaw::countsLate) round.arrive(peer, experts.layout.countFlag(self));
      round.arrive(experts.rank(), experts.layout.countFlag(self));
      experts.head(peer, experts.rank(), 0) = {0, 0, layout::noExpertRow, {{0, 0, 1, layout::noExpertRow}}};
      if constexpr (F == Flaw::flagFirst) round.arrive(peer, experts.layout.rowFlag(self, 0));
    }
    auto* const row = experts.row<float>(peer, experts.rank(), 0);
    for (auto i = warp.rank(); i < pair.hidden; i += warp.size()) row[i] = x[i];  // <- row
    warp.sync();
    if (warp.rank() == 0 && F != Flaw::flagFirst) round.arrive(peer, experts.layout.rowFlag(self, 0));
    auto const& laidOut = dispatch.layOut(PackedByExpert{});  // <- layOut
    dispatch.place(thisGrid(), laidOut, out);                 // <- place
    dispatch.end();
  }
};

template <Flaw F>
struct CombineByHand {
  MSCCLPP_DEVICE void operator()(float const* x, Routing<std::int64_t> const& routing, float* y,
                                 DeviceExperts const& experts) const {
    auto const warp = thisWarp();
    Combine<float> const combine(experts, thisGrid());
    int const peer = 1 - experts.rank();
    if (warp.rank() == 0 && F != Flaw::partReused) combine.round().ready(peer);
    warp.sync();
    auto* const part = experts.part<float>(peer, 0, 0);
    for (auto i = warp.rank(); i < pair.hidden; i += warp.size()) part[i] = x[i];  // <- part
    warp.sync();
    if (warp.rank() == 0) combine.round().arrive(peer, 0);
    combine.fold(thisGrid(), routing, MatrixView{y, 1, pair.hidden});  // <- fold
    combine.end();
  }
};

template <Flaw F>
void runByHand(Rank& rank) {
  Experts const experts(rank.communicator, pair);
  GpuBuffer<float> const x(rank.device, pair.hidden), rows(rank.device, pair.hidden), y(rank.device, pair.hidden);
  GpuBuffer<std::int64_t> const indices(rank.device, 1);
  x.fill(rank.rank);
  std::int64_t const expert = 1 - rank.rank;
  copyToDevice(indices, std::span<std::int64_t const>(&expert, 1));
  Routing<std::int64_t> const routing{indices.data(), nullptr, 1, 1};
  rank.meet();
  for (int round = 0; round < 2; ++round) {
    launch(rank.stream, {.blocks = 1, .threads = 32}, DispatchByHand<F>{}, x.data(),
           PlacedRows<float>{{rows.data(), 1, pair.hidden}}, experts.deviceHandle());
  }
  for (int round = 0; round < 2; ++round) {
    launch(rank.stream, {.blocks = 1, .threads = 32}, CombineByHand<F>{}, x.data(), routing, y.data(),
           experts.deviceHandle());
  }
  rank.synchronize();
}

template <Flaw F>
void checkFlaw(Expected const& expected) {
  checkFound(expected, {}, runByHand<F>, std::source_location::current().file_name());
  checkSilent({.silentSchedules = 50}, runByHand<Flaw::none>);
}

}  // namespace

TEST_CASE("tokens to experts and back") {
  for (int ranks : {1, 2, 3, 5, 8, 16}) {
    sweep(ranks, [=](Rank& rank, std::uint64_t variant) { runExperts<float>(rank, caseOf(ranks, variant)); });
  }
}

TEST_CASE("the same quantised, and in pieces") {
  for (int ranks : {2, 3}) {
    sweep(ranks, [=](Rank& rank, std::uint64_t variant) {
      auto test = caseOf(ranks, variant);
      test.limits.hidden += 1020 * static_cast<std::uint32_t>(variant % 2);
      test.limits.tokens = std::min(test.limits.tokens, 3u);
      runExperts<float, Float8E4M3>(rank, test);
    });
  }
}

TEST_CASE("a row's flag goes out before the row") { checkFlaw<Flaw::flagFirst>({FindingKind::race, {"row", "place"}}); }

TEST_CASE("the counts' flag overtakes the counts") {
  checkFlaw<Flaw::countsLate>({FindingKind::race, {"counts", "layOut"}});
}

TEST_CASE("a row is written that its receiver may still place") {
  checkFlaw<Flaw::slotReused>({FindingKind::race, {"row", "place"}});
}

TEST_CASE("a part is written that may still be added up") {
  checkFlaw<Flaw::partReused>({FindingKind::race, {"part", "fold"}});
}
