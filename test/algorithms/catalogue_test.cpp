// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Names and launch shapes of the catalogue.
#include "mscclpp/algorithms/catalogue.hpp"

#include <doctest/doctest.h>

#include <set>
#include <string_view>
#include <type_traits>

using namespace mscclpp;

static_assert(
    std::is_same_v<NamedAllReduce<"twoshot_ll128", Max, 4>, AllReduce<TwoShot, PacketTransport<LL128>, Max, 4>>);
static_assert(std::is_same_v<NamedCollective<Collective::broadcast, "chain">, Broadcast<ChainSchedule, PeerMemory<4>>>);
static_assert(
    std::is_same_v<NamedCollective<Collective::broadcast, "chain_staged">, Broadcast<ChainSchedule, StagePieces<>>>);
static_assert(std::is_same_v<NamedCollective<Collective::reduce, "chain">, Reduce<ChainSchedule, StagePieces<>, Sum>>);

TEST_CASE("names are distinct within a collective, and found again") {
  std::set<std::string_view> seen;
  Catalogue::forEachOf<Collective::reduce>([&]<class C>() {
    CHECK(seen.insert(C::name).second);
    std::string_view found;
    CHECK(Catalogue::with<Collective::reduce>(C::name, [&]<class D>() { found = D::name; }));
    CHECK(found == C::name);
  });
  CHECK(seen.size() == 11);
  CHECK(!Catalogue::with<Collective::reduce>("oneshot_ll8", [&]<class C>() {}));
}

TEST_CASE("every shape can be launched, and a thread has a round's work where the grid has room") {
  Catalogue::forEachOf<Collective::allReduce>([&]<class C>() {
    using Made = CollectiveOf<Collective::allReduce, typename C::Schedule, typename C::Transport>;
    CAPTURE(C::name);
    for (std::uint32_t ranks : {1u, 2u, 3u, 4u, 8u, 72u}) {
      for (std::uint64_t bytes = 0; bytes <= (std::uint64_t{1} << 33); bytes = bytes * 3 + 1) {
        auto const shape = shapeOf<Made>(ranks, bytes, 100);
        CAPTURE(ranks);
        CAPTURE(bytes);
        CHECK(shape.blocks >= leastBlocksOf<typename C::Schedule>());
        CHECK(shape.blocks <= 100);
        CHECK(shape.threads % 32 == 0);
        CHECK(shape.threads >= leastThreadsOf<typename C::Schedule>());
        CHECK(shape.threads <= 512);
      }
    }
  });
}

// As measured on 4 H200.
TEST_CASE("few packets go in blocks of half as many threads") {
  using OneShotLL16 = NamedAllReduce<"oneshot_ll16", Sum>;
  CHECK(shapeOf<OneShotLL16>(4, 1024, largestGrid).blocks == 2);
  CHECK(shapeOf<OneShotLL16>(4, 1024, largestGrid).threads == 64);
  CHECK(shapeOf<OneShotLL16>(4, 16384, largestGrid).threads == 128);
}
