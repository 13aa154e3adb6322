// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Prologues: every collective that reads its own input, over every transport, from one element type to another.
#include "mscclpp/algorithms/core/prologue.hpp"

#include <vector>

#include "support/prologue.hpp"

using namespace mscclpp_test;

namespace {

template <class Collective, class In, class T>
void checkPrologue(CollectiveCase const& test) {
  if (!canRun(test.ranks)) return;
  forEachRank(test.ranks, [&](Rank& rank) { checkPrologueRank<Collective, In, T>(rank, test); }, {.seed = test.seed});
}

template <class Collective, class In, class T>
void everyCase(bool rooted) {
  checkPrologue<Collective, In, T>({.counts = raggedCounts, .root = rooted ? 2 : 0});
  checkPrologue<Collective, In, T>({.ranks = 3, .counts = {1, 900}, .threads = 100, .offset = 3, .seed = 2});
  checkPrologue<Collective, In, T>(
      {.ranks = 2, .counts = {3000, 50, 3000}, .blocks = 2, .threads = 32, .regionBytes = 4096, .seed = 3});
}

template <class Tr, class In, class T>
void everyExchange() {
  everyCase<AllReduce<OneShot, Tr, Sum>, In, T>(false);
  everyCase<AllReduce<TwoShot, Tr, Sum>, In, T>(false);
  everyCase<ReduceScatter<OneExchange, Tr, Max>, In, T>(false);
  everyCase<Reduce<OneExchange, Tr, Sum>, In, T>(true);
  everyCase<AllGather<OneExchange, Tr>, In, T>(false);
  everyCase<AllToAll<OneExchange, Tr>, In, T>(false);
  everyCase<Broadcast<OneExchange, Tr>, In, T>(true);
  everyCase<Scatter<OneExchange, Tr>, In, T>(true);
  everyCase<Gather<OneExchange, Tr>, In, T>(true);
}

}  // namespace

TEST_CASE_TEMPLATE("narrowed before they are sent", Tr, PacketTransport<LL8>, PacketTransport<LL16>,
                   PacketTransport<LL128>, MemoryTransport<2>) {
  everyExchange<Tr, float, BFloat16>();
  everyExchange<Tr, BFloat16, Float8E4M3>();
}

TEST_CASE_TEMPLATE("widened before they are sent", Tr, PacketTransport<LL8>, PacketTransport<LL128>,
                   MemoryTransport<2>) {
  everyExchange<Tr, std::int8_t, float>();
}

TEST_CASE("results go straight into the peers' buffers, or from rank to rank") {
  everyCase<AllReduce<TwoShotPush, MemoryTransport<2>, Sum>, float, BFloat16>(false);
  everyCase<AllReduce<RingSchedule, StagePieces<2, 256>, Sum>, float, BFloat16>(false);
  everyCase<Reduce<TwoShotPush, MemoryTransport<2>, Sum>, float, BFloat16>(true);
  everyCase<Reduce<ChainSchedule, StagePieces<2, 256>, Sum>, float, BFloat16>(true);
  everyCase<Broadcast<ChainSchedule, StagePieces<2, 256>>, float, BFloat16>(true);
  everyCase<AllGather<PushSchedule, PeerMemory<4>>, BFloat16, Float8E4M3>(false);
  everyCase<AllToAll<PushSchedule, PeerMemory<2>>, float, Half>(false);
}

TEST_CASE("in place, where elements are equally large") {
  CollectiveCase const test{.counts = {333, 64, 2000}, .inPlace = true};
  checkPrologue<AllReduce<OneShot, PacketTransport<LL16>, Sum>, float, float>(test);
  checkPrologue<AllReduce<TwoShot, PacketTransport<LL128>, Sum>, Half, BFloat16>(test);
  checkPrologue<AllToAll<OneExchange, MemoryTransport<2>>, float, std::int32_t>(test);
}
