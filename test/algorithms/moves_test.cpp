// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every collective that moves data over every transport: counts, alignments, roots, rank counts, in place.
#include "support/collective.hpp"

using namespace mscclpp_test;

namespace {

template <template <class, class, int> class C, class S, class Tr>
void moves(bool rooted) {
  checkCollective<C<S, Tr, 0>>({.counts = raggedCounts});
  checkCollective<C<S, Tr, 4>>({.counts = {16, 4096, 1}, .overlap = true, .root = rooted ? 2 : 0, .seed = 2});
  // Compiled for two ranks, as the library's own kernels are; threads of one warp on both sides of a ragged end.
  checkCollective<C<S, Tr, 2>>({.ranks = 2, .counts = {1332, 333, 61, 5}, .seed = 6});
  // The own part of a scatter's input lies elsewhere on every rank, so it can be no symmetric output.
  if constexpr (!std::same_as<C<S, Tr, 0>, Scatter<PushSchedule, Tr, 0>>) {
    checkCollective<C<S, Tr, 0>>({.counts = {333, 64}, .inPlace = true, .root = rooted ? 3 : 0, .seed = 3});
  }
  // Blocks that end in the middle of a warp; buffers that are not aligned; wider elements.
  checkCollective<C<S, Tr, 0>>({.counts = {1, 2000}, .threads = 100, .offset = 3, .seed = 4});
  checkCollective<C<S, Tr, 0>, float>({.ranks = 3, .counts = {300, 5}, .root = rooted ? 1 : 0, .seed = 5});
  // A workspace so small that it takes many rounds.
  checkCollective<C<S, Tr, 0>>({.counts = {3000, 50, 3000}, .blocks = 2, .threads = 32, .regionBytes = 4096});
  for (int ranks : {1, 2, 5, 8}) {
    checkCollective<C<S, Tr, 0>>({.ranks = ranks, .counts = {257}, .root = rooted ? ranks - 1 : 0});
  }
}

}  // namespace

TEST_CASE_TEMPLATE("one exchange moves", Tr, PacketTransport<LL8>, PacketTransport<LL16>, PacketTransport<LL128>,
                   MemoryTransport<2>, MemoryTransport<4>) {
  // LL8 carries elements of up to 4 bytes, as these are.
  moves<AllGather, OneExchange, Tr>(false);
  moves<AllToAll, OneExchange, Tr>(false);
  moves<Broadcast, OneExchange, Tr>(true);
  moves<Scatter, OneExchange, Tr>(true);
  moves<Gather, OneExchange, Tr>(true);
}

using SmallBulk = BulkMemory<128, 3>;

TEST_CASE_TEMPLATE("pushed into symmetric memory", Tr, PeerMemory<1>, PeerMemory<4>, SmallBulk) {
  moves<AllGather, PushSchedule, Tr>(false);
  moves<Broadcast, PushSchedule, Tr>(true);
  moves<Scatter, PushSchedule, Tr>(true);
  moves<Gather, PushSchedule, Tr>(true);
}

TEST_CASE_TEMPLATE("all-to-all pushed into symmetric memory", Tr, PeerMemory<1>, PeerMemory<4>, SmallBulk) {
  checkCollective<AllToAll<PushSchedule, Tr>>({.counts = raggedCounts});
  checkCollective<AllToAll<PushSchedule, Tr, 2>>({.ranks = 2, .counts = {1332, 333, 61, 5}, .seed = 6});
  checkCollective<AllToAll<PushSchedule, Tr, 4>>({.counts = {16, 4096, 1}, .overlap = true, .seed = 2});
  checkCollective<AllToAll<PushSchedule, Tr>>({.counts = {1, 2000}, .threads = 100, .offset = 3, .seed = 4});
  for (int ranks : {1, 2, 5, 8}) checkCollective<AllToAll<PushSchedule, Tr>>({.ranks = ranks, .counts = {257}});
}

TEST_CASE_TEMPLATE("shares sent by the root, then to each other", Tr, PacketTransport<LL8>, PacketTransport<LL16>,
                   PacketTransport<LL128>, MemoryTransport<2>) {
  moves<Broadcast, TwoShotRooted, Tr>(true);
}

using ShortStagePieces = StagePieces<2, 128>;
// Of which these messages have several a block.
using MiddlePieces = StagePieces<4, 8192>;

TEST_CASE_TEMPLATE("from rank to rank", Tr, ShortPieces, PeerMemory<>, ShortStagePieces, MiddlePieces) {
  moves<Broadcast, ChainSchedule, Tr>(true);
  checkPieces<Broadcast<ChainSchedule, Tr>>({40000, 8193, 70001});
}

#if !defined(__CUDACC__)
TEST_CASE("72 ranks") {
  checkCollective<AllGather<OneExchange, PacketTransport<LL16>>>(rack);
  checkCollective<AllToAll<OneExchange, PacketTransport<LL128>>>(rack);
  checkCollective<Broadcast<PushSchedule, PeerMemory<>>>(rack);
  checkCollective<Broadcast<ChainSchedule, PeerMemory<>>>(rack);
  checkCollective<Broadcast<TwoShotRooted, PacketTransport<LL128>>>(rack);
  checkCollective<Broadcast<ChainSchedule, StagePieces<>>>(rack);
  checkCollective<AllGather<PushSchedule, SmallBulk>>(rack);
}
#endif
