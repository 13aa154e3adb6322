// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The plan that MSCCL++'s own DSL prints for a program. It says what the steps say where the DSL itself errs: where a
// switch stores what it combines at another place, and where instances store their packets of a sum.
#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/format.hpp"
#include "dsl/mscclpp_passes.hpp"
#include "dsl/plan_rank.hpp"
#include "mscclpp/dsl/core/describe.hpp"
#include "mscclpp/dsl/plan_json.hpp"

namespace mscclpp::dsl {
namespace {

using Op = MscclppOp;
using Ops = MscclppOps;

unsigned syncsOf(DataSync sync) {
  switch (sync) {
    case DataSync::none:
      return 0;
    case DataSync::before:
      return syncAhead;
    case DataSync::after:
      return syncBehind;
    default:  // what is not given is `both` there
      return syncAhead | syncBehind;
  }
}

// ---- the author's steps as operations -------------------------------------------------------------------------------

// Of a move with one target, or one that reduces.
std::string_view nameOfMove(Step const& step, RankProgram const& mine, int rank) {
  if (step.link == ChannelKind::switched) {
    return switchName(step, mine.channels[static_cast<std::size_t>(step.objects[0])].ranks.size());
  }
  if (step.sources.size() > 1) return reductionName(step, rank);
  auto const &from = step.sources[0], &to = step.targets[0];
  if (from.rank != rank) return from.packets || to.packets || to.rank != rank ? "" : "get";
  if (to.rank == rank) return from.packets ? (to.packets ? "" : "upkt") : to.packets ? "cpkt" : "copy";
  if (!to.packets) return from.packets ? "" : "put";
  bool const awaits = from.packets && (step.link == ChannelKind::memory || step.spelling == Spelling::awaiting);
  return awaits ? "rppkt" : "ppkt";
}

void addMove(Ops& ops, Step const& written, Program const& program, int rank, int block, int number) {
  bool const reduces = written.sources.size() > 1;
  bool const whole = reduces || written.link == ChannelKind::switched;
  unsigned const syncs = written.dataSync == DataSync::automatic ? 0 : syncsOf(written.dataSync);
  if (syncs & syncAhead) ops.push_back(syncOp());
  for (std::size_t t = 0; t < (whole ? 1 : written.targets.size()); ++t) {
    auto step = written;
    if (!whole) step.targets = {written.targets[t]};
    if (!reduces || step.reduce == ReduceKind::asCalled) step.reduce = reduces ? ReduceKind::sum : ReduceKind::asCalled;
    auto const name = nameOfMove(step, program.ranks[static_cast<std::size_t>(rank)], rank);
    if (name.empty()) {
      fail(ErrorCode::unsupported, "{}: the plan format has no operation for it",
           describe(program, rank, block, number).str());
    }
    ops.push_back({name, std::move(step)});
  }
  if (syncs & syncBehind) ops.push_back(syncOp());
}

Ops operationsOf(Program const& program, int rank, int block) {
  Ops ops;
  std::optional<Op> loop;
  auto const& steps = program.ranks[static_cast<std::size_t>(rank)].blocks[static_cast<std::size_t>(block)].steps;
  for (int s = 0; s < static_cast<int>(steps.size()); ++s) {
    auto const& step = steps[static_cast<std::size_t>(s)];
    auto& into = loop ? loop->inner : ops;
    if (step.kind == StepKind::loopBegin) {
      loop = Op{{}, step};
    } else if (step.kind == StepKind::loopEnd) {
      ops.push_back(*std::exchange(loop, std::nullopt));
    } else if (step.kind == StepKind::move) {
      addMove(into, step, program, rank, block, s);
    } else if (step.spelling == Spelling::joined && !into.empty() &&
               (into.back().name == "put" || into.back().name == "pws")) {
      into.back().name = step.kind == StepKind::signal ? "pws" : "pwsf";
    } else if (step.kind != StepKind::sync || step.written) {  // the others follow from their steps' dataSync
      into.push_back({{}, step});
      if (isOrder(into.back())) into.back().syncs = syncsOf(step.dataSync);
    }
  }
  return ops;
}

// ---- instances ------------------------------------------------------------------------------------------------------

// Instance i of n has channel, semaphore, barrier or block k as k * n + i, and as many neighbours of a chunk as the
// step has of it.
Step instanceOf(Step step, int instance, int instances) {
  for (auto& id : step.objects) id = id * instances + instance;
  for (auto* operands : {&step.sources, &step.targets}) {
    for (auto& chunks : *operands) chunks.index = chunks.index * instances + instance * chunks.count;
  }
  return step;
}

template <class T>
std::vector<T> repeated(std::vector<T> const& all, int times) {
  std::vector<T> made;
  for (auto const& each : all) made.insert(made.end(), static_cast<std::size_t>(times), each);
  return made;
}

// What the instances have together: all but steps.
Program frameOf(Program const& written, int instances) {
  auto frame = written;
  frame.collective.chunkFactor *= instances;
  frame.collective.customInput *= instances;
  frame.collective.customOutput *= instances;
  for (auto& rank : frame.ranks) {
    rank.blocks.clear();
    rank.scratchChunks *= instances;
    rank.channels = repeated(rank.channels, instances);
    rank.semaphores = repeated(rank.semaphores, instances);
  }
  return frame;
}

// ---- the whole ------------------------------------------------------------------------------------------------------

Json written(RankPlan& plan, Op const& op, int instance, int instances) {
  if (isLoop(op)) {
    Json inner = Json::array();
    for (auto const& each : op.inner) inner.push_back(written(plan, each, instance, instances));
    return RankPlan::loop(op.step, std::move(inner));
  }
  auto const step = instanceOf(op.step, instance, instances);
  if (step.kind == StepKind::move) {
    if (step.link == ChannelKind::switched) return plan.switchMove(op.name, step);
    return plan.move(op.name, step, step.sources, step.targets, step.link == ChannelKind::port || op.name == "get");
  }
  auto made = plan.order(step);
  if (made.contains("channel_ids")) {  // a set
    auto& ids = made["channel_ids"];
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  }
  return made;
}

Json rankOf(Program const& program, Program const& frame, Spec const& spec, int rank) {
  RankPlan plan(frame, rank);
  auto const& blocks = program.ranks[static_cast<std::size_t>(rank)].blocks;
  std::vector<Step const*> steps;
  for (auto const& block : blocks) {
    for (auto const& step : block.steps) steps.push_back(&step);
  }
  std::stable_sort(steps.begin(), steps.end(), [](auto* a, auto* b) { return a->sequence < b->sequence; });
  for (auto const* step : steps) plan.meetBuffers(*step);
  Json all = Json::array();
  for (int b = 0; b < static_cast<int>(blocks.size()); ++b) {
    auto ops = operationsOf(program, rank, b);
    if (spec.fuse) ops = fused(std::move(ops), rank);
    ops = withSyncsWritten(std::move(ops));
    if (spec.autoSync) ops = withDependencies(std::move(ops), rank);
    for (int i = 0; i < spec.instances; ++i) {
      plan.beginBlock();
      // As they were added, which is not always as they are written.
      for (auto const& step : blocks[static_cast<std::size_t>(b)].steps) plan.meet(instanceOf(step, i, spec.instances));
      Json made = Json::array();
      for (auto const& op : ops) made.push_back(written(plan, op, i, spec.instances));
      all.push_back(plan.block(b * spec.instances + i, std::move(made)));
    }
  }
  return plan.whole(std::move(all));
}

}  // namespace

std::string toMscclppJson(Program const& written, Spec const& spec) {
  if (spec.instances > 1 && spec.replication == Replication::grouped) {
    fail(ErrorCode::unsupported, "MSCCL++'s DSL makes no grouped instances of a program");
  }
  if (!written.mistake.empty()) fail(ErrorCode::invalidUsage, "{}", written.mistake.str());
  auto const frame = frameOf(written, spec.instances);
  Json ranks = Json::array();
  for (int rank = 0; rank < written.size(); ++rank) ranks.push_back(rankOf(written, frame, spec, rank));
  return planOf(frame, std::move(ranks)).dump() + "\n";
}

}  // namespace mscclpp::dsl
