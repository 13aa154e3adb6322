// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The queue between kernels and a proxy: every interleaving at small size, and planted faults.
#include <algorithm>
#include <vector>

#include "check/harness.hpp"
#include "mscclpp/device/fifo.hpp"
#include "mscclpp/host/proxy.hpp"

using namespace check_test;

namespace {

// Each of the threads pushes its own numbers in order. Both halves of a trigger say the same.
struct Producers {
  MSCCLPP_DEVICE void operator()(FifoDeviceHandle const& fifo, unsigned each) const {
    auto const thread = thisBlock().rank();
    for (unsigned i = 0; i < each; ++i) fifo.push({thread * 16 + i, thread * 16 + i});
  }
};

// What the proxy took must be each producer's numbers in their order, each once, and whole.
void expectAllTaken(std::vector<layout::Trigger> const& taken, unsigned producers, unsigned each) {
  expectOnHost(taken.size() == producers * each, "as many triggers are taken as were pushed");
  std::vector<unsigned> next(producers, 0);
  for (auto const& trigger : taken) {
    expectOnHost(trigger.fst == trigger.snd, "a trigger is whole");
    auto const thread = trigger.fst / 16;
    expectOnHost(thread < producers && trigger.fst % 16 == next[thread]++, "a producer's triggers come in its order");
  }
}

template <class Kernel>
void produce(Rank& rank, std::uint32_t size, unsigned producers, unsigned each) {
  std::vector<layout::Trigger> taken;
  Proxy proxy(rank.communicator,
              [&](layout::Trigger const& trigger, std::uint64_t) {
                taken.push_back(trigger);
                return ProxyAction::goOn;
              },
              {.fifoSize = size});
  proxy.start();
  launch(rank.stream, {.blocks = 1, .threads = producers}, Kernel{}, proxy.fifo().deviceHandle(), each);
  rank.synchronize();
  proxy.stop();
  expectAllTaken(taken, producers, each);
}

sim::ExploreResult explored(std::function<void(Rank&)> const& body, sim::ExploreOptions options) {
  return exploreRanks({.ranks = 1}, body, options);
}

}  // namespace

TEST_CASE("every interleaving of two producers, a full queue, wrap-around and a slow proxy") {
  auto const result = explored([](Rank& rank) { produce<Producers>(rank, 1, 2, 1); },
                               {.strategy = sim::Strategy::exhaustive, .schedules = 1000000});
  CHECK_MESSAGE(result.ok(), sim::toText(result));
  CHECK(result.complete);
  MESSAGE("one slot, 2 x 1 triggers: ", result.schedules, " schedules, ", result.seconds, " s");
}

TEST_CASE("every interleaving: longer ones") {
  struct Size {
    std::uint32_t slots;
    unsigned producers;
    unsigned each;
  };
  for (auto const& size : {Size{1, 1, 3}, Size{2, 2, 1}, Size{2, 1, 4}, Size{1, 2, 2}, Size{4, 3, 1}}) {
    CAPTURE(size.slots);
    auto const result =
        explored([&](Rank& rank) { produce<Producers>(rank, size.slots, size.producers, size.each); },
                 {.strategy = sim::Strategy::exhaustive, .schedules = 1000000, .timeLimit = std::chrono::seconds(60)});
    CHECK_MESSAGE(result.ok(), sim::toText(result));
    CHECK(result.complete);
    MESSAGE(size.slots, " slots, ", size.producers, " x ", size.each, " triggers: ", result.schedules, " schedules, ",
            result.seconds, " s");
  }
}

namespace {

enum class QueueFault : std::uint8_t { none, parityOfPosition, neverFull, halvesApart, relaxed, narrow };

// FifoDeviceHandle::push again, with one thing wrong.
template <QueueFault Q>
struct FaultyProducers {
  MSCCLPP_DEVICE void operator()(FifoDeviceHandle const& fifo, unsigned each) const {
    auto const thread = thisBlock().rank();
    for (unsigned i = 0; i < each; ++i) push(fifo, {thread * 16 + i, thread * 16 + i});
  }

  MSCCLPP_DEVICE static void push(FifoDeviceHandle const& fifo, layout::Trigger trigger) {
    auto const position = fetchAdd<Order::relaxed, Scope::device>(fifo.head, 1u);
    if constexpr (Q != QueueFault::neverFull) {
      if (position >= load<Order::acquire, Scope::device>(fifo.tailCache) + fifo.size) {
        fifo.sync(position - fifo.size);
      }
    }
    // The lap's parity, or by mistake that of the position.
    auto const turn = Q == QueueFault::parityOfPosition ? position : position / fifo.size;
    trigger.snd |= (turn & 1) == 0 ? layout::triggerParity : 0;
    auto* const slot = fifo.slots + position % fifo.size;
    if constexpr (Q == QueueFault::halvesApart) {
      storeWords4(reinterpret_cast<Words4*>(slot), bitCast<Words4>(trigger));
    } else if constexpr (Q == QueueFault::relaxed) {
      store<Order::relaxed, Scope::system>(&slot->fst, trigger.fst);
      store<Order::relaxed, Scope::system>(&slot->snd, trigger.snd);
    } else if constexpr (Q == QueueFault::narrow) {
      store<Order::relaxed, Scope::device>(&slot->fst, trigger.fst);
      store<Order::release, Scope::device>(&slot->snd, trigger.snd);
    } else {
      storeReleaseWords4(reinterpret_cast<Words4*>(slot), bitCast<Words4>(trigger));
    }
  }
};

// Explores all schedules until something is found.
template <QueueFault Q>
sim::ExploreResult withFault(std::uint32_t slots, unsigned producers, unsigned each) {
  return explored([=](Rank& rank) { produce<FaultyProducers<Q>>(rank, slots, producers, each); },
                  {.strategy = sim::Strategy::exhaustive,
                   .schedules = 1000000,
                   .stopAtFirst = true,
                   .shrink = false,
                   .timeLimit = std::chrono::seconds(60)});
}

template <QueueFault Q>
void checkFaultFound(std::uint32_t slots, unsigned producers, unsigned each) {
  auto const correct = withFault<QueueFault::none>(slots, producers, each);
  CHECK_MESSAGE(correct.ok(), sim::toText(correct));
  CHECK(correct.complete);
  auto const faulty = withFault<Q>(slots, producers, each);
  REQUIRE(!faulty.ok());
  MESSAGE("found after ", faulty.schedules, " schedules: ", faulty.findings.front().summary);
}

}  // namespace

TEST_CASE("a parity that does not count laps is found") { checkFaultFound<QueueFault::parityOfPosition>(2, 2, 1); }
TEST_CASE("a queue that does not look whether it is full is found") { checkFaultFound<QueueFault::neverFull>(1, 2, 1); }
TEST_CASE("a trigger whose halves may come in any order is found") {
  checkFaultFound<QueueFault::halvesApart>(1, 2, 1);
}
TEST_CASE("a trigger without release is found") { checkFaultFound<QueueFault::relaxed>(1, 2, 1); }
TEST_CASE("a trigger whose scope ends at the device is found") { checkFaultFound<QueueFault::narrow>(1, 2, 1); }

namespace {

// What a thread wrote before its push, a handler may read.
template <Fault F>
struct DataForHandler {
  struct Kernel {
    MSCCLPP_DEVICE void operator()(FifoDeviceHandle const& fifo, std::uint32_t* data) const {
      data[thisBlock().rank()] = 7;  // <- write
      if constexpr (!planted<F>) thisBlock().sync();
      if (thisBlock().rank() == 0) fifo.push({1, 1});
    }
  };

  void operator()(Rank& rank) const {
    GpuBuffer<std::uint32_t> const data(rank.device, 2);
    std::uint32_t seen = 0;
    Proxy proxy(rank.communicator, [&](layout::Trigger const&, std::uint64_t) {
      seen = data.data()[1];  // <- read
      return ProxyAction::goOn;
    });
    proxy.start();
    launch(rank.stream, {.blocks = 1, .threads = 2}, Kernel{}, proxy.fifo().deviceHandle(), data.data());
    rank.synchronize();
    proxy.stop();
    expectOnHost(planted<F> || seen == 7, "the handler sees what was written before the push");
  }
};

}  // namespace

TEST_CASE("a push that is not ordered after another thread's write is found") {
  checkProgram<DataForHandler>({FindingKind::race, {"write", "read"}}, {.ranks = 1});
}
