// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Planted faults of bulk copies: fences, waits, and the end of the thread that started them.
#include "mscclpp/device/bulk_copy.hpp"
#include "check/harness.hpp"

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
