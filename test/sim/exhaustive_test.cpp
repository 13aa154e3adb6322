// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Exhaustive search, compared with plain enumeration of all interleavings.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <random>
#include <set>
#include <vector>

#include "mscclpp/sim/explore.hpp"
#include "sim/sim_fixture.hpp"

using namespace simtest;
using sim::Strategy;

namespace {

sim::ExploreOptions everything(int schedules = 20'000) {
  return {.strategy = Strategy::exhaustive,
          .schedules = schedules,
          .findRaces = false,
          .weakMemory = false,
          .findLostSignals = false};
}

using Word = std::uint32_t;
using Outcome = std::vector<Word>;

struct Searched {
  sim::ExploreResult result;
  std::set<Outcome> outcomes;
};

// Thread t of `threads` runs body(t, memory, its registers); an outcome is all registers and the memory.
struct Program {
  unsigned threads = 2;
  unsigned words = 2;
  unsigned registers = 1;  // of each thread
  std::function<void(unsigned, Word*, Word*)> body;
};

Searched search(Program const& program, sim::ExploreOptions const& options = everything()) {
  Searched searched;
  searched.result = sim::explore(
      {.ranks = 1},
      [&](sim::RankContext& rank) {
        // Each word has 8 bytes of its own.
        DeviceArray<Word> memory(rank.device(), 2 * program.words);
        std::vector<Word> registers(program.threads * program.registers, 0);
        Stream stream(rank.device());
        auto* m = memory.data();
        auto* r = registers.data();
        stream.launch({.blocks = program.threads, .threads = 1}, [&program, m, r] {
          auto const t = arch::blockIndex();
          program.body(t, m, r + t * program.registers);
        });
        stream.synchronize();
        Outcome outcome = registers;
        for (unsigned w = 0; w < program.words; ++w) outcome.push_back(memory[2 * w]);
        searched.outcomes.insert(outcome);
      },
      options);
  return searched;
}

Word read(Word* memory, unsigned word) { return load<Order::relaxed, Scope::device>(memory + 2 * word); }
void write(Word* memory, unsigned word, Word value) { store<Order::relaxed, Scope::device>(memory + 2 * word, value); }
Word add(Word* memory, unsigned word, Word value) {
  return fetchAdd<Order::relaxed, Scope::device>(memory + 2 * word, value);
}

}  // namespace

TEST_CASE("threads that touch different words have one schedule") {
  auto const searched = search({.threads = 2, .words = 4, .body = [](unsigned t, Word* m, Word*) {
                                  write(m, 2 * t, 1);
                                  write(m, 2 * t + 1, 1);
                                }});
  CHECK(searched.result.complete);
  CHECK(searched.result.ok());
  CHECK(searched.result.schedules == 1);
}

TEST_CASE("loads of one word have one schedule, stores to it all orders") {
  auto const loads = search({.threads = 3, .words = 1, .body = [](unsigned, Word* m, Word* r) { *r = read(m, 0); }});
  CHECK(loads.result.schedules == 1);
  auto const stores =
      search({.threads = 3, .words = 1, .body = [](unsigned t, Word* m, Word*) { write(m, 0, t + 1); }});
  CHECK(stores.result.schedules == 6);
  CHECK(stores.result.complete);
  CHECK(stores.outcomes.size() == 3);
}

TEST_CASE("store buffering without weak memory has its three outcomes and four orders") {
  auto const searched = search({.threads = 2, .words = 2, .body = [](unsigned t, Word* m, Word* r) {
                                  write(m, t, 1);
                                  *r = read(m, 1 - t);
                                }});
  CHECK(searched.result.complete);
  CHECK(searched.result.schedules == 3);  // the fourth order would need each load before the other's store
  CHECK(searched.outcomes == std::set<Outcome>{{0, 1, 1, 1}, {1, 0, 1, 1}, {1, 1, 1, 1}});
}

TEST_CASE("an indexer whose threads seldom collide needs few schedules") {
  // Each thread puts numbers into a table of 32 by their hash; with up to 6 threads of 2 numbers none collide.
  auto const searched = search({.threads = 6, .words = 32, .body = [](unsigned t, Word* m, Word*) {
                                  for (unsigned i = 0; i < 2; ++i) {
                                    Word const number = i * 6 + t + 1;
                                    unsigned slot = number * 7 % 32;
                                    for (Word found = 0;; slot = (slot + 1) % 32) {
                                      found = 0;
                                      if (compareExchange<Order::relaxed, Scope::device>(m + 2 * slot, found, number))
                                        break;
                                    }
                                  }
                                }});
  CHECK(searched.result.complete);
  CHECK(searched.result.schedules == 1);
}

TEST_CASE("the last zero of an array: as many schedules as are known to be needed") {
  // One thread searches from the end for a zero, others each copy their left neighbour plus one.
  auto const schedules = [](unsigned writers) {
    auto const searched =
        search({.threads = writers + 1, .words = writers + 1, .body = [=](unsigned t, Word* m, Word* r) {
                  if (t == 0) {
                    unsigned i = writers;
                    while (read(m, i) != 0) --i;
                    *r = i;
                  } else {
                    write(m, t, read(m, t - 1) + 1);
                  }
                }});
    CHECK(searched.result.complete);
    return searched.result.schedules;
  };
  // (n + 3) 2^(n - 2), as the literature has it.
  CHECK(schedules(1) == 2);
  CHECK(schedules(2) == 5);
  CHECK(schedules(5) == 64);
}

TEST_CASE("a lock by Peterson holds, and without its turn it dead-locks or lets both in") {
  auto const peterson = [](bool withTurn) {
    return search({.threads = 2, .words = 4, .body = [=](unsigned t, Word* m, Word* r) {
                     write(m, t, 1);
                     if (withTurn) write(m, 2, 1 - t);
                     poll(nullptr, {layout::WaitKind::none, -1, t, 0}, [&](std::uint64_t& seen) {
                       seen = read(m, 1 - t);
                       return seen == 0 || (withTurn && read(m, 2) == t);
                     });
                     auto const inside = read(m, 3);
                     write(m, 3, inside + 1);
                     *r = inside;
                     write(m, t, 0);
                   }});
  };
  auto const good = peterson(true);
  CHECK(good.result.ok());
  CHECK(good.result.complete);
  for (auto const& outcome : good.outcomes) CHECK(outcome[5] == 2);
  auto const bad = peterson(false);
  REQUIRE(bad.result.findings.size() == 1);
  CHECK(bad.result.findings[0].kind == sim::FindingKind::deadLock);
}

TEST_CASE("signals, barriers, warps and a second kernel") {
  auto options = everything();
  std::set<Word> sums;
  auto const result = sim::explore(
      {.ranks = 2},
      [&](sim::RankContext& rank) {
        DeviceArray<Word> memory(rank.device(), 8);
        Stream stream(rank.device());
        auto* m = memory.data();
        stream.launch({.blocks = 2, .threads = 2}, [m] {
          if (arch::blockIndex() == 0) {
            add(m, 0, 1);
            arch::syncBlock();
            if (arch::threadIndex() == 0) write(m, 1, read(m, 0));
          } else {
            waitUntil(m + 2, 2);
            arch::syncWarp(3);
            add(m, 2, 1);
          }
        });
        stream.launch({.blocks = 1, .threads = 1}, [m] { write(m, 3, read(m, 2)); });
        stream.synchronize();
        sums.insert(memory[6]);
      },
      options);
  CHECK(result.ok());
  CHECK(result.complete);
  CHECK(sums == std::set<Word>{2});
  CHECK(result.schedules <= 256);  // 16 of each rank: two orders of its four pairs of additions and looks
}

TEST_CASE("kernels that depend on each other through the host are not taken for concurrent") {
  auto const result = sim::explore(
      {.ranks = 1},
      [](sim::RankContext& rank) {
        DeviceArray<Word> memory(rank.device(), 2);
        Stream first(rank.device()), second(rank.device());
        auto* m = memory.data();
        for (auto const* stream : {&first, &second, &first}) {
          stream->launch({.blocks = 1, .threads = 1}, [m] { write(m, 0, read(m, 0) + 1); });
          stream->synchronize();
        }
        if (memory[0] != 3) throw std::runtime_error("lost");
      },
      everything());
  CHECK(result.ok());
  CHECK(result.complete);
  CHECK(result.schedules == 1);
}

TEST_CASE("both halves of a torn packet are tried, and a bound of preemptions bounds") {
  std::set<std::pair<Word, Word>> seen;
  auto const run = [&](int bound) {
    seen.clear();
    auto options = everything();
    options.preemptionBound = bound;
    auto const result = sim::explore(
        {.ranks = 1},
        [&](sim::RankContext& rank) {
          DeviceArray<Words4> packet(rank.device(), 1);
          Words4 got{};
          Stream stream(rank.device());
          auto* p = packet.data();
          stream.launch({.blocks = 2, .threads = 1}, [p, &got] {
            if (arch::blockIndex() == 0) {
              arch::storeWords4(p, Words4{{1, 1, 1, 1}});
            } else {
              got = arch::loadWords4(p);
            }
          });
          stream.synchronize();
          seen.emplace(got.w[0], got.w[2]);
        },
        options);
    CHECK(result.ok());
    CHECK(result.complete);
    return result.schedules;
  };
  auto const all = run(-1);
  CHECK(seen == std::set<std::pair<Word, Word>>{{0, 0}, {0, 1}, {1, 0}, {1, 1}});
  CHECK(run(0) < all);
  CHECK(seen == std::set<std::pair<Word, Word>>{{0, 0}, {1, 1}});
  run(1);
  CHECK(seen == std::set<std::pair<Word, Word>>{{0, 0}, {0, 1}, {1, 0}, {1, 1}});
}

TEST_CASE("a bound on preemptions finds what needs no more than that") {
  // The increment is lost with one preemption, and only then.
  Program const program{
      .threads = 2, .words = 1, .body = [](unsigned, Word* m, Word*) { write(m, 0, read(m, 0) + 1); }};
  auto options = everything();
  options.preemptionBound = 0;
  auto const none = search(program, options);
  CHECK(none.result.complete);
  CHECK(none.outcomes == std::set<Outcome>{{0, 0, 2}});
  options.preemptionBound = 1;
  auto const one = search(program, options);
  CHECK(one.result.complete);
  CHECK(one.outcomes == std::set<Outcome>{{0, 0, 1}, {0, 0, 2}});
}

TEST_CASE("weak memory shows what relaxed accesses may see, and fences what they may not") {
  auto options = everything();
  options.weakMemory = true;
  auto const storeBuffering = [&](bool fenced) {
    return search({.threads = 2,
                   .words = 2,
                   .body =
                       [=](unsigned t, Word* m, Word* r) {
                         write(m, t, 1);
                         if (fenced) fence<Order::sequential, Scope::device>();
                         *r = read(m, 1 - t);
                       }},
                  options);
  };
  auto const relaxed = storeBuffering(false);
  CHECK(relaxed.result.complete);
  CHECK(relaxed.outcomes == std::set<Outcome>{{0, 0, 1, 1}, {0, 1, 1, 1}, {1, 0, 1, 1}, {1, 1, 1, 1}});
  auto const fenced = storeBuffering(true);
  CHECK(fenced.result.complete);
  CHECK(fenced.outcomes == std::set<Outcome>{{0, 1, 1, 1}, {1, 0, 1, 1}, {1, 1, 1, 1}});

  // A wait whose looks may see old values still ends, and what follows a relaxed one may be old.
  auto const messagePassing = [&](bool ordered) {
    return search({.threads = 2,
                   .words = 2,
                   .body =
                       [=](unsigned t, Word* m, Word* r) {
                         if (t == 0) {
                           write(m, 0, 1);
                           if (ordered) fence<Order::acquireRelease, Scope::device>();
                           write(m, 1, 1);
                         } else {
                           poll(nullptr, {layout::WaitKind::none, -1, 0, 1}, [&](std::uint64_t& seen) {
                             seen = read(m, 1);
                             return seen == 1;
                           });
                           if (ordered) fence<Order::acquireRelease, Scope::device>();
                           *r = read(m, 0);
                         }
                       }},
                  options);
  };
  auto const unordered = messagePassing(false);
  CHECK(unordered.result.complete);
  CHECK(unordered.result.ok());
  CHECK(unordered.outcomes == std::set<Outcome>{{0, 0, 1, 1}, {0, 1, 1, 1}});
  auto const ordered = messagePassing(true);
  CHECK(ordered.result.complete);
  CHECK(ordered.result.ok());
  CHECK(ordered.outcomes == std::set<Outcome>{{0, 1, 1, 1}});
}

TEST_CASE("a search that is cut short is not complete") {
  auto const searched =
      search({.threads = 3, .words = 1, .body = [](unsigned t, Word* m, Word*) { write(m, 0, t + 1); }}, everything(3));
  CHECK_FALSE(searched.result.complete);
  CHECK(searched.result.schedules == 3);
}

TEST_CASE("runs that are cut off as seen before count neither as schedules nor for findings") {
  auto const program = [](sim::RankContext& rank) {
    if (rank.rank() == 0) throw std::runtime_error("always");
    DeviceArray<Word> memory(rank.device(), 1);
    Stream stream(rank.device());
    auto* m = memory.data();
    stream.launch({.blocks = 3, .threads = 1}, [m] {
      if (arch::blockIndex() == 0) {
        waitUntil(m, 2);  // a look between the additions is cut off
      } else {
        fetchAdd<Order::release, Scope::device>(m, 1u);
      }
    });
    stream.synchronize();
  };
  auto const result = sim::explore({.ranks = 2}, program, everything());
  CHECK(result.complete);
  REQUIRE(result.findings.size() == 1);
  CHECK(result.findings[0].seen == result.schedules);
}

TEST_CASE("a finding of the search replays") {
  auto const program = [](sim::RankContext& rank) {
    DeviceArray<Word> memory(rank.device(), 2);
    Stream stream(rank.device());
    auto* m = memory.data();
    stream.launch({.blocks = 3, .threads = 1}, [m] { write(m, 0, read(m, 0) + 1); });
    stream.synchronize();
    if (memory[0] == 1) throw std::runtime_error("lost two");
  };
  auto options = everything();
  auto const result = sim::explore({.ranks = 1}, program, options);
  CHECK(result.complete);
  REQUIRE(result.findings.size() == 1);
  CHECK(result.findings[0].seen > 1);
  options.replay = result.findings[0].schedule;
  auto const again = sim::explore({.ranks = 1}, program, options);
  REQUIRE(again.findings.size() == 1);
  CHECK(again.findings[0].summary == "rank 0: lost two");
}

// ---- against plain enumeration
// ---------------------------------------------------------------------------------------

namespace {

// What a random program's thread does: each step reads, writes or adds; a few wait for a value.
struct Step {
  enum class Kind : std::uint8_t { load, store, add, copyIfSet, wait } kind;
  unsigned word;
  Word value;
};
using Steps = std::vector<std::vector<Step>>;

constexpr unsigned steppedWords = 3;

// All outcomes by trying every interleaving; a thread that waits for ever leaves its registers as they are.
struct Enumeration {
  Steps const& steps;
  std::set<Outcome> ended, stuck;
  std::set<std::vector<Word>> seen;

  void from(std::vector<Word> state, std::vector<std::size_t> at) {
    auto key = state;
    key.insert(key.end(), at.begin(), at.end());
    if (!seen.insert(key).second) return;
    bool goesOn = false, waits = false;
    for (std::size_t t = 0; t < steps.size(); ++t) {
      if (at[t] == steps[t].size()) continue;
      auto next = state;
      auto const& step = steps[t][at[t]];
      auto& memory = next[steps.size() + step.word];
      auto& mine = next[t];
      switch (step.kind) {
        case Step::Kind::load:
          mine = mine * 8 + memory;
          break;
        case Step::Kind::store:
          memory = step.value;
          break;
        case Step::Kind::add:
          mine = mine * 8 + memory;
          memory += step.value;
          break;
        case Step::Kind::copyIfSet:
          if (mine % 8 != 0) memory = mine % 8;
          break;
        case Step::Kind::wait:
          if (memory >= step.value) break;
          waits = true;
          continue;
      }
      goesOn = true;
      auto further = at;
      ++further[t];
      from(std::move(next), std::move(further));
    }
    if (!goesOn) (waits ? stuck : ended).insert(state);
  }
};

Enumeration allOutcomes(Steps const& steps) {
  Enumeration enumeration{steps, {}, {}, {}};
  enumeration.from(std::vector<Word>(steps.size() + steppedWords, 0), std::vector<std::size_t>(steps.size(), 0));
  return enumeration;
}

void runSteps(std::vector<Step> const& steps, Word* m, Word& mine) {
  for (auto const& step : steps) {
    switch (step.kind) {
      case Step::Kind::load:
        mine = mine * 8 + read(m, step.word);
        break;
      case Step::Kind::store:
        write(m, step.word, step.value);
        break;
      case Step::Kind::add:
        mine = mine * 8 + add(m, step.word, step.value);
        break;
      case Step::Kind::copyIfSet:
        if (mine % 8 != 0) write(m, step.word, mine % 8);
        break;
      case Step::Kind::wait:
        waitUntil(m + 2 * step.word, step.value);
        break;
    }
  }
}

}  // namespace

TEST_CASE("no outcome of a random program is missed, and none is made up") {
  std::mt19937 random(12345);
  auto const below = [&random](unsigned limit) { return static_cast<unsigned>(random() % limit); };
  std::uint64_t schedules = 0;
  for (int round = 0; round < 400; ++round) {
    CAPTURE(round);
    Steps steps(2 + below(3));
    for (auto& thread : steps) {
      thread.resize(1 + below(steps.size() == 4 ? 3 : 4));
      for (auto& step : thread) {
        auto const kind = below(10);
        step.kind = kind < 3   ? Step::Kind::load
                    : kind < 6 ? Step::Kind::store
                    : kind < 8 ? Step::Kind::add
                    : kind < 9 ? Step::Kind::copyIfSet
                               : Step::Kind::wait;
        step.word = below(steppedWords);
        step.value = 1 + below(2);
      }
    }
    auto const expected = allOutcomes(steps);
    for (int const bound : {-1, 2}) {
      CAPTURE(bound);
      std::set<Outcome> ended, stuck;
      auto options = everything(200'000);
      options.preemptionBound = bound;
      options.shrink = false;
      auto const result = sim::explore(
          {.ranks = 1},
          [&](sim::RankContext& rank) {
            DeviceArray<Word> memory(rank.device(), 2 * steppedWords);
            Outcome outcome(steps.size(), 0);
            auto* m = memory.data();
            bool hasEnded = false;
            // Also when the run is ended because its threads wait for ever, or because it repeats another.
            struct AtEnd {
              std::function<void()> act;
              ~AtEnd() { act(); }
            };
            AtEnd const note{[&] {
              for (unsigned w = 0; w < steppedWords; ++w) outcome.push_back(m[2 * w]);
              (hasEnded ? ended : stuck).insert(outcome);
            }};
            Stream stream(rank.device());
            stream.launch({.blocks = static_cast<unsigned>(steps.size()), .threads = 1}, [&steps, &outcome, m] {
              auto const t = arch::blockIndex();
              runSteps(steps[t], m, outcome[t]);
            });
            stream.synchronize();
            hasEnded = true;
          },
          options);
      schedules += result.schedules;
      REQUIRE(result.complete);
      for (auto const& outcome : ended) CHECK(expected.ended.contains(outcome));
      if (bound >= 0) continue;
      CHECK(ended.size() == expected.ended.size());
      for (auto const& outcome : expected.stuck) CHECK(stuck.contains(outcome));
      bool const deadLocks =
          std::ranges::any_of(result.findings, [](auto const& f) { return f.kind == sim::FindingKind::deadLock; });
      CHECK(deadLocks == !expected.stuck.empty());
    }
  }
  CHECK(schedules > 10'000);
}
