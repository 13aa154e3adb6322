// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The verifier of programs against the checker: right programs with random faults, and each must find them right or
// wrong alike. The checker runs them on the simulated machine under several schedules, three calls in a row, with
// callers that write their input and output before each call and look at every element behind it.
//
// MSCCLPP_DSL_PROGRAMS is the number of programs; 10000 for the long run.
#include <doctest/doctest.h>

#include <cstdlib>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "check/explore_program.hpp"
#include "dsl/channel_programs.hpp"
#include "dsl/programs.hpp"

using namespace check_test;
using namespace dsl_test;

namespace {

int programCount() {
  auto const* const text = std::getenv("MSCCLPP_DSL_PROGRAMS");
  return text == nullptr ? 30 : std::max(1, std::atoi(text));
}

// ---- programs -------------------------------------------------------------------------------------------------------

std::vector<dsl::Program> rightPrograms() {
  std::vector<dsl::Program> all{
      dsl::build<SimpleAllGather>(),      dsl::build<RingAllGather<3>>(),     dsl::build<AllPairsAllGather<2>>(),
      dsl::build<AllPairsAllGather<3>>(), dsl::build<OneShotPackets<2>>(),    dsl::build<TwoShotPackets<2>>(),
      dsl::build<TwoShotPackets<3>>(),    dsl::build<PullPushAllReduce<2>>(), dsl::build<PullPushAllReduce<3>>(),
      dsl::build<ScratchAllToAll<2>>(),   dsl::build<PipelinedSendReceive>()};
  for (auto& program : all) {
    // Executed as full ones, whatever they say; the corpus has those that rely on them too much.
    for (auto& rank : program.ranks) {
      for (auto& block : rank.blocks) {
        for (auto& step : block.steps) {
          step.relaxed = false;
          if (step.kind == dsl::StepKind::loopBegin) step.unitBytes = chunkWords * sizeof(Word) / 2;
        }
      }
    }
  }
  return all;
}

// Plants a fault, which may turn out to be none.
void breakSomething(dsl::Program& program, std::mt19937_64& engine) {
  auto const below = [&](std::size_t limit) { return static_cast<std::size_t>(engine() % limit); };
  auto& rank = program.ranks[below(program.ranks.size())];
  auto& block = rank.blocks[below(rank.blocks.size())];
  if (block.steps.empty()) return;
  auto const at = below(block.steps.size());
  auto& step = block.steps[at];
  auto const isLoop = [](dsl::Step const& s) {
    return s.kind == dsl::StepKind::loopBegin || s.kind == dsl::StepKind::loopEnd;
  };
  if (isLoop(step)) return;
  auto const change = [&](std::vector<dsl::Chunks>& operands) {
    auto& chunks = operands[below(operands.size())];
    int const room = program.chunks(chunks.rank, chunks.buffer) - chunks.count + 1;
    chunks.index = static_cast<int>(below(static_cast<std::size_t>(room)));
  };
  switch (below(6)) {
    case 0:
      block.steps.erase(block.steps.begin() + static_cast<std::ptrdiff_t>(at));
      break;
    case 1:
      if (at + 1 < block.steps.size() && !isLoop(block.steps[at + 1])) std::swap(step, block.steps[at + 1]);
      break;
    case 2:
      if (step.kind == dsl::StepKind::move) change(step.sources);
      break;
    case 3:
      if (step.kind == dsl::StepKind::move) change(step.targets);
      break;
    case 4:  // the first sync behind it
      for (auto s = at; s < block.steps.size(); ++s) {
        if (block.steps[s].kind != dsl::StepKind::sync) continue;
        block.steps.erase(block.steps.begin() + static_cast<std::ptrdiff_t>(s));
        break;
      }
      break;
    default:
      if (step.kind == dsl::StepKind::move) {
        auto const copy = step;
        block.steps.insert(block.steps.begin() + static_cast<std::ptrdiff_t>(below(block.steps.size())), copy);
      }
  }
}

// Verdicts that follow from rules rather than from a run: the checker need not see them.
bool isRule(std::string const& diagnostic) {
  for (auto const* part :
       {"over channel", "barrier 0 is", "comes to it", "semaphore 0 ", "writes packets", "where nothing",
        "as plain data", "could pass for", "carry the call's flag", "twice", "ends inside"}) {
    if (diagnostic.find(part) != std::string::npos && diagnostic.find("dead-lock") == std::string::npos) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("verifier and checker agree on random programs") {
  auto const bases = rightPrograms();
  std::mt19937_64 engine(20260101);
  std::map<std::string, int> tally;
  int const wanted = programCount();
  for (int made = 0; made < wanted;) {
    auto program = bases[static_cast<std::size_t>(engine() % bases.size())];
    for (auto faults = engine() % 3; faults != 0; --faults) breakSomething(program, engine);
    auto const verdict = dsl::verify(program);
    auto const diagnostic = verdict.diagnostic.str();
    if (!verdict.right() && isRule(diagnostic)) {
      ++tally["refused by a rule"];
      continue;
    }
    if (verdict.right() && verdict.reliesOnPackets) {
      ++tally["ordered by packets"];
      continue;
    }
    ++made;
    auto const seed = static_cast<std::uint64_t>(made) * 1000;
    if (verdict.right()) {
      auto const result = exploreProgram(program, made % 2 == 0 ? sim::Strategy::random : sim::Strategy::pct, 2, seed);
      ++tally["right"];
      CHECK_MESSAGE(result.ok(), program.name.str(), ", program ", made, " was found right: ", sim::toText(result));
    } else {
      bool found = false;
      for (auto const strategy : {sim::Strategy::random, sim::Strategy::pct}) {
        if (!found) found = !exploreProgram(program, strategy, 30, seed).ok();
      }
      ++tally[diagnostic.find("dead-lock") != std::string::npos        ? "dead-lock"
              : diagnostic.find("nothing orders") != std::string::npos ? "race"
                                                                       : "wrong result"];
      CHECK_MESSAGE(found, program.name.str(), ", program ", made,
                    " was found wrong, and the checker sees nothing: ", diagnostic);
    }
  }
  for (auto const& [what, count] : tally) MESSAGE(what, ": ", count);
}

// Packets that proxies move are left out: their arrival is no order to the checker.
TEST_CASE("programs of port and switch channels are silent") {
  for (auto const& program :
       {dsl::build<PortAllGather<2>>(), dsl::build<PortAllGather<3>>(), dsl::build<PortPipeline>(),
        dsl::build<SwitchAllReduce<2>>(), dsl::build<SwitchAllReduce<3>>(), dsl::build<SwitchScratch>()}) {
    REQUIRE(dsl::verify(program).right());
    for (auto const strategy : {sim::Strategy::random, sim::Strategy::pct}) {
      auto const result = exploreProgram(program, strategy, 4, 1);
      CHECK_MESSAGE(result.ok(), program.name.str(), ": ", sim::toText(result));
    }
  }
}

namespace {

// Without a meeting of the caller's between the calls, each of which doubles what the last one left.
struct CallsInARow {
  MSCCLPP_DEVICE void operator()(Word* data, std::size_t count, layout::PlanHandle const& plan) const {
    layout::WindowHandle const none{};
    for (int call = 0; call < calls; ++call) {
      dsl::kernel<OneShotPackets<2>, Sum>(data, data, count, plan, none, none);
    }
  }
};

}  // namespace

TEST_CASE("calls of a program follow each other in one kernel") {
  auto const body = [](Rank& rank) {
    constexpr std::size_t count = 4 * threads;
    auto const context = dsl::makeContext<OneShotPackets<2>>(rank.communicator, count * sizeof(Word));
    GpuBuffer<Word> const data(rank.device, count);
    copyToDevice(data, std::span<Word const>(std::vector<Word>(count, 1)));
    launch(rank.stream, {.blocks = 1, .threads = threads}, CallsInARow{}, data.data(), count, context.deviceHandle());
    rank.synchronize();
    for (Word const word : copyToHost(data)) {
      if (word != 1u << calls) throw std::runtime_error("a call has the result " + std::to_string(word));
    }
  };
  auto const result = exploreRanks({.ranks = 2}, body,
                                   {.strategy = sim::Strategy::random, .schedules = 40, .seed = 1, .preemption = 0.1});
  CHECK_MESSAGE(result.ok(), sim::toText(result));
}
