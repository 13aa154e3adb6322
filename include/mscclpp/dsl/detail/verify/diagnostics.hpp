// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the verifier says of two steps that nothing orders, and of a wrong result.
#pragma once

#include "mscclpp/dsl/core/describe.hpp"
#include "mscclpp/dsl/detail/verify/memory_state.hpp"

namespace mscclpp::dsl::detail {

constexpr Text who(Program const& program, Stamp const& stamp) {
  if (stamp.byCaller()) return say("the caller of rank ", stamp.rank);
  return describe(program, stamp.rank, stamp.block, stamp.step);
}

// What would order them.
constexpr Text missing(Program const& program, Stamp const& earlier, Stamp const& later, bool relaxedOnly) {
  if (!earlier.byCaller()) {
    auto const& step = program.ranks[static_cast<std::size_t>(earlier.rank)]
                           .blocks[static_cast<std::size_t>(earlier.block)]
                           .steps[static_cast<std::size_t>(earlier.step)];
    if (step.link == ChannelKind::port && earlier.rank == later.rank) {
      return say("the port moves data later: flush its channel between them");
    }
  }
  if (relaxedOnly) {
    return say("the relaxed signal and wait between them hand over no data: signal and wait without relaxed");
  }
  if (earlier.byCaller()) {
    return say("rank ", earlier.rank, " must first tell that its call has begun: signal from it, wait at rank ",
               later.rank);
  }
  if (later.byCaller()) {
    return say("rank ", later.rank,
               " ends its call without having heard of it: wait there for a signal sent behind it");
  }
  std::string_view const between = earlier.call != later.call ? " (from one call to the next)" : "";
  if (earlier.rank == later.rank && earlier.block == later.block && earlier.actor == later.actor) {
    return say("a sync of the block between them is missing", between);
  }
  if (earlier.rank == later.rank) {
    return say("a barrier or semaphore between blocks ", earlier.block, " and ", later.block, " is missing", between);
  }
  return say("a signal of rank ", earlier.rank, " behind the one that rank ", later.rank,
             " waits for before the other, with syncs of the blocks around, is missing", between);
}

// `here`: the one operand, of `later`, in which they meet.
constexpr Text raceDiagnostic(Program const& program, Stamp const& earlier, bool earlierWrites, Stamp const& later,
                              bool laterWrites, Chunks const& here, bool relaxedOnly) {
  return say(who(program, later), laterWrites ? " writes " : " reads ", describe(here), ", which ",
             who(program, earlier), earlierWrites ? " writes" : " reads",
             ", and nothing orders the two: ", missing(program, earlier, later, relaxedOnly));
}

constexpr void addList(Text& text, std::vector<Contribution> const& holds) {
  if (holds.empty()) {
    text.add("nothing");
    return;
  }
  for (std::size_t i = 0; i < holds.size(); ++i) {
    if (i == 6 && holds.size() > 8) {
      text.add(" and ").add(holds.size() - i).add(" more");
      return;
    }
    text.add(i == 0 ? "input[" : i + 1 == holds.size() ? " and input[" : ", input[").add(holds[i].chunk);
    text.add("] of rank ").add(holds[i].rank);
  }
}

// `output` ends with `got` where `wanted` was demanded; both sorted.
constexpr Text wrongResult(Program const& program, Chunks const& output, std::vector<Contribution> const& got,
                           std::vector<Contribution> const& wanted) {
  (void)program;
  auto text = say(describe(output), " ends ");
  if (got.empty()) {
    text.add("as it began: nothing writes ");
    addList(text, wanted);
    return text.add(" there");
  }
  auto const timesIn = [](std::vector<Contribution> const& list, Contribution const& each) {
    int times = 0;
    for (auto const& other : list) times += other == each ? 1 : 0;
    return times;
  };
  for (auto const& each : got) {
    int const times = timesIn(got, each), demanded = timesIn(wanted, each);
    if (times <= demanded) continue;
    if (demanded == 0)
      return text.add("with input[")
          .add(each.chunk)
          .add("] of rank ")
          .add(each.rank)
          .add(", which does not belong there");
    return text.add("with input[")
        .add(each.chunk)
        .add("] of rank ")
        .add(each.rank)
        .add(" added ")
        .add(times)
        .add(" times");
  }
  text.add("without ");
  std::vector<Contribution> lacking;
  for (auto const& each : wanted) {
    if (timesIn(got, each) < timesIn(wanted, each)) lacking.push_back(each);
  }
  addList(text, lacking);
  return text;
}

}  // namespace mscclpp::dsl::detail
