// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Planted faults of signals: lost, miscounted, taken for another's or for an older one.
#include "check/harness.hpp"

using namespace check_test;

namespace {

// The host zeroes its signals when peers already know their addresses.
template <Fault F>
struct HostZeroesSignals {
  void operator()(Rank& rank) const {
    SharedMemory const memory(rank);
    if constexpr (planted<F>) memory.own().fill(0);  // <- zero
    launch(rank.stream, {.blocks = 1, .threads = 1}, Kernel{}, memory.peers());
    rank.synchronize();
  }

  struct Kernel {
    MSCCLPP_DEVICE void operator()(Peers const& p) const {
      reduceAdd<Order::release, Scope::system>(p.flag(p.peer()), 1);  // <- early signal
      waitUntil<Order::acquire>(p.flag(p.rank), 1);
    }
  };
};

// The same in the kernel, with an access that is in order for signals.
template <Fault F>
struct KernelZeroesSignals {
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    if constexpr (planted<F>) store<Order::relaxed, Scope::system>(p.flag(p.rank), 0);
    reduceAdd<Order::release, Scope::system>(p.flag(p.peer()), 1);
    waitUntil<Order::acquire>(p.flag(p.rank), 1);
  }
};

// Two peers count up one word of rank 0's.
template <Fault F>
struct CountedByStore {
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    if (p.rank == 0) return waitUntil<Order::acquire>(p.flag(0), 2);
    if constexpr (planted<F>) {
      store<Order::release, Scope::system>(p.flag(0), load<Order::relaxed, Scope::system>(p.flag(0)) + 1);
    } else {
      reduceAdd<Order::release, Scope::system>(p.flag(0), 1);
    }
  }
};

}  // namespace

TEST_CASE("the host zeroes its signals after peers may have signalled") {
  checkProgram<HostZeroesSignals>({FindingKind::race, {"zero", "early signal"}});
}

TEST_CASE("a kernel zeroes its signals after peers may have signalled") {
  checkKernel<KernelZeroesSignals>({FindingKind::deadLock}, {.threads = 1});
}

TEST_CASE("two signals by store leave one") {
  checkKernel<CountedByStore>({FindingKind::deadLock}, {.ranks = 3, .threads = 1});
}

namespace {

// Rank 0 writes two items and signals each; rank 1 waits for each.
enum class Miscount : std::uint8_t { none, oneWaitTooMany, oneWaitTooFew, oneSignalTooMany };

template <Miscount M>
struct TwoItems {
  MSCCLPP_DEVICE void operator()(DeviceHandle<MemoryChannel> const& channel, std::uint32_t* own, int rank) const {
    if (rank == 0) {
      channel.write<std::uint32_t>(0, 1);
      channel.signal();
      channel.write<std::uint32_t>(1, 2);  // <- second item
      channel.signal();
      if constexpr (M == Miscount::oneSignalTooMany) channel.signal();  // <- third signal
    } else {
      channel.wait();
      if constexpr (M != Miscount::oneWaitTooFew) channel.wait();
      expect(own[0] + own[1] == 3, "an item is missing");  // <- both items
      if constexpr (M == Miscount::oneWaitTooMany) channel.wait();
    }
  }
};

template <Fault F, Miscount M>
void twoItems(Rank& rank) {
  ChannelPair const pair(rank);
  launch(rank.stream, {.blocks = 1, .threads = 1}, TwoItems < planted<F> ? M : Miscount::none > {},
         pair.channel.deviceHandle(), pair.own.data(), rank.rank);
  rank.synchronize();
}

template <Fault F>
struct WaitTooMany {
  void operator()(Rank& rank) const { twoItems<F, Miscount::oneWaitTooMany>(rank); }
};
template <Fault F>
struct WaitTooFew {
  void operator()(Rank& rank) const { twoItems<F, Miscount::oneWaitTooFew>(rank); }
};
template <Fault F>
struct SignalTooMany {
  void operator()(Rank& rank) const { twoItems<F, Miscount::oneSignalTooMany>(rank); }
};

// One thread at a time may wait on a semaphore: each wait takes the next count.
template <Fault F>
struct TwoWaiters {
  void operator()(Rank& rank) const { runOverChannel(rank, Kernel{}); }

  struct Kernel {
    MSCCLPP_DEVICE void operator()(DeviceHandle<MemoryChannel> const& channel) const {
      auto const me = thisBlock().rank();
      if (me < 2) channel.signal();
      if constexpr (planted<F>) {
        if (me < 2) channel.wait();  // <- two wait
      } else if (me == 0) {
        channel.wait();
        channel.wait();
      }
    }
  };
};

}  // namespace

TEST_CASE("one wait more than there are signals") {
  checkProgram<WaitTooMany>({FindingKind::deadLock, {}, "signal of rank 0"});
}

TEST_CASE("one wait less than there are items") {
  checkProgram<WaitTooFew>({FindingKind::race, {"second item", "both items"}});
}

TEST_CASE("a signal that nobody waits for") {
  checkProgram<SignalTooMany>({FindingKind::lostSignal, {"third signal"}});
}

TEST_CASE("two threads wait on one semaphore") {
  checkProgram<TwoWaiters>({FindingKind::race, {"two wait", "two wait"}});
}

namespace {

// A flag that says the same in both rounds: the second wait ends at once.
template <Fault F>
struct SameFlagTwice {
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    for (unsigned round = 1; round <= 2; ++round) {
      std::uint64_t const epoch = planted<F> ? 1 : round;
      *p.data(p.peer(), round) = round;  // <- data of the round
      store<Order::release, Scope::system>(p.flag(p.peer()), epoch);
      waitUntil<Order::acquire>(p.flag(p.rank), epoch);
      expect(*p.data(p.rank, round) == round, "no data of this round");  // <- use in the round
    }
  }
};

template <Fault F>
struct BothWaitFirst {
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    bool const first = planted<F> || p.rank == 0;
    if (first) waitUntil<Order::acquire>(p.flag(p.rank), 1);
    store<Order::release, Scope::system>(p.flag(p.peer()), 1);
    if (!first) waitUntil<Order::acquire>(p.flag(p.rank), 1);
  }
};

// A ring: each signals the next and waits for the one before it.
template <Fault F>
struct WrongNeighbour {
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    int const next = (p.rank + 1) % p.size;
    int const before = (p.rank + p.size - 1) % p.size;
    store<Order::release, Scope::system>(p.flag(next, static_cast<unsigned>(p.rank)), 1);
    waitUntil<Order::acquire>(p.flag(p.rank, static_cast<unsigned>(planted<F> ? next : before)), 1);
  }
};

// A rank that finds nothing to do leaves; its peers wait for it.
template <Fault F>
struct LeavesWithoutSignal {
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    bool const idle = p.rank == 1;
    if (planted<F> && idle) return;
    if (!idle) *p.data(p.peer()) = 3;
    store<Order::release, Scope::system>(p.flag(p.peer()), 1);
    waitUntil<Order::acquire>(p.flag(p.rank), 1);
  }
};

// Two locks, taken in opposite order.
template <Fault F>
struct TwoLocks {
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    int const first = planted<F> ? p.rank : 0;
    lock(p.flag(first));
    lock(p.flag(1 - first));
    *p.data(0) += 1;
    store<Order::release, Scope::system>(p.flag(1 - first), 0);
    store<Order::release, Scope::system>(p.flag(first), 0);
  }

 private:
  MSCCLPP_DEVICE static void lock(std::uint64_t* word) {
    poll(nullptr, {layout::WaitKind::semaphore, -1, 0, 0}, [&](std::uint64_t& seen) {
      seen = load<Order::relaxed, Scope::system>(word);
      return seen == 0 && exchange<Order::acquire, Scope::system>(word, 1) == 0;
    });
  }
};

// Each lets the other go first, in a loop of its own that the machine cannot recognise as a wait.
template <Fault F>
struct AfterYou {
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    if (!planted<F> && p.rank == 0) store<Order::release, Scope::system>(p.flag(1), 1);
    while (load<Order::acquire, Scope::system>(p.flag(p.rank)) == 0) {
    }
    if (planted<F> || p.rank == 1) store<Order::release, Scope::system>(p.flag(p.peer()), 1);
  }
};

// A flag that is an ordinary variable, set by the peer.
template <Fault F>
struct PlainFlag {
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    if constexpr (planted<F>) {
      *const_cast<std::uint64_t volatile*>(p.flag(p.peer())) = 1;                // <- set
      while (*const_cast<std::uint64_t const volatile*>(p.flag(p.rank)) == 0) {  // <- look
      }
    } else {
      store<Order::release, Scope::system>(p.flag(p.peer()), 1);
      while (load<Order::acquire, Scope::system>(p.flag(p.rank)) == 0) {
      }
    }
  }
};

// The same, and nobody sets it.
template <Fault F>
struct PlainFlagNeverSet {
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    if (planted<F> && p.rank == 0) {
      while (*const_cast<std::uint64_t const volatile*>(p.flag(p.rank)) == 0) {  // <- spin
      }
    }
  }
};

}  // namespace

TEST_CASE("an epoch that repeats") {
  checkKernel<SameFlagTwice>({FindingKind::race, {"data of the round", "use in the round"}}, {.threads = 1});
}

TEST_CASE("both wait before they signal") { checkKernel<BothWaitFirst>({FindingKind::deadLock}, {.threads = 1}); }

TEST_CASE("a ring that waits for the wrong neighbour") {
  checkKernel<WrongNeighbour>({FindingKind::deadLock}, {.ranks = 3, .threads = 1});
}

TEST_CASE("a rank without work leaves and does not signal") {
  checkKernel<LeavesWithoutSignal>({FindingKind::deadLock}, {.threads = 1});
}

TEST_CASE("two locks taken in opposite order") { checkKernel<TwoLocks>({FindingKind::deadLock}, {.threads = 1}); }

TEST_CASE("two threads that let each other go first") {
  checkKernel<AfterYou>({FindingKind::liveLock},
                        {.threads = 1, .options = {.preemption = 0.2, .liveLockSteps = 20'000}});
}

TEST_CASE("a flag that is a plain variable") {
  checkKernel<PlainFlag>({FindingKind::race, {"set", "look"}}, {.threads = 1});
}

TEST_CASE("a plain variable that nobody sets") {
  checkKernel<PlainFlagNeverSet>({FindingKind::liveLock}, {.threads = 1, .options = {.liveLockSteps = 200'000}});
}
