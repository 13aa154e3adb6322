// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rank code that shares words with kernels and with other ranks by std::atomic, loadShared() and storeShared().
#include <atomic>
#include <cstddef>
#include <map>
#include <set>

#include "check/harness.hpp"
#include "mscclpp/host/team.hpp"
#include "mscclpp/host/wait.hpp"

using namespace check_test;

namespace {

// Pinned memory: a flag and a payload, and a flag for the answer.
class Pinned {
 public:
  explicit Pinned(Rank const& rank) : runtime_(runtime(rank.device.kind)), memory_(runtime_.allocateHost(64)) {}
  ~Pinned() { runtime_.releaseHost(memory_); }
  Pinned(Pinned const&) = delete;
  Pinned& operator=(Pinned const&) = delete;
  std::uint64_t* flag() const { return static_cast<std::uint64_t*>(memory_); }
  std::uint64_t* payload() const { return flag() + 1; }
  std::uint64_t* answer() const { return flag() + 2; }

 private:
  Runtime& runtime_;
  void* memory_;
};

struct Answer {
  MSCCLPP_DEVICE void operator()(std::uint64_t* flag, std::uint64_t const* payload, std::uint64_t* answer) const {
    waitUntil<Order::acquire>(flag, 1);
    expect(*payload == 7, "an old payload");
    store<Order::release, Scope::system>(answer, 1);
  }
};

// Hands a payload to a running kernel, and waits for its answer.
template <Fault F>
struct StoresAndSpins {
  void operator()(Rank& rank) const {
    Pinned const pinned(rank);
    launch(rank.stream, {.blocks = 1, .threads = 1}, Answer{}, pinned.flag(), pinned.payload(), pinned.answer());
    *pinned.payload() = 7;
    std::atomic_ref(*pinned.flag()).store(1, planted<F> ? std::memory_order_relaxed : std::memory_order_release);
    while (std::atomic_ref(*pinned.answer()).load(std::memory_order_acquire) != 1) {
    }
    *pinned.payload() = 8;
    rank.synchronize();
  }
};

template <Fault F>
struct SpinsRelaxed {
  void operator()(Rank& rank) const {
    Pinned const pinned(rank);
    launch(rank.stream, {.blocks = 1, .threads = 1}, Answer{}, pinned.flag(), pinned.payload(), pinned.answer());
    *pinned.payload() = 7;
    std::atomic_ref(*pinned.flag()).store(1);
    std::atomic_ref const answer(*pinned.answer());
    while (answer.load(planted<F> ? std::memory_order_relaxed : std::memory_order_acquire) != 1) {
    }
    *pinned.payload() = 8;
    rank.synchronize();
  }
};

// The kernel waits for a flag that the host sets once it has seen the kernel's.
template <Fault F>
struct SpinsForNobody {
  void operator()(Rank& rank) const {
    Pinned const pinned(rank);
    launch(rank.stream, {.blocks = 1, .threads = 1}, Answer{}, pinned.flag(), pinned.payload(), pinned.answer());
    *pinned.payload() = 7;
    if constexpr (!planted<F>) storeShared(pinned.flag(), 1);
    while (loadShared(pinned.answer()) != 1) {
    }
    rank.synchronize();
  }
};

// Looks at two words in turn.
template <Fault F>
struct SpinsForEither {
  void operator()(Rank& rank) const {
    Pinned const pinned(rank);
    *pinned.payload() = 7;
    std::atomic_ref<std::uint64_t> const answer(*pinned.answer()), other(*(pinned.answer() + 1));
    if constexpr (!planted<F>) std::atomic_ref(*pinned.flag()).store(1);
    launch(rank.stream, {.blocks = 1, .threads = 1}, Answer{}, pinned.flag(), pinned.payload(), pinned.answer());
    while (answer.load() == 0 && other.load() == 0) {
    }
    rank.synchronize();
  }
};

// Ranks that take turns by atomics in the memory of their process, which is not the machine's.
template <Fault F>
struct TakesTurns {
  void operator()(Rank& rank) const {
    static std::atomic<int> turn;
    static std::atomic<bool> locked;
    if (rank.rank == 0) {
      turn = 0;
      locked = false;
    }
    rank.communicator.bootstrap()->barrier();
    while (turn != rank.rank) {
    }
    for (bool free = false; !locked.compare_exchange_weak(free, true); free = false) {
    }
    if (!planted<F> || rank.rank != 0) ++turn;
    locked = false;
    rank.communicator.bootstrap()->barrier();
  }
};

// The machine has such containers, too, and the linker takes these functions, which are instrumented, for both.
struct KeepsNumbers {
  void operator()(Rank& rank) const {
    std::set<int> numbers;
    std::map<int, std::size_t> counts;
    for (int i = 0; i < 9; ++i) {
      numbers.insert(i % 4);
      ++counts[i % 3];
    }
    Pinned const pinned(rank);
    *pinned.payload() = 7;
    Team const team(rank.communicator, {.blocks = 1});
    expectOnHost(numbers.size() == 4 && counts.size() == 3, "a number that is lost");
    rank.communicator.bootstrap()->barrier();
  }
};

}  // namespace

TEST_CASE("rank code may have containers of the machine's own types") {
  auto const result = exploreRanks({2, {}}, KeepsNumbers{}, {.schedules = 3});
  CHECK_MESSAGE(result.ok(), sim::toText(result));
}

TEST_CASE("a flag that rank code stores relaxed lets a kernel see the old payload") {
  checkProgram<StoresAndSpins>({FindingKind::race}, {.ranks = 1, .threads = 1});
}

TEST_CASE("rank code that looks relaxed in a loop does not know what came before the answer") {
  checkProgram<SpinsRelaxed>({FindingKind::race}, {.ranks = 1, .threads = 1});
}

TEST_CASE("rank code that spins on a word is reported as what it waits for, whatever the strategy") {
  for (auto const strategy : {sim::Strategy::random, sim::Strategy::pct, sim::Strategy::exhaustive}) {
    CAPTURE(static_cast<int>(strategy));
    auto const run = [&]<Fault F>(std::integral_constant<Fault, F>) {
      return exploreRanks({1, {}}, SpinsForNobody<F>{}, {.strategy = strategy, .schedules = 50});
    };
    auto const silent = run(std::integral_constant<Fault, Fault::none>{});
    CHECK_MESSAGE(silent.ok(), sim::toText(silent));
    auto const found = run(std::integral_constant<Fault, Fault::planted>{});
    REQUIRE(found.findings.size() >= 1);
    CHECK((found.findings[0].kind == FindingKind::liveLock || found.findings[0].kind == FindingKind::deadLock));
    CHECK(sim::toText(found).find("a change of") != std::string::npos);
    CHECK(found.seconds < 30);
  }
}

TEST_CASE("rank code that spins on several words lets others run, and is reported when none of them changes") {
  auto const silent = exploreRanks({1, {}}, SpinsForEither<Fault::none>{}, {.schedules = 50});
  CHECK_MESSAGE(silent.ok(), sim::toText(silent));
  auto const found = exploreRanks({1, {}}, SpinsForEither<Fault::planted>{}, {.schedules = 2});
  REQUIRE(found.findings.size() >= 1);
  CHECK(sim::toText(found).find("a change of") != std::string::npos);
}

TEST_CASE("ranks that spin on atomics of their process let each other run") {
  auto const silent = exploreRanks({3, {}}, TakesTurns<Fault::none>{}, {.schedules = 200, .findRaces = false});
  CHECK_MESSAGE(silent.ok(), sim::toText(silent));
  auto const found = exploreRanks({3, {}}, TakesTurns<Fault::planted>{}, {.schedules = 2, .findRaces = false});
  REQUIRE(found.findings.size() >= 1);
  CHECK_MESSAGE(sim::toText(found).find("a change of a word of its own memory, where it finds 0") != std::string::npos,
                sim::toText(found));
}
