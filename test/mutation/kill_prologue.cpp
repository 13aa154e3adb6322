// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Inputs with a prologue, under the checker: whole and ragged, aligned and not, wider and narrower than what travels.
#include "explored.hpp"
#include "support/prologue.hpp"

using namespace mscclpp_test;

namespace {

template <class Collective, class In, class T>
void exploredWithPrologue(CollectiveCase const& test) {
  everySchedule(
      test.ranks, [&](Rank& rank) { checkPrologueRank<Collective, In, T>(rank, test); }, 2);
}

template <class Tr>
void everyInput() {
  // Whole payloads, ragged ends, a buffer that begins astray, many rounds.
  CollectiveCase const plain{.ranks = 3, .counts = {256, 61, 1, 0}, .blocks = 2, .threads = 32, .root = 1};
  CollectiveCase const astray{.ranks = 2, .counts = {130, 7}, .blocks = 1, .threads = 40, .offset = 1};
  CollectiveCase const rounds{.ranks = 2, .counts = {700}, .blocks = 1, .threads = 32, .regionBytes = 1024};
  for (auto const& test : {plain, astray, rounds}) {
    exploredWithPrologue<AllReduce<OneShot, Tr, Sum>, float, BFloat16>(test);
    exploredWithPrologue<AllReduce<TwoShot, Tr, Sum>, std::int8_t, float>(test);
    exploredWithPrologue<ReduceScatter<OneExchange, Tr, Sum>, float, float>(test);
    exploredWithPrologue<AllGather<OneExchange, Tr>, BFloat16, Float8E4M3>(test);
    exploredWithPrologue<AllToAll<OneExchange, Tr>, float, Half>(test);
  }
  exploredWithPrologue<Broadcast<OneExchange, Tr>, float, BFloat16>(plain);
  exploredWithPrologue<Scatter<OneExchange, Tr>, float, BFloat16>(plain);
  exploredWithPrologue<Gather<OneExchange, Tr>, float, BFloat16>(plain);
  exploredWithPrologue<Reduce<OneExchange, Tr, Sum>, float, BFloat16>(plain);
}

}  // namespace

TEST_CASE_TEMPLATE("through the workspaces", Tr, PacketTransport<LL8>, PacketTransport<LL128>, MemoryTransport<2>) {
  everyInput<Tr>();
}

TEST_CASE("straight into the peers' buffers") {
  for (auto const& test : {CollectiveCase{.ranks = 3, .counts = {513, 61, 1, 0}, .blocks = 2, .threads = 32},
                           CollectiveCase{.ranks = 2, .counts = {300, 7}, .blocks = 1, .threads = 40, .offset = 1}}) {
    exploredWithPrologue<AllGather<PushSchedule, PeerMemory<2>>, BFloat16, Float8E4M3>(test);
    exploredWithPrologue<AllToAll<PushSchedule, PeerMemory<2>>, float, Half>(test);
    exploredWithPrologue<AllReduce<TwoShotPush, MemoryTransport<2>, Sum>, float, BFloat16>(test);
  }
}

TEST_CASE("in place") {
  CollectiveCase const test{.ranks = 3, .counts = {333, 64}, .blocks = 2, .threads = 32, .inPlace = true};
  exploredWithPrologue<AllReduce<TwoShot, PacketTransport<LL128>, Sum>, Half, BFloat16>(test);
  exploredWithPrologue<AllToAll<OneExchange, MemoryTransport<2>>, float, std::int32_t>(test);
}
