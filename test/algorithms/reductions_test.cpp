// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every collective that reduces over every transport (all-reduce by the schedules that allreduce_test leaves out):
// counts, alignments, roots, rank counts, in place.
#include "support/collective.hpp"

using namespace mscclpp_test;

namespace {

template <template <class, class, class, int, class> class C, class S, class Tr>
void reduces(bool rooted) {
  checkCollective<C<S, Tr, Sum, 0, void>, BFloat16>({.counts = raggedCounts});
  checkCollective<C<S, Tr, Max, 4, void>, float>({.counts = {16, 4096, 1}, .overlap = true, .root = rooted ? 2 : 0});
  checkCollective<C<S, Tr, Sum, 2, void>, BFloat16>({.ranks = 2, .counts = {667, 333, 61, 5}, .seed = 6});
  checkCollective<C<S, Tr, Avg, 0, void>, float>({.counts = {333}, .inPlace = true, .root = rooted ? 3 : 0, .seed = 3});
  checkCollective<C<S, Tr, Sum, 0, void>, Half>({.counts = {1, 900}, .threads = 100, .offset = 1, .seed = 4});
  checkCollective<C<S, Tr, Sum, 0, void>, BFloat16>(
      {.counts = {1500, 50, 1500}, .blocks = 2, .threads = 32, .regionBytes = 4096});
  for (int ranks : {1, 2, 5, 8}) {
    checkCollective<C<S, Tr, Sum, 0, void>, std::int32_t>(
        {.ranks = ranks, .counts = {257}, .root = rooted ? ranks - 1 : 0});
  }
}

}  // namespace

TEST_CASE_TEMPLATE("one exchange reduces", Tr, PacketTransport<LL8>, PacketTransport<LL16>, PacketTransport<LL128>,
                   MemoryTransport<2>) {
  reduces<ReduceScatter, OneExchange, Tr>(false);
  reduces<Reduce, OneExchange, Tr>(true);
}

TEST_CASE_TEMPLATE("pulled from symmetric memory", Tr, PeerMemory<1>, PeerMemory<2>) {
  reduces<AllReduce, PullSchedule, Tr>(false);
  reduces<ReduceScatter, PullSchedule, Tr>(false);
  reduces<Reduce, PullSchedule, Tr>(true);
}

TEST_CASE_TEMPLATE("results are pushed", Tr, MemoryTransport<2>, MemoryTransport<8>) {
  reduces<AllReduce, TwoShotPush, Tr>(false);
  reduces<Reduce, TwoShotPush, Tr>(true);
}

using ShortRing = StagePieces<2, 256>;
TEST_CASE_TEMPLATE("around the ring", Tr, ShortRing, StagePieces<>) {
  reduces<AllReduce, RingSchedule, Tr>(false);
  checkPieces<AllReduce<RingSchedule, Tr, Sum>, BFloat16>({20000, 4097, 35001});
}

TEST_CASE_TEMPLATE("shares reduced, then sent to the root", Tr, PacketTransport<LL8>, PacketTransport<LL16>,
                   PacketTransport<LL128>, MemoryTransport<2>) {
  reduces<Reduce, TwoShotRooted, Tr>(true);
}

TEST_CASE("added up from rank to rank") {
  reduces<Reduce, ChainSchedule, StagePieces<2, 128>>(true);
  // Several pieces of 8 KiB a block.
  checkPieces<Reduce<ChainSchedule, StagePieces<4, 8192>, Sum>, BFloat16>({20000, 4097, 35001});
}

#if !defined(__CUDACC__)
TEST_CASE("72 ranks") {
  checkCollective<ReduceScatter<OneExchange, PacketTransport<LL16>, Sum>, BFloat16>(rack);
  checkCollective<Reduce<PullSchedule, PeerMemory<1>, Sum>, float>(rack);
  checkCollective<Reduce<TwoShotPush, MemoryTransport<2>, Sum>, float>(rack);
  checkCollective<Reduce<TwoShotRooted, PacketTransport<LL128>, Sum>, float>(rack);
  checkCollective<Reduce<ChainSchedule, StagePieces<>, Sum>, float>(rack);
  checkCollective<AllReduce<RingSchedule, ShortRing, Sum>, float>(rack);
}
#endif
