// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All-reduce of rows with a norm and quantisations behind it, under the checker: rows by blocks, warps and clusters.
#include "explored.hpp"
#include "support/rows.hpp"

using namespace mscclpp_test;

namespace {

template <class Schedule, class Tr, class G>
void exploredRows(RowsCase const& test) {
  everySchedule(
      test.ranks, [&](Rank& rank) { checkRowsRank<Schedule, Tr, G, BFloat16>(rank, test); }, 2);
}

// Rows that end within a payload, a line and a quantised block; more rows than are worked on at a time, and fewer.
template <class Schedule, class Tr, class G>
void everyShape(std::size_t columns) {
  exploredRows<Schedule, Tr, G>({.ranks = 3, .rows = 5, .columns = columns, .blocks = 2, .calls = 2});
  exploredRows<Schedule, Tr, G>({.ranks = 2, .rows = 1, .columns = columns, .stride = columns + 3, .overlap = true});
  exploredRows<Schedule, Tr, G>({.ranks = 1, .rows = 2, .columns = 33});
}

}  // namespace

TEST_CASE("a row by a block") {
  everyShape<RowOneShot, PacketTransport<LL16, 2>, BlockPerRow>(150);
  everyShape<RowTwoShot, PacketTransport<LL128, 2>, BlockPerRow>(301);
  everyShape<RowTwoShot, MemoryTransport<2>, BlockPerRow>(150);
}

TEST_CASE("a row by some warps") {
  everyShape<RowOneShot, PacketTransport<LL128, 2>, WarpsPerRow<2>>(150);
  everyShape<RowTwoShot, MemoryTransport<1>, WarpsPerRow<1>>(75);
}

TEST_CASE("a row by the blocks of a cluster") {
  exploredRows<RowOneShot, PacketTransport<LL16, 1>, ClusterPerRow>(
      {.ranks = 2, .rows = 3, .columns = 1027, .blocks = 4, .calls = 2});
  exploredRows<RowTwoShot, PacketTransport<LL16, 1>, ClusterPerRow>(
      {.ranks = 3, .rows = 4, .columns = 601, .blocks = 4});
  // The last block of a cluster has none of it.
  exploredRows<RowOneShot, PacketTransport<LL16, 1>, ClusterPerRow>(
      {.ranks = 2, .rows = 2, .columns = 1152, .blocks = 4});
}
