// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Planted faults within a block: shared memory, warps, reductions.
#include "check/harness.hpp"

using namespace check_test;

namespace {

struct Tile {
  unsigned value[2][128];
};

template <Fault F>
struct SharedWithoutBarrier {
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    auto& tile = arch::blockShared<Tile, Tile>();
    auto const block = thisBlock();
    tile.value[0][block.rank()] = block.rank();  // <- tile
    if constexpr (!planted<F>) block.sync();
    *p.data(0, block.rank()) = tile.value[0][block.size() - 1 - block.rank()];  // <- tile use
  }
};

// Lanes of one warp do not run in step.
template <Fault F>
struct LanesWithoutSync {
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    auto& tile = arch::blockShared<Tile, Tile>();
    auto const lane = thisWarp().rank();
    tile.value[0][lane] = lane;  // <- lane's word
    if constexpr (!planted<F>) thisWarp().sync();
    *p.data(0, lane) = tile.value[0][lane ^ 1];  // <- neighbour's word
  }
};

template <Fault F>
struct TreeWithoutBarrier {
  MSCCLPP_DEVICE void operator()(Peers const&) const {
    auto& tile = arch::blockShared<Tile, Tile>();
    auto* const sum = tile.value[0];
    auto const block = thisBlock();
    sum[block.rank()] = 1;
    block.sync();
    for (unsigned half = block.size() / 2; half != 0; half /= 2) {
      if (block.rank() < half) sum[block.rank()] += sum[block.rank() + half];  // <- tree step
      if constexpr (!planted<F>) block.sync();
    }
    if (block.rank() == 0) expect(sum[0] == block.size(), "a wrong sum");
  }
};

// One barrier a step is enough for two tiles in turn, not for one.
template <Fault F>
struct OneTile {
  MSCCLPP_DEVICE void operator()(Peers const&) const {
    auto& tile = arch::blockShared<Tile, Tile>();
    auto const block = thisBlock();
    auto const other = block.size() - 1 - block.rank();
    for (unsigned step = 0; step < 4; ++step) {
      auto* const words = tile.value[planted<F> ? 0 : step % 2];
      words[block.rank()] = step;  // <- next step's tile
      block.sync();
      expect(words[other] == step, "another step's tile");  // <- this step's tile
    }
  }
};

// Warps that meet at a named barrier of their own do not meet those at another one.
template <Fault F>
struct TwoNamedBarriers {
  MSCCLPP_DEVICE void operator()(Peers const&) const {
    auto& tile = arch::blockShared<Tile, Tile>();
    auto const thread = arch::threadIndex();
    tile.value[0][thread] = thread;  // <- named barrier data
    if constexpr (planted<F>) {
      warpsOfBlock(thread / 32, 1, 1 + thread / 32).sync();
    } else {
      warpsOfBlock(0, 2, 1).sync();
    }
    expect(tile.value[0][63 - thread] == 63 - thread, "not filled");  // <- named barrier use
  }
};

// Two words in one access begin at a multiple of 8 bytes.
template <Fault F>
struct PairAtOddWord {
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    auto* const words = p.data(p.rank, 4 * thisBlock().rank() + (planted<F> ? 1 : 2));
    *reinterpret_cast<Payload<2>*>(words) = {{1, 2}};
  }
};

Setup const twoWarps{.ranks = 1, .threads = 64};

}  // namespace

TEST_CASE("shared memory without a barrier") {
  checkKernel<SharedWithoutBarrier>({FindingKind::race, {"tile", "tile use"}}, twoWarps);
}

TEST_CASE("lanes exchange words without syncWarp") {
  checkKernel<LanesWithoutSync>({FindingKind::race, {"lane's word", "neighbour's word"}}, {.ranks = 1});
}

TEST_CASE("a tree of sums without a barrier between its steps") {
  checkKernel<TreeWithoutBarrier>({FindingKind::race, {"tree step", "tree step"}}, twoWarps);
}

TEST_CASE("one tile where two take turns") {
  checkKernel<OneTile>({FindingKind::race, {"next step's tile", "this step's tile"}}, twoWarps);
}

TEST_CASE("a plain access at no multiple of its size") {
  checkKernel<PairAtOddWord>({FindingKind::kernelFailure, {}, "which is not aligned to 8"});
}

TEST_CASE("two barriers where one was meant") {
  checkKernel<TwoNamedBarriers>({FindingKind::race, {"named barrier data", "named barrier use"}}, twoWarps);
}
