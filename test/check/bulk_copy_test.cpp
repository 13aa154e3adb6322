// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Planted faults of bulk copies: fences, waits, and the end of the thread that started them; and of those that add.
#include "mscclpp/device/bulk_copy.hpp"

#include "check/harness.hpp"
#include "mscclpp/device/tiles/reduce_into.hpp"

using namespace check_test;

namespace {

struct alignas(16) Piece {
  std::uint32_t words[64];
};

// Each rank stores a piece that its block has filled into the peer's memory; the peer uses it after the signal.
enum class Missing : std::uint8_t { fence, othersFence, waitRead, end };

template <Fault F, Missing M>
struct Exchange {
  static constexpr bool without(Missing what) { return planted<F> && M == what; }

  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    auto const block = thisBlock();
    auto& piece = arch::blockShared<Piece, Piece>();
    unsigned const t = block.rank();
    piece.words[t] = 5;  // <- bulk fill
    piece.words[32 + t] = 5;
    if (!without(Missing::fence) && !(without(Missing::othersFence) && t != 0)) bulkFence();
    block.sync();
    if (t == 0) {
      bulkStore(p.data(p.peer()), &piece, sizeof piece);  // <- bulk store
      bulkCommit();
      if constexpr (M == Missing::end) {
        if (!planted<F>) bulkWaitRead();
      } else {
        if (!without(Missing::waitRead)) bulkWaitRead();
        piece.words[0] = 9;  // <- bulk refill
        bulkWait();
        store<Order::release, Scope::system>(p.flag(p.peer()), 1);
        waitUntil<Order::acquire>(p.flag(p.rank), 1);
      }
    }
    block.sync();
    if constexpr (M != Missing::end) expect(*p.data(p.rank, t) == 5, "a stale piece");
  }
};

template <Fault F>
struct WithoutFence : Exchange<F, Missing::fence> {};
template <Fault F>
struct WithoutOthersFence : Exchange<F, Missing::othersFence> {};
template <Fault F>
struct WithoutWaitRead : Exchange<F, Missing::waitRead> {};
template <Fault F>
struct WithoutEnd : Exchange<F, Missing::end> {};

// The signal goes out when the source has been read, not when the data has come.
template <Fault F>
struct SignalTooEarly {
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    if (thisBlock().rank() != 0) return;
    auto& piece = arch::blockShared<Piece, Piece>();
    for (auto& word : piece.words) word = 5;
    bulkFence();
    bulkStore(p.data(p.peer()), &piece, sizeof piece);  // <- bulk early store
    bulkCommit();
    planted<F> ? bulkWaitRead() : bulkWait();
    store<Order::release, Scope::system>(p.flag(p.peer()), 1);
    waitUntil<Order::acquire>(p.flag(p.rank), 1);
    expect(*p.data(p.rank, 7) == 5, "a stale piece");  // <- bulk early use
  }
};

// A piece of the peer's memory is loaded; one thread uses it without having looked at the barrier.
template <Fault F>
struct LoadWithoutWait {
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    auto const block = thisBlock();
    auto& piece = arch::blockShared<Piece, LoadWithoutWait>();
    auto& barrier = arch::blockShared<BulkBarrier, LoadWithoutWait>();
    unsigned const t = block.rank();
    if (t == 0) {
      barrier.init(1);
      barrier.arriveExpect(sizeof piece);
      bulkLoad(&piece, p.data(p.peer()), sizeof piece, barrier);  // <- bulk load
    }
    block.sync();
    if (!planted<F> || t == 0) barrier.wait(nullptr, 0);
    expect(piece.words[t] == 0, "something else than zero");  // <- bulk load use
  }
};

// ---- between the blocks of a cluster ------------------------------------------------------------------------------

// Each block puts a word into the memory of the other, three times, into two places in turn.
enum class MissingOfPut : std::uint8_t { wait, secondPlace };

template <Fault F, MissingOfPut M>
struct PutToNeighbour {
  static constexpr bool without(MissingOfPut what) { return planted<F> && M == what; }
  struct Room {
    BulkBarrier come[2];
    std::uint32_t word[2];
  };

  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    auto& room = arch::blockShared<Room, PutToNeighbour>();
    if (thisBlock().rank() != 0) return;
    for (auto& barrier : room.come) barrier.init(1);
    arch::arriveAtCluster();
    arch::awaitCluster();
    auto& there = *arch::ofClusterBlock(room, 1 - arch::clusterRank());
    for (std::uint32_t i = 0; i < 3; ++i) {
      auto const set = i % 2, place = without(MissingOfPut::secondPlace) ? 0 : set;
      room.come[set].arriveExpect(sizeof room.word[0]);
      putCounted(there.word[place], i, there.come[set]);  // <- put
      if (!without(MissingOfPut::wait)) room.come[set].wait(nullptr, i / 2);
      auto const word = room.word[place];  // <- use of what was put
      if (without(MissingOfPut::wait)) room.come[set].wait(nullptr, i / 2);
      *p.data(0, arch::clusterRank()) = word;
      if (!planted<F>) expect(word == i, "another word");
    }
  }
};

template <Fault F>
struct PutWithoutWait : PutToNeighbour<F, MissingOfPut::wait> {};
template <Fault F>
struct PutsIntoOnePlace : PutToNeighbour<F, MissingOfPut::secondPlace> {};

// ---- additions ------------------------------------------------------------------------------------------------------

struct alignas(16) Addends {
  std::uint32_t words[32];
};

// Two blocks of one device add to one piece; a word counts those that have. The last to come reads the sum.
enum class MissingOfSum : std::uint8_t { wait, fence };

template <Fault F, MissingOfSum M>
struct AddAndRead {
  static constexpr bool without(MissingOfSum what) { return planted<F> && M == what; }

  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    auto const block = thisBlock();
    auto& piece = arch::blockShared<Addends, Addends>();
    piece.words[block.rank()] = 5;  // <- addend
    if (!without(MissingOfSum::fence)) bulkFence();
    block.sync();
    if (block.rank() == 0) {
      bulkReduceAdd(p.data(p.rank), piece.words, sizeof piece);  // <- bulk addition
      bulkCommit();
      without(MissingOfSum::wait) ? bulkWaitRead() : bulkWait();
      auto const before = fetchAdd<Order::acquireRelease, Scope::device>(p.flag(p.rank), 1);
      if (before == 1) expect(*p.data(p.rank, 7) == 10, "a part is missing");  // <- sum's use
      if (without(MissingOfSum::wait)) bulkWait();
    }
  }
};

template <Fault F>
struct AddWithoutWait : AddAndRead<F, MissingOfSum::wait> {};
template <Fault F>
struct AddWithoutFence : AddAndRead<F, MissingOfSum::fence> {};

// The target is cleared in the same kernel.
template <Fault F>
struct ClearedTarget {
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    auto& piece = arch::blockShared<Addends, ClearedTarget>();
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
    auto& piece = arch::blockShared<Addends, TwoRanks>();
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
Setup const twoOfCluster{.ranks = 1, .blocks = 2, .threads = 32, .clusterBlocks = 2};

}  // namespace

TEST_CASE("no proxy fence before a bulk store") {
  checkKernel<WithoutFence>({FindingKind::missingProxyFence, {"bulk fill", "bulk store"}});
}

TEST_CASE("only the storing thread's own writes are fenced") {
  checkKernel<WithoutOthersFence>({FindingKind::missingProxyFence, {"bulk fill", "bulk store"}});
}

TEST_CASE("the source of a bulk store is written before it has been read") {
  checkKernel<WithoutWaitRead>({FindingKind::race, {"bulk store", "bulk refill"}});
}

TEST_CASE("a thread ends with a bulk store on its way") {
  checkKernel<WithoutEnd>({FindingKind::bytesInFlight, {"bulk store"}});
}

TEST_CASE("a signal overtakes a bulk store") {
  checkKernel<SignalTooEarly>({FindingKind::race, {"bulk early store", "bulk early use"}});
}

TEST_CASE("a bulk load is used by a thread that has not waited for it") {
  checkKernel<LoadWithoutWait>({FindingKind::race, {"bulk load", "bulk load use"}});
}

TEST_CASE("every time at which a bulk store may arrive is tried") {
  Setup setup{.threads = 1, .options = {.strategy = sim::Strategy::exhaustive, .schedules = 20000}};
  auto const explored = [&](auto kernel) {
    return exploreRanks(
        {setup.ranks, setup.machine},
        [&](Rank& rank) {
          SharedMemory const memory(rank);
          launch(rank.stream, {.blocks = 1, .threads = 1}, kernel, memory.peers());
          rank.synchronize();
        },
        setup.options);
  };
  auto const correct = explored(SignalTooEarly<Fault::none>{});
  CHECK_MESSAGE(correct.ok(), sim::toText(correct));
  CHECK(correct.complete);
  CHECK(correct.schedules > 8);  // three times of each rank's store at least
  CHECK_FALSE(explored(SignalTooEarly<Fault::planted>{}).ok());
}

TEST_CASE("what another block puts is used before it is counted") {
  checkKernel<PutWithoutWait>({FindingKind::race, {"put", "use of what was put"}}, twoOfCluster);
}

TEST_CASE("a block puts again where the one before may not have been read") {
  checkKernel<PutsIntoOnePlace>({FindingKind::race, {"put"}}, twoOfCluster);
}

TEST_CASE("a flag overtakes a bulk addition") {
  checkKernel<AddWithoutWait>({FindingKind::race, {"bulk addition", "sum's use"}}, twoBlocks);
}

TEST_CASE("no proxy fence before a bulk addition") {
  checkKernel<AddWithoutFence>({FindingKind::missingProxyFence, {"addend", "bulk addition"}}, twoBlocks);
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
