// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Planted faults of multicast accesses: fences, barriers and orders that are missing around them.
#include "check/harness.hpp"
#include "mscclpp/device/multimem.hpp"
#include "mscclpp/device/switch_channel.hpp"
#include "mscclpp/host/switch_channel.hpp"

using namespace check_test;

namespace {

// What every rank has of a switch channel: its handle, and the plain address of its memory.
struct Switched {
  SwitchChannelDeviceHandle channel;

  MSCCLPP_DEVICE std::uint32_t* own(unsigned i = 0) const { return reinterpret_cast<std::uint32_t*>(channel.own) + i; }
  MSCCLPP_DEVICE std::uint32_t* all(unsigned i = 0) const {
    return reinterpret_cast<std::uint32_t*>(channel.multicast) + i;
  }
  // The signal and the wait of the channel's barrier, put together from their parts.
  MSCCLPP_DEVICE void meet(bool fenced = true, bool released = true, bool acquired = true) const {
    auto const& barrier = channel.semaphore;
    if (fenced) multimemFence();
    released ? multimemStoreReduce<Order::release, Scope::system>(barrier.multicastInbound, std::uint64_t{1})
             : multimemStoreReduce<Order::relaxed, Scope::system>(barrier.multicastInbound, std::uint64_t{1});
    auto const next = *barrier.expected + static_cast<std::uint64_t>(barrier.ranks);
    *barrier.expected = next;
    acquired ? waitUntil<Order::acquire>(barrier.inbound, next) : waitUntil<Order::relaxed>(barrier.inbound, next);
  }
  MSCCLPP_DEVICE unsigned ranks() const { return static_cast<unsigned>(channel.semaphore.ranks); }
  MSCCLPP_DEVICE bool first() const { return channel.rank == 0; }
};

// As checkKernel(), for kernels that take a Switched.
template <template <Fault> class Program>
void checkSwitch(Expected const& expected, Setup const& setup = {.ranks = 3, .threads = 1},
                 std::source_location const& here = std::source_location::current()) {
  auto const launched = [&setup](auto kernel) {
    return [&setup, kernel](Rank& rank) {
      GpuBuffer<std::uint32_t> const memory(rank.device, 256, MemoryKind::shareable);
      SwitchChannel const channel(rank.communicator, memory.data(), memory.bytes());
      launch(rank.stream, {.blocks = setup.blocks, .threads = setup.threads}, kernel, Switched{channel.deviceHandle()});
      rank.synchronize();
    };
  };
  checkFound(expected, setup, launched(Program<Fault::planted>{}), here.file_name());
  checkSilent(setup, launched(Program<Fault::none>{}));
}

// Plain writes, then a reduction of everybody's.
enum class Missing : std::uint8_t { fence, release, acquire, meeting, lastMeeting };

template <Fault F, Missing M>
struct ReduceWritten {
  static constexpr bool without(Missing what) { return planted<F> && M == what; }

  MSCCLPP_DEVICE void operator()(Switched const& s) const {
    *s.own() = 5;  // <- input
    if (!without(Missing::meeting)) {
      s.meet(!without(Missing::fence), !without(Missing::release), !without(Missing::acquire));
    }
    auto const total = multimemLoadReduce<Order::relaxed, Scope::system>(s.all());  // <- reduction
    if constexpr (M == Missing::fence) expect(total == 5 * s.ranks(), "a wrong sum");
    if (!without(Missing::lastMeeting)) s.meet();
    *s.own() = total;  // <- reuse
  }
};

template <Fault F>
struct WithoutFence : ReduceWritten<F, Missing::fence> {};
template <Fault F>
struct WithoutRelease : ReduceWritten<F, Missing::release> {};
template <Fault F>
struct WithoutAcquire : ReduceWritten<F, Missing::acquire> {};
template <Fault F>
struct WithoutMeeting : ReduceWritten<F, Missing::meeting> {};
template <Fault F>
struct WithoutLastMeeting : ReduceWritten<F, Missing::lastMeeting> {};

// Rank 0 stores into everybody's memory, which they read by its plain address.
template <Fault F, Missing M>
struct ReadStored {
  static constexpr bool without(Missing what) { return planted<F> && M == what; }

  MSCCLPP_DEVICE void operator()(Switched const& s) const {
    if (s.first()) multimemStore<Order::relaxed, Scope::system>(s.all(1), 7u);  // <- multicast store
    if (!without(Missing::meeting)) s.meet(!without(Missing::fence), !without(Missing::release));
    auto const seen = *s.own(1);  // <- plain use
    expect(M == Missing::fence ? seen == 7 : seen == 0 || seen == 7, "a stale value");
  }
};

template <Fault F>
struct UsedWithoutFence : ReadStored<F, Missing::fence> {};
template <Fault F>
struct UsedWithoutRelease : ReadStored<F, Missing::release> {};
template <Fault F>
struct UsedWithoutMeeting : ReadStored<F, Missing::meeting> {};

// The block's threads write; its first fences, which covers them only behind the block's barrier.
template <Fault F>
struct FenceBeforeBarrier {
  MSCCLPP_DEVICE void operator()(Switched const& s) const {
    auto const block = thisBlock();
    *s.own(block.rank()) = 5;  // <- threads' input
    if (planted<F> && block.rank() == 0) multimemFence();
    block.sync();
    if (block.rank() == 0) s.meet(!planted<F>);
    block.sync();
    (void)multimemLoadReduce<Order::relaxed, Scope::system>(s.all(block.rank()));  // <- threads' reduction
    block.sync();
    if (block.rank() == 0) s.meet();
  }
};

// Rank 0 adds to everybody's counter and rank 1 stores into its own, without an order of their own.
template <Fault F>
struct PlainBesideReduction {
  MSCCLPP_DEVICE void operator()(Switched const& s) const {
    if (s.first()) multimemStoreReduce<Order::relaxed, Scope::system>(s.all(2), 1u);  // <- multicast reduction
    if (s.channel.rank == 1) {
      if (planted<F>) {
        *s.own(2) = 4;  // <- plain store
      } else {
        reduceAdd<Order::relaxed, Scope::system>(s.own(2), 4u);
      }
    }
  }
};

// A value of a round before passes for a new one: flags of packets that rank 0 sends to all.
template <Fault F>
struct SameFlag {
  MSCCLPP_DEVICE void operator()(Switched const& s) const {
    for (std::uint32_t round = 1; round <= 2; ++round) {
      auto const flag = planted<F> ? 1 : round;
      std::uint32_t value = 10 * round;
      if (s.first()) s.channel.broadcastPackets<LL8>(thisThread(), 512, &value, 4, flag);
      std::uint32_t seen = 0;
      s.channel.unpackPackets<LL8>(thisThread(), 512, &seen, 4, flag);
      if (!planted<F>) expect(seen == value, "an old packet");
      s.channel.signal();
      s.channel.wait();
    }
  }
};

// A plain access to a multicast address, and a multicast access to a plain one.
template <Fault F>
struct WrongAddress {
  MSCCLPP_DEVICE void operator()(Switched const& s) const {
    multimemStore<Order::relaxed, Scope::system>(planted<F> ? s.own(3) : s.all(3), 7u);
  }
};

}  // namespace

TEST_CASE("no proxy fence between plain writes and a reduction of them") {
  checkSwitch<WithoutFence>({FindingKind::missingProxyFence, {"input", "reduction"}});
}

TEST_CASE("a relaxed signal before a reduction") {
  checkSwitch<WithoutRelease>({FindingKind::race, {"input", "reduction"}});
}

TEST_CASE("a relaxed wait before a reduction") {
  checkSwitch<WithoutAcquire>({FindingKind::race, {"input", "reduction"}});
}

TEST_CASE("a reduction of what has not been written yet") {
  checkSwitch<WithoutMeeting>({FindingKind::race, {"input", "reduction"}});
}

TEST_CASE("memory is written again while others still reduce it") {
  checkSwitch<WithoutLastMeeting>({FindingKind::race, {"reduction", "reuse"}});
}

TEST_CASE("no proxy fence between a multicast store and a plain read") {
  checkSwitch<UsedWithoutFence>({FindingKind::missingProxyFence, {"multicast store", "plain use"}});
}

TEST_CASE("a relaxed signal behind a multicast store") {
  checkSwitch<UsedWithoutRelease>({FindingKind::race, {"multicast store", "plain use"}});
}

TEST_CASE("a plain read of what a switch may still write") {
  checkSwitch<UsedWithoutMeeting>({FindingKind::race, {"multicast store", "plain use"}});
}

TEST_CASE("a fence before the barrier behind which the block's writes are") {
  checkSwitch<FenceBeforeBarrier>({FindingKind::missingProxyFence, {"threads' input", "threads' reduction"}},
                                  {.ranks = 2, .threads = 4});
}

TEST_CASE("a plain store beside a multicast reduction") {
  checkSwitch<PlainBesideReduction>({FindingKind::race, {"multicast reduction", "plain store"}});
}

TEST_CASE("a flag that is used twice in packets to all") { checkSwitch<SameFlag>({FindingKind::repeatedEpoch}); }

TEST_CASE("a multicast access to a plain address") {
  checkSwitch<WrongAddress>({FindingKind::kernelFailure, {}, "no multicast address"});
}

TEST_CASE("a store reaches one rank before another") {
  // Every order of arrival is tried: with a store to all that is seen by rank 1 alone, or by rank 2 alone.
  bool onlyFirst = false;
  bool onlySecond = false;
  auto const body = [&](Rank& rank) {
    GpuBuffer<std::uint32_t> const memory(rank.device, 64, MemoryKind::shareable);
    GpuBuffer<std::uint32_t> const seen(rank.device, 2);
    SwitchChannel const channel(rank.communicator, memory.data(), memory.bytes());
    auto const peers = rank.communicator.exchangeMemory(rank.communicator.registerMemory(memory.data(), 256));
    struct Kernel {
      MSCCLPP_DEVICE void operator()(Switched const& s, std::uint32_t const* one, std::uint32_t const* two,
                                     std::uint32_t* out) const {
        if (s.first()) return multimemStore<Order::relaxed, Scope::system>(s.all(), 1u);
        if (s.channel.rank == 1) {
          out[0] = load<Order::relaxed, Scope::system>(one);
          out[1] = load<Order::relaxed, Scope::system>(two);
        }
      }
    };
    launch(rank.stream, {.blocks = 1, .threads = 1}, Kernel{}, Switched{channel.deviceHandle()},
           reinterpret_cast<std::uint32_t const*>(peers[1].data()),
           reinterpret_cast<std::uint32_t const*>(peers[2].data()), seen.data());
    rank.synchronize();
    if (rank.rank != 1) return;
    auto const result = copyToHost(seen);
    onlyFirst = onlyFirst || (result[0] == 1 && result[1] == 0);
    onlySecond = onlySecond || (result[0] == 0 && result[1] == 1);
  };
  auto const result = exploreRanks({3, {}}, body, {.schedules = 300, .preemption = 0.3});
  CHECK_MESSAGE(result.ok(), sim::toText(result));
  CHECK(onlyFirst);
  CHECK(onlySecond);
}
