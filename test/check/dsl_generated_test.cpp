// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Programs that nobody wrote: what the verifier calls right must run right. Each is put together by chance of all that
// a program can hold, over all kinds of channels, and made wrong by chance as well. Its results are whatever one quiet
// run leaves; under other schedules nothing may be different, wait for ever, or, but for what packets alone order,
// race.
//
// MSCCLPP_DSL_PROGRAMS is the number of programs that are judged, MSCCLPP_DSL_SEED chooses others.
#include <doctest/doctest.h>

#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "check/explore_program.hpp"
#include "dsl/channel_programs.hpp"
#include "mscclpp/dsl/build.hpp"

using namespace check_test;

namespace {

using dsl::Builder;

std::uint64_t settingOr(char const* name, std::uint64_t usual) {
  auto const* const text = std::getenv(name);
  return text == nullptr ? usual : std::strtoull(text, nullptr, 10);
}

class Generator {
 public:
  explicit Generator(std::uint64_t seed) : engine_(seed) {}

  dsl::Program program() {
    blocks_ = 1 + below(2);
    packets_ = chance(50);
    dsl::Spec spec{.name = "generated",
                   .collective = dsl::custom(chance(80) ? 2 : 3, 2, 2),
                   .protocol = packets_ ? dsl::Protocol::lowLatency : dsl::Protocol::simple,
                   .autoSync = chance(85),
                   .fuse = chance(50),
                   .doubleScratch = chance(30),
                   .threads = threads};
    Builder p(spec);
    ranks_ = p.ranks();
    scratch_.clear();
    channels_.clear();
    for (int rank = 0; rank < ranks_; ++rank) scratch_.push_back(p.rank(rank).scratch(6));
    for (int block = 0; block < blocks_; ++block) {
      for (int rank = 0; rank < ranks_; ++rank) {
        for (int to = 1; to < ranks_; ++to) {
          channels_.push_back({block, rank, to, p.memoryChannel((rank + to) % ranks_, rank)});
        }
      }
    }
    ports_.clear();
    for (int rank = 0; rank < ranks_; ++rank) {
      for (int to = 1; to < ranks_; ++to) ports_.push_back({0, rank, to, p.portChannel((rank + to) % ranks_, rank)});
    }
    std::vector<int> all;
    for (int rank = 0; rank < ranks_; ++rank) all.push_back(rank);
    auto const nvlsBuffer = chance(50) ? dsl::BufferKind::output : dsl::BufferKind::scratch;
    auto const nvls = p.switchChannel(all, nvlsBuffer);
    std::vector<std::array<dsl::SemaphoreRef, 2>> semaphores;
    for (int rank = 0; rank < ranks_; ++rank) semaphores.push_back({p.semaphore(rank), p.semaphore(rank)});

    auto const body = [&] {
      // So that there is something wherever a step may read.
      for (int rank = 0; rank < ranks_; ++rank) {
        p.rank(rank).copy(scratch(rank)(0, 2), p.rank(rank).input()(0, 2));
        p.rank(rank).copy(p.rank(rank).output()(0, 2), p.rank(rank).input()(0, 2));
      }
      if (chance(90)) meet(p, chance(30));
      for (int phase = 1 + below(4); phase > 0; --phase) {
        addPhase(p, nvls, semaphores);
        if (chance(60)) meet(p, chance(20));
      }
      if (chance(85)) meet(p, chance(15));
    };
    if (chance(15)) {
      p.loop(chunkWords * sizeof(Word) / 2, 1, body);
    } else {
      body();
    }
    auto made = dsl::finish(p);
    for (auto faults = chance(60) ? 0 : 1 + below(2); faults > 0; --faults) breakSomething(made);
    return made;
  }

 private:
  template <class Ref>
  struct Channel {
    int block, rank, to;
    Ref ref;
  };

  int below(int limit) { return static_cast<int>(engine_() % static_cast<unsigned>(limit)); }
  bool chance(int percent) { return below(100) < percent; }
  dsl::BufferRef const& scratch(int rank) const { return scratch_[static_cast<std::size_t>(rank)]; }

  dsl::At at(int block) {
    return {.tb = block, .dataSync = chance(80) ? dsl::DataSync::automatic : chance(50) ? dsl::none : dsl::both};
  }
  // Any block, or all as a group.
  dsl::At somewhere() {
    if (blocks_ > 1 && chance(25)) return {.group = {0, blocks_}};
    return at(below(blocks_));
  }

  // All ranks, by the memory channels of a block or by ports, and the other blocks of each rank.
  void meet(Builder& p, bool relaxed) {
    if (chance(20)) {
      for (auto const& port : ports_) port.ref.signal({.relaxed = relaxed, .dataSync = dsl::before});
      for (auto const& port : ports_) port.ref.wait({.dataSync = dsl::after});
    } else {
      int const block = below(blocks_);
      for (auto const& channel : channels_) {
        if (channel.block != block) continue;
        channel.ref.signal({.tb = block, .relaxed = relaxed});
      }
      for (auto const& channel : channels_) {
        if (channel.block == block) channel.ref.wait({.tb = block, .relaxed = relaxed});
      }
    }
    if (blocks_ > 1 && chance(75)) barrier(p);
  }
  void barrier(Builder& p) {
    for (int rank = 0; rank < ranks_; ++rank) p.rank(rank).barrier({0, 1});
  }

  void addPhase(Builder& p, dsl::SwitchChannelRef const& nvls,
                std::vector<std::array<dsl::SemaphoreRef, 2>> const& semaphores) {
    int kind = below(packets_ ? 13 : 8);
    int const from = below(3), chunk = below(2), other = below(2);
    if (kind > 10) kind = 9;
    // Of packets, in two places of two chunks: how many are sent, and how many taken.
    int const sent = 1 + (chance(40) ? 1 : 0), taken = chance(80) ? sent : 1;
    bool const target = chance(50);
    auto const where = somewhere();
    auto const pick = [&](int rank, int which, int index) {
      return which == 0   ? p.rank(rank).input()[index]
             : which == 1 ? scratch(rank)[index]
                          : p.rank(rank).output()[index];
    };
    auto const into = [&](int rank) { return target ? p.rank(rank).output()[chunk] : scratch(rank)[chunk]; };
    bool const asksSignal = chance(80), flushes = chance(70), waits = chance(95);
    for (int rank = 0; rank < ranks_; ++rank) {
      auto const self = p.rank(rank);
      int const next = (rank + 1) % ranks_;
      auto const to = memoryTo(rank, where.group.count > 0 ? 0 : where.tb);
      auto const port = portTo(rank);
      switch (kind) {
        case 0:
          self.copy(into(rank), pick(rank, from, other), where);
          break;
        case 1:
          to.put(into(next), pick(rank, from, other), where);
          break;
        case 2:
          to.get(into(rank), pick(next, from, other), where);
          break;
        case 3:
          to.reduce(into(rank), pick(rank, from, other), {pick(next, from, other)}, where);
          break;
        case 4: {
          port.put(into(next), pick(rank, from, other), where);
          if (where.group.count > 0 && chance(80)) p.rank(rank).barrier({0, 1});
          if (asksSignal) port.signal({.tb = 0});
          if (flushes) port.flush({.tb = 0});
          break;
        }
        case 5:
          if (blocks_ < 2) break;
          semaphores[static_cast<std::size_t>(rank)][static_cast<std::size_t>(other)].release({.tb = other});
          semaphores[static_cast<std::size_t>(rank)][static_cast<std::size_t>(other)].acquire({.tb = 1 - other});
          break;
        case 6:
          if (rank == 0 || chance(30)) nvls.atRank(rank).reduce(into(rank), chunk, 1, where);
          break;
        case 7:
          if (rank == chunk) nvls.atRank(rank).broadcast(chunk, pick(rank, from, other), where);
          break;
        case 8:
          to.putPackets(first(next, sent), several(p, rank, from, sent), where);
          take(p, rank, first(rank, taken), from, target, where);
          break;
        case 9:
          self.copyPackets(second(rank, sent), several(p, rank, from, sent), where);
          port.putPackets(first(next, sent), second(rank, sent), somewhereLike(where));
          take(p, rank, first(rank, taken), from, target, where);
          if (flushes) port.flush({.tb = 0});
          break;
        default:  // on to the next but one, or back
          to.putPackets(first(next, sent), several(p, rank, from, sent), where);
          if (target) {
            port.putPackets(second(next, sent), first(rank, sent), somewhereLike(where));
          } else {
            to.readPutPackets(second(next, sent), first(rank, sent), somewhereLike(where));
          }
          take(p, rank, second(rank, taken), from, chance(50), where);
          if (flushes) port.flush({.tb = 0});
          break;
      }
    }
    if (kind == 4 && asksSignal && waits) {
      for (int rank = 0; rank < ranks_; ++rank) portFrom(rank).wait({.tb = 0});
    }
  }
  dsl::Chunks first(int rank, int count) const { return scratch(rank)(2, count); }
  dsl::Chunks second(int rank, int count) const { return scratch(rank)(4, count); }
  dsl::Chunks several(Builder& p, int rank, int from, int count) const {
    return from == 0   ? p.rank(rank).input()(0, count)
           : from == 1 ? scratch(rank)(0, count)
                       : p.rank(rank).output()(0, count);
  }
  void take(Builder& p, int rank, dsl::Chunks const& packets, int from, bool unpacks, dsl::At const& where) {
    auto const self = p.rank(rank);
    auto const to = self.output()(0, packets.count);
    if (unpacks) return self.unpackPackets(to, packets, somewhereLike(where));
    self.reducePackets(to, several(p, rank, from, packets.count), {packets}, somewhereLike(where));
  }
  // Mostly by the same blocks.
  dsl::At somewhereLike(dsl::At const& where) { return chance(85) ? where : somewhere(); }

  dsl::MemoryChannelRef memoryTo(int rank, int block) const {
    for (auto const& channel : channels_) {
      if (channel.block == block && channel.rank == rank && channel.to == 1) return channel.ref;
    }
    return channels_[0].ref;
  }
  dsl::PortChannelRef portTo(int rank) const { return port(rank, 1); }
  dsl::PortChannelRef portFrom(int rank) const { return port(rank, ranks_ - 1); }
  dsl::PortChannelRef port(int rank, int to) const {
    for (auto const& each : ports_) {
      if (each.rank == rank && each.to == to) return each.ref;
    }
    return ports_[0].ref;
  }

  // A step is lost, moved, done elsewhere, or told to others.
  void breakSomething(dsl::Program& program) {
    auto& rank = program.ranks[static_cast<std::size_t>(below(program.size()))];
    if (rank.blocks.empty()) return;
    auto& block = rank.blocks[static_cast<std::size_t>(below(static_cast<int>(rank.blocks.size())))];
    auto& steps = block.steps;
    if (steps.size() < 2) return;
    auto const isLoop = [](dsl::Step const& step) {
      return step.kind == dsl::StepKind::loopBegin || step.kind == dsl::StepKind::loopEnd;
    };
    auto const i = static_cast<std::size_t>(below(static_cast<int>(steps.size()) - 1));
    auto& step = steps[i];
    if (isLoop(step)) return;
    switch (below(7)) {
      case 0:
        steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(i));
        break;
      case 1:
        if (!isLoop(steps[i + 1])) std::swap(step, steps[i + 1]);
        break;
      case 2:
        step.relaxed = !step.relaxed && step.kind != dsl::StepKind::move;
        break;
      case 3:  // every step of this kind on all ranks, as an author errs
        for (auto& each : program.ranks) {
          for (auto& its : each.blocks)
            std::erase_if(its.steps, [kind = step.kind, &isLoop](dsl::Step const& one) {
              return one.kind == kind && !isLoop(one) && kind != dsl::StepKind::move;
            });
        }
        break;
      case 4:
        if (step.kind == dsl::StepKind::move) {
          auto& operands = step.sources.size() + step.targets.size() > 2 || chance(50) ? step.sources : step.targets;
          auto& chunk = operands[static_cast<std::size_t>(below(static_cast<int>(operands.size())))];
          chunk.index = chunk.index % 2 == 0 ? chunk.index + 1 : chunk.index - 1;
        }
        break;
      case 5:
        if (rank.blocks.size() > 1 && step.parts == 1) {
          auto& elsewhere = &block == &rank.blocks[0] ? rank.blocks[1].steps : rank.blocks[0].steps;
          auto const there = static_cast<std::ptrdiff_t>(i < elsewhere.size() ? i : elsewhere.size());
          auto moved = step;
          steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(i));
          elsewhere.insert(elsewhere.begin() + there, std::move(moved));
        }
        break;
      default:
        std::erase_if(steps, [](dsl::Step const& one) { return one.kind == dsl::StepKind::flush; });
    }
  }

  std::mt19937_64 engine_;
  int blocks_ = 1, ranks_ = 2;
  bool packets_ = false;
  std::vector<dsl::BufferRef> scratch_;
  std::vector<Channel<dsl::MemoryChannelRef>> channels_;
  std::vector<Channel<dsl::PortChannelRef>> ports_;
};

// Whether something of it is ordered by packets alone, of which the checker's memory has no order.
bool packetsOrder(dsl::Program const& program, dsl::Verdict const& verdict) {
  if (verdict.reliesOnPackets) return true;
  for (auto const& rank : program.ranks) {
    for (auto const& block : rank.blocks) {
      for (auto const& step : block.steps) {
        if (step.kind == dsl::StepKind::move && step.link == dsl::ChannelKind::port && step.sources[0].packets)
          return true;
      }
    }
  }
  return false;
}

dsl::Program packedForPorts(dsl_test::PackedTold told) {
  Builder p({.name = "packed_for_ports",
             .collective = dsl::sendReceive(2),
             .protocol = dsl::Protocol::lowLatency,
             .threads = threads});
  dsl_test::packForPorts(p, told);
  return dsl::finish(p);
}

}  // namespace

TEST_CASE("a late port sends the next call's packets") {
  for (bool const flushes : {true, false}) {
    auto program = packedForPorts(flushes ? dsl_test::PackedTold::flushed : dsl_test::PackedTold::nothing);
    CHECK(dsl::prove(program).right() == flushes);
    auto outputs = demandedOutputs(program);
    auto const result = exploreProgram(
        program, {.strategy = sim::Strategy::pct, .schedules = 300, .seed = 1, .preemption = 0.1, .findRaces = false},
        outputs, true);
    CHECK_MESSAGE(result.ok() == flushes, sim::toText(result));
    MESSAGE(result.schedules, " schedules");
  }
}

TEST_CASE("what is called right of programs by chance runs right") {
  auto const wanted = settingOr("MSCCLPP_DSL_PROGRAMS", 150);
  auto const seed = settingOr("MSCCLPP_DSL_SEED", 20260901);
  std::map<std::string, std::uint64_t> tally;
  for (std::uint64_t made = 0; made < wanted; ++made) {
    Generator generator(seed + made);
    auto program = generator.program();
    auto const verdict = dsl::prove(program);
    if (!verdict.right()) {
      ++tally["refused"];
      continue;
    }
    ++tally[packetsOrder(program, verdict) ? "right, some of it by packets" : "right"];
    if (verdict.promoted != 0) ++tally["with relaxed steps made ordered ones"];
    Outputs outputs(static_cast<std::size_t>(program.size()));
    sim::ExploreOptions options{.strategy = sim::Strategy::random,
                                .schedules = 1,
                                .seed = seed + made,
                                .preemption = 0,
                                .findRaces = !packetsOrder(program, verdict)};
    auto result = exploreProgram(program, options, outputs, false);
    options.schedules = 2;
    options.preemption = 0.1;
    if (result.ok()) result = exploreProgram(program, options, outputs, true);
    options.strategy = sim::Strategy::pct;
    options.schedules = options.findRaces ? 1 : 5;
    if (result.ok()) result = exploreProgram(program, options, outputs, true);
    CHECK_MESSAGE(result.ok(), "program of seed ", seed + made, " was found right: ", sim::toText(result));
    if (!result.ok()) break;
  }
  for (auto const& [what, count] : tally) MESSAGE(what, ": ", count);
  CHECK(10 * tally["refused"] < 9 * wanted);
}
