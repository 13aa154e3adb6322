// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Planted faults of sums that memory makes.
#include "mscclpp/device/tiles/reduce_into.hpp"

#include "check/harness.hpp"

using namespace check_test;

namespace {

struct alignas(16) Piece {
  std::uint32_t words[32];
};

// Two blocks of one device add to one piece; a word counts those that have. The last to come reads the sum.
enum class Missing : std::uint8_t { wait, fence };

template <Fault F, Missing M>
struct AddAndRead {
  static constexpr bool without(Missing what) { return planted<F> && M == what; }

  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    auto const block = thisBlock();
    auto& piece = arch::blockShared<Piece, Piece>();
    piece.words[block.rank()] = 5;  // <- addend
    if (!without(Missing::fence)) bulkFence();
    block.sync();
    if (block.rank() == 0) {
      bulkReduceAdd(p.data(p.rank), piece.words, sizeof piece);  // <- bulk addition
      bulkCommit();
      without(Missing::wait) ? bulkWaitRead() : bulkWait();
      auto const before = fetchAdd<Order::acquireRelease, Scope::device>(p.flag(p.rank), 1);
      if (before == 1) expect(*p.data(p.rank, 7) == 10, "a part is missing");  // <- sum's use
      if (without(Missing::wait)) bulkWait();
    }
  }
};

template <Fault F>
struct WithoutWait : AddAndRead<F, Missing::wait> {};
template <Fault F>
struct WithoutFence : AddAndRead<F, Missing::fence> {};

// The target is cleared in the same kernel.
template <Fault F>
struct ClearedTarget {
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    auto& piece = arch::blockShared<Piece, ClearedTarget>();
    auto const block = thisBlock();
    piece.words[block.rank()] = 5;
    bulkFence();
    *p.data(p.rank, block.rank()) = 1;  // <- cleared
    if constexpr (!planted<F>) bulkFence();
    block.sync();
    if (block.rank() == 0) {
      bulkReduceAdd(p.data(p.rank), piece.words, sizeof piece);  // <- addition to what was cleared
      bulkCommit();
      bulkWait();
      expect(*p.data(p.rank, 3) == 6, "a wrong sum");
    }
  }
};

// Both ranks add to rank 0's memory at once: bulk additions are whole for one device alone.
template <Fault F>
struct TwoRanks {
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    auto& piece = arch::blockShared<Piece, TwoRanks>();
    if (thisBlock().rank() != 0) return;
    for (auto& word : piece.words) word = 5;
    bulkFence();
    auto const add = [&] {
      bulkReduceAdd(p.data(0), piece.words, sizeof piece);  // <- ranks' additions
      bulkCommit();
      bulkWait();
    };
    if (planted<F> || p.rank == 0) add();
    if constexpr (!planted<F>) {  // one after the other
      store<Order::release, Scope::system>(p.flag(p.peer()), 1);
      waitUntil<Order::acquire>(p.flag(p.rank), 1);
      if (p.rank == 1) add();
    }
  }
};

// Vectors, of which the scope says for whom they are whole.
template <Fault F>
struct VectorScope {
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    auto* const sums = reinterpret_cast<float*>(p.data(0));
    Vector<float, 4> const ones{1, 1, 1, 1};
    if (thisBlock().rank() != 0) return;
    if constexpr (planted<F>) {
      reduceAdd<Scope::device>(sums, ones);  // <- narrow additions
    } else {
      reduceAdd<Scope::system>(sums, ones);
    }
    if (p.rank == 1) return store<Order::release, Scope::system>(p.flag(0), 1);
    waitUntil<Order::acquire>(p.flag(0), 1);
    expect(sums[3] == 2, "a part is missing");
  }
};

Setup const twoBlocks{.ranks = 1, .blocks = 2};

}  // namespace

TEST_CASE("a flag overtakes a bulk addition") {
  checkKernel<WithoutWait>({FindingKind::race, {"bulk addition", "sum's use"}}, twoBlocks);
}

TEST_CASE("no proxy fence before a bulk addition") {
  checkKernel<WithoutFence>({FindingKind::missingProxyFence, {"addend", "bulk addition"}}, twoBlocks);
}

TEST_CASE("no proxy fence between what clears the target and a bulk addition") {
  checkKernel<ClearedTarget>({FindingKind::missingProxyFence, {"cleared", "addition to what was cleared"}},
                             {.ranks = 1});
}

TEST_CASE("bulk additions of two devices to one address") {
  checkKernel<TwoRanks>({FindingKind::narrowScope, {"ranks' additions"}});
}

TEST_CASE("additions of vectors whose scope does not reach the other rank") {
  checkKernel<VectorScope>({FindingKind::narrowScope, {"narrow additions"}});
}
