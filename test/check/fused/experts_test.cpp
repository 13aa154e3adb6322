// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tokens to experts and back: nothing to find, whatever the schedule, and what goes wrong where rows are sent by hand.
#include <doctest/doctest.h>

#include "check/fused/experts_cases.hpp"
#include "check/harness.hpp"
#include "check/sweep.hpp"

using namespace check_test;
using namespace mscclpp_test;

namespace {

// One token of each of two ranks, for the other's expert, sent by hand in two rounds, to memory and as packets.
enum class Flaw : std::uint8_t { none, flagFirst, countTorn, slotReused, partReused };

layout::ExpertLimits const pair{.experts = 2,
                                .topK = 1,
                                .tokens = 1,
                                .hidden = 4,
                                .elementBytes = 4,
                                .blocks = 1,
                                .transport = layout::ExpertTransport::memory};

// A row for the peer's expert, none for the own.
template <Flaw F>
MSCCLPP_DEVICE void tellCounts(DeviceExperts const& experts, std::uint64_t round) {
  auto const i = thisWarp().rank();
  int const peer = 1 - experts.rank();
  if (i >= 2) return;
  LL8::store(experts.count(experts.rank(), experts.rank(), i), {{0}}, packetFlag(round), true);
  auto* const count = experts.count(peer, experts.rank(), i);
  if constexpr (F == Flaw::countTorn) {
    auto* const words = reinterpret_cast<std::uint32_t*>(count);
    store<Order::relaxed, Scope::system>(words + 1, packetFlag(round));
    words[0] = 1;  // <- count
  } else {
    LL8::store(count, {{1}}, packetFlag(round), true);
  }
}

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
    tellCounts<F>(experts, round.number());
    if (warp.rank() == 0) {
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

// The same as packets. What comes is looked at, since packets that are taken too early are no race.
template <Flaw F>
struct DispatchLinesByHand {
  MSCCLPP_DEVICE void operator()(float const* x, PlacedRows<float> const& out, DeviceExperts const& experts) const {
    auto const warp = thisWarp();
    Dispatch<float, float> const dispatch(experts, thisGrid());
    auto const& round = dispatch.round();
    int const peer = 1 - experts.rank();
    if (warp.rank() == 0 && F != Flaw::slotReused) round.ready(peer);
    warp.sync();
    tellCounts<F>(experts, round.number());
    auto const flag = impl::LineFlag::of(round.number());
    auto* const row = experts.row<std::byte>(peer, experts.rank(), 0);
    impl::LaneHead head;
    head.token = 0;
    if (warp.rank() == 0) head.entry = {0, 0, 1, layout::noExpertRow};
    head.store(row, experts.layout.headLines, flag);
    impl::LineVectors<4, false, true> const vectors{0, pair.hidden};
    Payload<4> own[2]{};
    vectors.load(own[0], 0, x);
    auto const slots = impl::LineSlots::plain(own, flag);
    auto* const step = row + experts.layout.pieceOfRow(0);
    if constexpr (F == Flaw::flagFirst) {
      for (bool const flags : {true, false}) {
        bool const turn = warp.rank() < 8 && (warp.rank() == 7) == flags;
        if (turn) storeWords4(impl::LineSlots::place(step, 0), slots.of[0]);
        warp.sync();
      }
    } else {
      slots.store(step, vectors);
    }
    dispatch.place(thisGrid(), dispatch.layOut(PackedByExpert{}), out);  // <- layOut of packets
    dispatch.end();
  }
};

template <Flaw F>
struct CombineLinesByHand {
  MSCCLPP_DEVICE void operator()(float const* x, Routing<std::int64_t> const& routing, float* y,
                                 DeviceExperts const& experts) const {
    auto const warp = thisWarp();
    Combine<float> const combine(experts, thisGrid());
    int const peer = 1 - experts.rank();
    if (warp.rank() == 0 && F != Flaw::partReused) combine.round().ready(peer);
    warp.sync();
    impl::LineVectors<4, false, true> const vectors{0, pair.hidden};
    Payload<4> own[2]{};
    vectors.load(own[0], 0, x);
    impl::LineSlots::plain(own, impl::LineFlag::of(combine.round().number()))
        .store(experts.part<std::byte>(peer, 0, 0), vectors);
    combine.fold(thisGrid(), routing, MatrixView{y, 1, pair.hidden});
    combine.end();
  }
};

template <Flaw F>
void runLinesByHand(Rank& rank) {
  auto limits = pair;
  limits.transport = layout::ExpertTransport::packets;
  Experts const experts(rank.communicator, limits);
  constexpr std::size_t rounds = 2;
  auto const all = rounds * pair.hidden;
  GpuBuffer<float> const x(rank.device, all), rows(rank.device, all), y(rank.device, all);
  GpuBuffer<std::int64_t> const indices(rank.device, 1);
  auto const valueOf = [&](int of, std::size_t i) { return static_cast<float>(of * 100 + static_cast<int>(i) + 1); };
  std::vector<float> own(all);
  for (std::size_t i = 0; i < all; ++i) own[i] = valueOf(rank.rank, i);
  copyToDevice(x, std::span<float const>(own));
  std::int64_t const expert = 1 - rank.rank;
  copyToDevice(indices, std::span<std::int64_t const>(&expert, 1));
  Routing<std::int64_t> const routing{indices.data(), nullptr, 1, 1};
  rank.meet();
  for (std::size_t round = 0; round < rounds; ++round) {
    launch(rank.stream, {.blocks = 1, .threads = 32}, DispatchLinesByHand<F>{}, x.data() + round * pair.hidden,
           PlacedRows<float>{{rows.data() + round * pair.hidden, 1, pair.hidden}}, experts.deviceHandle());
  }
  for (std::size_t round = 0; round < rounds; ++round) {
    launch(rank.stream, {.blocks = 1, .threads = 32}, CombineLinesByHand<F>{}, x.data() + round * pair.hidden, routing,
           y.data() + round * pair.hidden, experts.deviceHandle());
  }
  rank.synchronize();
  auto const came = copyToHost(rows), home = copyToHost(y);
  for (std::size_t i = 0; i < all; ++i) {
    expectOnHost(came[i] == valueOf(1 - rank.rank, i), "a row that is not the peer's");
    expectOnHost(home[i] == valueOf(1 - rank.rank, i), "a part that is not the peer's");
  }
}

template <Flaw F>
void checkLineFlaw(Expected const& expected) {
  checkFound(expected, {}, runLinesByHand<F>, std::source_location::current().file_name());
  checkSilent({.silentSchedules = 50}, runLinesByHand<Flaw::none>);
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

TEST_CASE("without a rank that has failed") {
  for (int ranks : {2, 4}) {
    sweep(ranks, [=](Rank& rank, std::uint64_t variant) {
      auto test = caseOf(ranks, variant);
      test.limits.transport = layout::ExpertTransport::packets;
      test.failed = static_cast<int>(variant) % ranks;
      test.failedLayer = static_cast<unsigned>(variant / 2 % 2);
      test.failsBetween = variant % 2 == 0;
      test.room = 0;
      test.rowsOfExpert = 0;
      runExperts<float>(rank, test);
    });
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

TEST_CASE("a count's flag overtakes the count") {
  checkFlaw<Flaw::countTorn>({FindingKind::race, {"count", "layOut"}});
  checkLineFlaw<Flaw::countTorn>({FindingKind::race, {"count", "layOut of packets"}});
}

TEST_CASE("a row is written that its receiver may still place") {
  checkFlaw<Flaw::slotReused>({FindingKind::race, {"row", "place"}});
}

TEST_CASE("a part is written that may still be added up") {
  checkFlaw<Flaw::partReused>({FindingKind::race, {"part", "fold"}});
}

TEST_CASE("a line's flag is stored ahead of its words") {
  checkLineFlaw<Flaw::flagFirst>({FindingKind::hostFailure, {}, "a row that is not the peer's"});
}

TEST_CASE("a line is written that its receiver may still await") {
  checkLineFlaw<Flaw::slotReused>({FindingKind::deadLock, {}, "packet"});
}

TEST_CASE("a part's line is written that may still be awaited at home") {
  checkLineFlaw<Flaw::partReused>({FindingKind::deadLock, {}, "packet"});
}
