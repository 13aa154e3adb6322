// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every collective but all-reduce over every transport: counts, alignments, roots, rank counts, in place.
#include <string>
#include <vector>

#include "support/collective.hpp"

using namespace mscclpp_test;

namespace {

std::vector<std::size_t> const raggedCounts{1, 0, 7, 8, 61, 479, 1000};

template <template <class, class, int> class C, class S, class Tr>
void moves(bool rooted) {
  checkCollective<C<S, Tr, 0>>({.counts = raggedCounts});
  checkCollective<C<S, Tr, 4>>({.counts = {16, 4096, 1}, .overlap = true, .root = rooted ? 2 : 0, .seed = 2});
  // Compiled for two ranks, as the library's own kernels are; threads of one warp on both sides of a ragged end.
  checkCollective<C<S, Tr, 2>>({.ranks = 2, .counts = {1332, 333, 61, 5}, .seed = 6});
  // The own part of a scatter's input lies elsewhere on every rank, so it can be no symmetric output.
  if constexpr (!std::same_as<C<S, Tr, 0>, Scatter<Push, Tr, 0>>) {
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

TEST_CASE_TEMPLATE("one exchange moves", Tr, PacketTransport<LL8>, PacketTransport<LL16>, PacketTransport<LL128>,
                   MemoryTransport<2>, MemoryTransport<4>) {
  // LL8 carries elements of up to 4 bytes, as these are.
  moves<AllGather, OneExchange, Tr>(false);
  moves<AllToAll, OneExchange, Tr>(false);
  moves<Broadcast, OneExchange, Tr>(true);
  moves<Scatter, OneExchange, Tr>(true);
  moves<Gather, OneExchange, Tr>(true);
}

TEST_CASE_TEMPLATE("one exchange reduces", Tr, PacketTransport<LL8>, PacketTransport<LL16>, PacketTransport<LL128>,
                   MemoryTransport<2>) {
  reduces<ReduceScatter, OneExchange, Tr>(false);
  reduces<Reduce, OneExchange, Tr>(true);
}

using SmallBulk = BulkMemory<128, 3>;

TEST_CASE_TEMPLATE("pushed into symmetric memory", Tr, PeerMemory<1>, PeerMemory<4>, SmallBulk) {
  moves<AllGather, Push, Tr>(false);
  moves<Broadcast, Push, Tr>(true);
  moves<Scatter, Push, Tr>(true);
  moves<Gather, Push, Tr>(true);
}

TEST_CASE_TEMPLATE("all-to-all pushed into symmetric memory", Tr, PeerMemory<1>, PeerMemory<4>, SmallBulk) {
  checkCollective<AllToAll<Push, Tr>>({.counts = raggedCounts});
  checkCollective<AllToAll<Push, Tr, 2>>({.ranks = 2, .counts = {1332, 333, 61, 5}, .seed = 6});
  checkCollective<AllToAll<Push, Tr, 4>>({.counts = {16, 4096, 1}, .overlap = true, .seed = 2});
  checkCollective<AllToAll<Push, Tr>>({.counts = {1, 2000}, .threads = 100, .offset = 3, .seed = 4});
  for (int ranks : {1, 2, 5, 8}) checkCollective<AllToAll<Push, Tr>>({.ranks = ranks, .counts = {257}});
}

TEST_CASE_TEMPLATE("pulled from symmetric memory", Tr, PeerMemory<1>, PeerMemory<2>) {
  reduces<AllReduce, Pull, Tr>(false);
  reduces<ReduceScatter, Pull, Tr>(false);
  reduces<Reduce, Pull, Tr>(true);
}

TEST_CASE_TEMPLATE("results are pushed", Tr, MemoryTransport<2>, MemoryTransport<8>) {
  reduces<AllReduce, TwoShotPush, Tr>(false);
  reduces<Reduce, TwoShotPush, Tr>(true);
}

using ShortRing = StagePieces<2, 256>;
TEST_CASE_TEMPLATE("around the ring", Tr, ShortRing, StagePieces<>) {
  reduces<AllReduce, Ring, Tr>(false);
  // Many rounds of the slots of a block, the last pieces short, empty for some blocks and shares.
  for (int ranks : {1, 2, 3, 8}) {
    checkCollective<AllReduce<Ring, Tr, Sum>, BFloat16>(
        {.ranks = ranks, .counts = {20000, 4097, 35001}, .blocks = 2, .threads = 64, .overlap = true});
  }
}

using ShortPieces = PeerPieces<4, 128>;
TEST_CASE_TEMPLATE("from rank to rank", Tr, ShortPieces, PeerPieces<>) {
  moves<Broadcast, Chain, Tr>(true);
  // Several pieces of a block, the last ones short, empty for some blocks.
  for (int ranks : {1, 2, 3, 8}) {
    checkCollective<Broadcast<Chain, Tr>>({.ranks = ranks,
                                           .counts = {40000, 8193, 70001},
                                           .blocks = 2,
                                           .threads = 64,
                                           .overlap = true,
                                           .root = ranks / 2});
  }
}

TEST_CASE("added up from rank to rank") {
  reduces<Reduce, Chain, StagePieces<2, 128>>(true);
  for (int ranks : {1, 2, 3, 8}) {
    checkCollective<Reduce<Chain, StagePieces<>, Sum>, BFloat16>({.ranks = ranks,
                                                                  .counts = {20000, 4097, 35001},
                                                                  .blocks = 2,
                                                                  .threads = 64,
                                                                  .overlap = true,
                                                                  .root = ranks / 2});
  }
}

#if !defined(__CUDACC__)
TEST_CASE("72 ranks") {
  CollectiveCase const rack{.ranks = 72, .counts = {33}, .blocks = 1, .threads = 32, .root = 50};
  checkCollective<AllGather<OneExchange, PacketTransport<LL16>>>(rack);
  checkCollective<AllToAll<OneExchange, PacketTransport<LL128>>>(rack);
  checkCollective<ReduceScatter<OneExchange, PacketTransport<LL16>, Sum>, BFloat16>(rack);
  checkCollective<Broadcast<Push, PeerMemory<>>>(rack);
  checkCollective<Broadcast<Chain, PeerPieces<>>>(rack);
  checkCollective<Reduce<Pull, PeerMemory<1>, Sum>, float>(rack);
  checkCollective<Reduce<TwoShotPush, MemoryTransport<2>, Sum>, float>(rack);
  checkCollective<Reduce<Chain, StagePieces<>, Sum>, float>(rack);
  checkCollective<AllGather<Push, SmallBulk>>(rack);
  checkCollective<AllReduce<Ring, ShortRing, Sum>, float>(rack);
}
#endif
