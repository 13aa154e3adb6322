// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Groups number their threads, meet, share and reduce.
#include "mscclpp/device/group.hpp"

#include <vector>

#include "mscclpp/device/group_ops.hpp"
#include "mscclpp/device/reduce_op.hpp"
#include "support/world.hpp"

using namespace mscclpp_test;

namespace {

template <class Kernel, class T>
std::vector<T> run(LaunchShape const& shape, Kernel kernel, std::size_t count) {
  std::vector<T> result;
  forEachRank(1, [&](Rank& rank) {
    GpuBuffer<T> out(rank.device, count);
    launch(rank.stream, shape, kernel, out.data());
    rank.synchronize();
    result = copyToHost(out);
  });
  return result;
}

struct NumberKernel {
  MSCCLPP_DEVICE void operator()(unsigned* out) const {
    auto const me = thisGrid().rank();
    bool const second = thisGrid().blockRank() >= 1;
    out[me * 6 + 0] = thisGrid().size();
    out[me * 6 + 1] = thisBlock().rank() * 1000 + thisWarp().rank();
    out[me * 6 + 2] = second ? blocksOfGrid(1, 2).rank() : 0;
    out[me * 6 + 3] = second ? blocksOfGrid(1, 2).blockRank() * 10 + blocksOfGrid(1, 2).blockCount() : 0;
    out[me * 6 + 4] = thisThread().rank() * 10 + thisThread().size();
    out[me * 6 + 5] = thisBlock().rank() >= 32 ? warpsOfBlock(1, 1, 1).rank() : 0;
  }
};

// The second warp hands its values to the third through memory, meeting at a named barrier while the first does
// nothing.
struct SubsetBarrierKernel {
  struct Shared;
  struct Values {
    unsigned value[32];
  };
  MSCCLPP_DEVICE void operator()(unsigned* out) const {
    auto const warp = thisBlock().rank() / 32;
    if (warp == 0) return;
    auto const group = warpsOfBlock(1, 2, 3);
    auto& shared = arch::blockShared<Values, Shared>();
    if (warp == 1) shared.value[group.rank()] = 100 + group.rank();
    group.sync();
    if (warp == 2) out[group.rank() - 32] = shared.value[63 - group.rank()];
  }
};

// A thread leaves as one that has given up a wait does; whoever passes the barriers says so.
struct LeavingKernel {
  unsigned leaves;
  MSCCLPP_DEVICE void operator()(unsigned* out) const {
    auto const me = thisBlock().rank();
    auto const pair = warpsOfBlock(me / 64 * 2, 2, me / 64 + 1);
    if (me == leaves) arch::exitKernel();
    auto const warp = thisWarp().syncCount();
    auto const warps = pair.syncCount();
    out[me] = warp | warps << 8 | thisBlock().syncCount() << 16;
    syncWhole(thisBlock());
    out[me] |= 1u << 31;
  }
};

struct ReduceKernel {
  MSCCLPP_DEVICE void operator()(int* out) const {
    auto const block = thisBlock();
    int const mine = static_cast<int>(block.rank()) - 20;
    out[block.rank() * 5 + 0] = reduce(thisWarp(), mine, Sum{});
    out[block.rank() * 5 + 1] = reduce(block, mine, Max{});
    out[block.rank() * 5 + 2] = broadcast(block, mine, 77);
    out[block.rank() * 5 + 3] = broadcast(thisWarp(), mine, 5);
    out[block.rank() * 5 + 4] = any(thisWarp(), mine == 30) ? 1 : 0;
  }
};

struct ShuffleKernel {
  struct Big {
    std::uint32_t word[4];
  };
  MSCCLPP_DEVICE void operator()(unsigned* out) const {
    auto const lane = thisWarp().rank();
    Big const mine{{lane, lane * 2, lane * 3, lane * 4}};
    out[lane * 4 + 0] = arch::shuffle(mine, (lane + 1) % 32).word[3];
    out[lane * 4 + 1] = arch::shuffleXor(lane, 4);
    out[lane * 4 + 2] = arch::shuffleDown(lane, 3);
    out[lane * 4 + 3] = arch::ballot(lane % 3 == 0);
  }
};

}  // namespace

TEST_CASE("groups number their threads") {
  if (!canRun(1)) return;
  auto const out = run<NumberKernel, unsigned>({.blocks = 3, .threads = 64}, {}, 3 * 64 * 6);
  for (unsigned thread = 0; thread < 3 * 64; ++thread) {
    auto const* const mine = &out[thread * 6];
    unsigned const inBlock = thread % 64;
    CHECK(mine[0] == 192);
    CHECK(mine[1] == inBlock * 1000 + inBlock % 32);
    CHECK(mine[2] == (thread >= 64 ? thread - 64 : 0));
    CHECK(mine[3] == (thread >= 64 ? (thread / 64 - 1) * 10 + 2 : 0));
    CHECK(mine[4] == 1);
    CHECK(mine[5] == (inBlock >= 32 ? inBlock - 32 : 0));
  }
}

TEST_CASE("some warps meet at a barrier of their own") {
  if (!canRun(1)) return;
  auto const out = run<SubsetBarrierKernel, unsigned>({.blocks = 1, .threads = 96}, {}, 32);
  for (unsigned i = 0; i < 32; ++i) CHECK(out[i] == 100 + 31 - i);
}

TEST_CASE("nobody passes a barrier that a thread which has left does not come to") {
  if (!canRun(1)) return;
  constexpr unsigned whole = 32 | 64 << 8 | 128 << 16 | 1u << 31;
  for (unsigned const value : run<LeavingKernel, unsigned>({.blocks = 1, .threads = 128}, {.leaves = 128}, 128)) {
    CHECK(value == whole);
  }
  constexpr unsigned left = 37;
  auto const out = run<LeavingKernel, unsigned>({.blocks = 1, .threads = 128}, {.leaves = left}, 128);
  for (unsigned thread = 0; thread < 128; ++thread) {
    unsigned const seen = (thread / 32 == 1 ? 31 : 32) | (thread < 64 ? 63 : 64) << 8 | 127 << 16;
    CHECK(out[thread] == (thread == left ? 0 : seen));
  }
}

TEST_CASE("groups share and reduce values") {
  if (!canRun(1)) return;
  auto const out = run<ReduceKernel, int>({.blocks = 1, .threads = 96}, {}, 96 * 5);
  for (int thread = 0; thread < 96; ++thread) {
    auto const* const mine = &out[static_cast<std::size_t>(thread) * 5];
    int const warp = thread / 32;
    CHECK(mine[0] == 31 * 16 + 32 * (32 * warp - 20));
    CHECK(mine[1] == 75);
    CHECK(mine[2] == 57);
    CHECK(mine[3] == 32 * warp + 5 - 20);
    CHECK(mine[4] == (warp == 1 ? 1 : 0));
  }
}

TEST_CASE("lanes exchange values") {
  if (!canRun(1)) return;
  auto const out = run<ShuffleKernel, unsigned>({.blocks = 1, .threads = 32}, {}, 32 * 4);
  for (unsigned lane = 0; lane < 32; ++lane) {
    CHECK(out[lane * 4 + 0] == (lane + 1) % 32 * 4);
    CHECK(out[lane * 4 + 1] == (lane ^ 4));
    CHECK(out[lane * 4 + 2] == (lane + 3 < 32 ? lane + 3 : lane));
    CHECK(out[lane * 4 + 3] == 0x49249249u);
  }
}
