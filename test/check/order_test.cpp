// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Planted faults of order, scope and fences: the data and the word that announces it.
#include "check/harness.hpp"

using namespace check_test;

namespace {

// Two shots over two ranks: contributions to the peer's stage, a barrier, the sums back, a barrier. The barriers are
// relaxed flags, so the fences must order the data.
template <Fault F>
struct TwoShotWithoutFence {
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    unsigned const t = thisBlock().rank();
    unsigned const threads = thisBlock().size();
    *p.data(p.peer(), t) = 1 + t;
    barrier<false>(p, 1);
    *p.data(p.peer(), threads + t) = *p.data(p.rank, t) + t;  // <- two-shot sum
    barrier<planted<F>>(p, 2);
    expect(*p.data(p.rank, threads + t) == 1 + 2 * t, "a stale sum");  // <- two-shot use
  }

 private:
  template <bool WithoutFence>
  MSCCLPP_DEVICE static void barrier(Peers const& p, std::uint64_t phase) {
    thisBlock().sync();
    if (thisBlock().rank() == 0) {
      if constexpr (!WithoutFence) fence<Order::acquireRelease, Scope::system>();
      store<Order::relaxed, Scope::system>(p.flag(p.peer()), phase);
      waitUntil<Order::relaxed>(p.flag(p.rank), phase);
      fence<Order::acquireRelease, Scope::system>();
    }
    thisBlock().sync();
  }
};

}  // namespace

TEST_CASE("no fence between the data and the barrier of a two-shot reduction") {
  checkKernel<TwoShotWithoutFence>({FindingKind::race, {"two-shot sum", "two-shot use"}});
}

namespace {

// Byte flags of all ranks in one 8-byte word, each written as a byte and all read at once.
template <Fault F>
struct ByteFlags {
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    *p.data(p.rank) = 5;
    for (int r = 0; r < p.size; ++r) announce(p.flag(r), p.rank);
    std::uint64_t const all = p.size == 2 ? 0x0101 : 0x010101;
    poll(nullptr, {layout::WaitKind::semaphore, -1, 0, all}, [&](std::uint64_t& seen) {
      seen = load<Order::acquire, Scope::system>(p.flag(p.rank));  // <- byte flags poll
      return seen == all;
    });
    for (int r = 0; r < p.size; ++r) expect(*p.data(r) == 5, "stale data behind a byte flag");
  }

 private:
  MSCCLPP_DEVICE static void announce(std::uint64_t* flags, int rank) {
    if constexpr (planted<F>) {
      reinterpret_cast<volatile std::uint8_t*>(flags)[rank] = 1;  // <- byte flag
    } else {
      reduceAdd<Order::release, Scope::system>(flags, std::uint64_t{1} << (8 * rank));
    }
  }
};

// The same word, with additions that carry no order: two stages, in the second of which the sums are read.
template <Fault F>
struct RelaxedByteFlags {
  static constexpr Order arrive = planted<F> ? Order::relaxed : Order::release;

  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    *p.data(p.rank) = 5;  // <- stage one data
    barrier(p, 1);
    unsigned sum = 0;
    for (int r = 0; r < p.size; ++r) sum += *p.data(r);  // <- stage one use
    *p.data(p.rank, 1) = sum;
    barrier(p, 2);
    for (int r = 0; r < p.size; ++r) expect(*p.data(r, 1) == 5u * static_cast<unsigned>(p.size), "a stale sum");
  }

 private:
  MSCCLPP_DEVICE static void barrier(Peers const& p, std::uint64_t stage) {
    std::uint64_t all = 0;
    for (int r = 0; r < p.size; ++r) {
      reduceAdd<arrive, Scope::system>(p.flag(r), std::uint64_t{1} << (8 * p.rank));
      all |= stage << (8 * r);
    }
    poll(nullptr, {layout::WaitKind::semaphore, -1, 0, all}, [&](std::uint64_t& seen) {
      seen = load<Order::acquire, Scope::system>(p.flag(p.rank));
      for (int r = 0; r < p.size; ++r) {
        if ((seen >> (8 * r) & 0xff) < stage) return false;
      }
      return true;
    });
  }
};

}  // namespace

TEST_CASE("byte flags packed in one word, written as bytes") {
  checkKernel<ByteFlags>({FindingKind::race, {"byte flag", "byte flags poll"}}, {.ranks = 3, .threads = 1});
}

TEST_CASE("byte flags of a two-stage reduction without release") {
  checkKernel<RelaxedByteFlags>({FindingKind::race, {"stage one data", "stage one use"}}, {.ranks = 3, .threads = 1});
}

namespace {

template <Fault F>
struct RelaxedFlag {
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    if (p.rank == 0) {
      *p.data(1) = 7;  // <- relaxed flag data
      store<planted<F> ? Order::relaxed : Order::release, Scope::system>(p.flag(1), 1);
    } else {
      waitUntil<Order::acquire>(p.flag(1), 1);
      expect(*p.data(1) == 7, "stale data");  // <- relaxed flag use
    }
  }
};

template <Fault F>
struct FlagBeforeData {
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    if (p.rank == 0) {
      if constexpr (planted<F>) store<Order::release, Scope::system>(p.flag(1), 1);
      *p.data(1) = 7;  // <- late data
      if constexpr (!planted<F>) store<Order::release, Scope::system>(p.flag(1), 1);
    } else {
      waitUntil<Order::acquire>(p.flag(1), 1);
      expect(*p.data(1) == 7, "no data yet");  // <- late data use
    }
  }
};

template <Fault F>
struct RelaxedLook {
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    if (p.rank == 0) {
      *p.data(1) = 7;  // <- relaxed look data
      store<Order::release, Scope::system>(p.flag(1), 1);
    } else {
      waitUntil<Order::relaxed>(p.flag(1), 1);
      if constexpr (!planted<F>) fence<Order::acquireRelease, Scope::system>();
      expect(*p.data(1) == 7, "stale data");  // <- relaxed look use
    }
  }
};

// The flag's release reaches the own device only; the reader is on another.
template <Fault F>
struct NarrowRelease {
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    if (p.rank == 0) {
      *p.data(1) = 7;
      store<Order::release, planted<F> ? Scope::device : Scope::system>(p.flag(1), 1);  // <- narrow release
    } else {
      waitUntil<Order::acquire>(p.flag(1), 1);  // <- narrow release poll
      expect(*p.data(1) == 7, "stale data");
    }
  }
};

// Two blocks of one device, and fences for one block.
template <Fault F>
struct NarrowFence {
  static constexpr Scope scope = planted<F> ? Scope::block : Scope::device;
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    if (arch::blockIndex() == 0) {
      *p.data(0) = 7;  // <- narrow fence data
      fence<Order::acquireRelease, scope>();
      store<Order::relaxed, Scope::device>(p.flag(0), 1);
    } else {
      waitUntil<Order::relaxed, Scope::device>(p.flag(0), 1);
      fence<Order::acquireRelease, scope>();
      expect(*p.data(0) == 7, "stale data");  // <- narrow fence use
    }
  }
};

// A pointer is published in order and followed without: an address that depends on the load orders nothing.
template <Fault F>
struct PointerChase {
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    if (arch::blockIndex() == 0) {
      *p.data(0, 8) = 7;  // <- chased data
      store<Order::release, Scope::device>(p.flag(0), 8);
    } else {
      std::uint64_t place = 0;
      poll(nullptr, {layout::WaitKind::semaphore, -1, 0, 8}, [&](std::uint64_t& seen) {
        seen = place = load < planted<F> ? Order::relaxed : Order::acquire, Scope::device > (p.flag(0));
        return place != 0;
      });
      expect(*p.data(0, static_cast<unsigned>(place)) == 7, "stale data");  // <- chased use
    }
  }
};

// Rank 0 tells rank 1, which tells rank 2: what rank 0 wrote must be there for rank 2 too.
template <Fault F>
struct Relay {
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    if (p.rank == 0) {
      *p.data(2) = 7;  // <- relayed data
      store<Order::release, Scope::system>(p.flag(1), 1);
    } else if (p.rank == 1) {
      waitUntil<planted<F> ? Order::relaxed : Order::acquire>(p.flag(1), 1);
      store<Order::release, Scope::system>(p.flag(2), 1);
    } else {
      waitUntil<Order::acquire>(p.flag(2), 1);
      expect(*p.data(2) == 7, "stale data");  // <- relayed use
    }
  }
};

}  // namespace

TEST_CASE("data announced by a relaxed store") {
  checkKernel<RelaxedFlag>({FindingKind::race, {"relaxed flag data", "relaxed flag use"}}, {.threads = 1});
}

TEST_CASE("the flag goes before the data") {
  checkKernel<FlagBeforeData>({FindingKind::race, {"late data", "late data use"}}, {.threads = 1});
}

TEST_CASE("a relaxed look at the flag and no fence after it") {
  checkKernel<RelaxedLook>({FindingKind::race, {"relaxed look data", "relaxed look use"}}, {.threads = 1});
}

TEST_CASE("a release of device scope for another device") {
  checkKernel<NarrowRelease>({FindingKind::narrowScope, {"narrow release", "narrow release poll"}}, {.threads = 1});
}

TEST_CASE("fences of block scope between blocks") {
  checkKernel<NarrowFence>({FindingKind::narrowScope, {"narrow fence data", "narrow fence use"}},
                           {.ranks = 1, .blocks = 2, .threads = 1});
}

TEST_CASE("a published pointer followed after a relaxed load") {
  checkKernel<PointerChase>({FindingKind::race, {"chased data", "chased use"}},
                            {.ranks = 1, .blocks = 2, .threads = 1});
}

TEST_CASE("a relay that does not acquire what it passes on") {
  checkKernel<Relay>({FindingKind::race, {"relayed data", "relayed use"}}, {.ranks = 3, .threads = 1});
}

namespace {

// Each says that it wants to enter, then looks whether the other does: without a sequential fence both may find that
// the other does not.
template <Fault F>
struct StoreBuffering {
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    store<Order::relaxed, Scope::system>(p.flag(p.rank), 1);
    fence<planted<F> ? Order::acquireRelease : Order::sequential, Scope::system>();
    if (load<Order::relaxed, Scope::system>(p.flag(p.peer())) == 0) {
      *p.data(0) += 1;  // <- entered by both
    }
  }
};

template <Fault F>
struct RelaxedUnlock {
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    poll(nullptr, {layout::WaitKind::semaphore, -1, 0, 0}, [&](std::uint64_t& seen) {
      seen = exchange<Order::acquire, Scope::system>(p.flag(0), 1);
      return seen == 0;
    });
    *p.data(0) += 1;  // <- locked
    store<planted<F> ? Order::relaxed : Order::release, Scope::system>(p.flag(0), 0);
  }
};

// The block that arrives last adds up what all have left.
template <Fault F>
struct LastBlockReduces {
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    auto const blocks = arch::gridBlocks();
    *p.data(0, 1 + arch::blockIndex()) = 3;  // <- partial sum
    constexpr Order order = planted<F> ? Order::relaxed : Order::acquireRelease;
    if (fetchAdd<order, Scope::device>(p.flag(0), 1) + 1 != blocks) return;
    unsigned sum = 0;
    for (unsigned b = 0; b < blocks; ++b) sum += *p.data(0, 1 + b);  // <- partial sum use
    expect(sum == 3 * blocks, "a wrong sum");
  }
};

template <Fault F>
struct PlainCounter {
  void operator()(Rank& rank) const {
    SharedMemory const memory(rank);
    launch(rank.stream, {.blocks = 1, .threads = 1}, Kernel{}, memory.peers());
    rank.synchronize();
    if (rank.rank == 0) expectOnHost(copyToHost(memory.own())[0] == std::byte{2}, "a wrong count");
    rank.communicator.bootstrap()->barrier();
  }

  struct Kernel {
    MSCCLPP_DEVICE void operator()(Peers const& p) const {
      if constexpr (planted<F>) {
        *p.data(0) += 1;  // <- plain counter
      } else {
        reduceAdd<Order::relaxed, Scope::system>(p.data(0), 1);
      }
    }
  };
};

}  // namespace

TEST_CASE("store buffering: a fence that is not sequential lets two enter") {
  checkKernel<StoreBuffering>({FindingKind::race, {"entered by both", "entered by both"}}, {.threads = 1});
}

TEST_CASE("a lock that is left with a relaxed store") {
  checkKernel<RelaxedUnlock>({FindingKind::race, {"locked", "locked"}}, {.threads = 1});
}

TEST_CASE("the last block to arrive reads what it has not acquired") {
  checkKernel<LastBlockReduces>({FindingKind::race, {"partial sum", "partial sum use"}},
                                {.ranks = 1, .blocks = 3, .threads = 1});
}

TEST_CASE("a counter of two devices that is not atomic") {
  checkProgram<PlainCounter>({FindingKind::race, {"plain counter", "plain counter"}});
}

namespace {

// The hand-over of a memory channel: the block puts, meets, one thread signals; there one waits, the block meets.
enum class Left : std::uint8_t { nothing, syncBeforeSignal, release, acquire, syncAfterWait };

template <Left L>
struct HandOver {
  MSCCLPP_DEVICE void operator()(DeviceHandle<MemoryChannel> const& channel, std::uint32_t* own, int rank) const {
    auto const block = thisBlock();
    if (rank == 0) {
      channel.write<std::uint32_t>(block.rank(), block.rank());  // <- hand-over data
      if constexpr (L != Left::syncBeforeSignal) block.sync();
      if (block.rank() == 0) L == Left::release ? channel.relaxedSignal() : channel.signal();
    } else {
      if (block.rank() == 0) L == Left::acquire ? channel.relaxedWait() : channel.wait();
      if constexpr (L != Left::syncAfterWait) block.sync();
      expect(own[block.size() - 1 - block.rank()] == block.size() - 1 - block.rank(), "no data");  // <- hand-over use
    }
  }
};

template <Fault F, Left L>
void handOver(Rank& rank) {
  ChannelPair const pair(rank);
  launch(rank.stream, {.blocks = 1, .threads = 32}, HandOver < planted<F> ? L : Left::nothing > {},
         pair.channel.deviceHandle(), pair.own.data(), rank.rank);
  rank.synchronize();
}

template <Fault F>
struct NoSyncBeforeSignal {
  void operator()(Rank& rank) const { handOver<F, Left::syncBeforeSignal>(rank); }
};
template <Fault F>
struct RelaxedSignal {
  void operator()(Rank& rank) const { handOver<F, Left::release>(rank); }
};
template <Fault F>
struct RelaxedWait {
  void operator()(Rank& rank) const { handOver<F, Left::acquire>(rank); }
};
template <Fault F>
struct NoSyncAfterWait {
  void operator()(Rank& rank) const { handOver<F, Left::syncAfterWait>(rank); }
};

Expected const handOverRace{FindingKind::race, {"hand-over data", "hand-over use"}};

}  // namespace

TEST_CASE("a channel's signal before the other threads have put") { checkProgram<NoSyncBeforeSignal>(handOverRace); }
TEST_CASE("a channel's relaxed signal for data") { checkProgram<RelaxedSignal>(handOverRace); }
TEST_CASE("a channel's relaxed wait for data") { checkProgram<RelaxedWait>(handOverRace); }
TEST_CASE("one thread waits for a channel and the others do not") { checkProgram<NoSyncAfterWait>(handOverRace); }
