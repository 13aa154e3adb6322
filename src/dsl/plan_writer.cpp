// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "base/format.hpp"
#include "dsl/plan_names.hpp"
#include "dsl/plan_rank.hpp"
#include "mscclpp/dsl/core/describe.hpp"
#include "mscclpp/dsl/plan_json.hpp"

namespace mscclpp::dsl {
namespace {

class RankWriter {
 public:
  RankWriter(Program const& program, int rank) : program_(program), rank_(rank), plan_(program, rank) {}

  Json write() {
    Json blocks = Json::array();
    auto const count = program_.ranks[static_cast<std::size_t>(rank_)].blocks.size();
    for (int b = 0; b < static_cast<int>(count); ++b) blocks.push_back(block(b));
    return plan_.whole(std::move(blocks));
  }

 private:
  Json block(int b) {
    block_ = b;
    plan_.beginBlock();
    Json ops = Json::array(), inLoop;
    Step const* loop = nullptr;
    auto const& steps = program_.ranks[static_cast<std::size_t>(rank_)].blocks[static_cast<std::size_t>(b)].steps;
    for (int s = 0; s < static_cast<int>(steps.size()); ++s) {
      auto const& step = steps[static_cast<std::size_t>(s)];
      auto& into = loop ? inLoop : ops;
      if (step.kind == StepKind::loopBegin) {
        loop = &step;
        inLoop = Json::array();
      } else if (step.kind == StepKind::loopEnd) {
        ops.push_back(RankPlan::loop(*loop, std::move(inLoop)));
        loop = nullptr;
      } else if (step.kind == StepKind::move) {
        move(into, s, step);
      } else {
        into.push_back(plan_.order(step));
      }
    }
    return plan_.block(b, std::move(ops));
  }

  [[noreturn]] void refuse(int s, char const* why) const {
    fail(ErrorCode::unsupported, "{}: the plan format has no operation that {}",
         describe(program_, rank_, block_, s).str(), why);
  }

  void push(Json& into, Step const& step, std::string_view name, std::vector<Chunks> const& targets) {
    into.push_back(plan_.move(name, step, step.sources, targets, step.link == ChannelKind::port));
  }

  void move(Json& into, int s, Step const& step) {
    if (step.link == ChannelKind::switched) {
      auto const& channels = program_.ranks[static_cast<std::size_t>(rank_)].channels;
      auto const name = switchName(step, channels[static_cast<std::size_t>(step.objects[0])].ranks.size());
      if (name.empty()) refuse(s, "lets a switch do this");
      into.push_back(plan_.switchMove(name, step));
      return;
    }
    if (step.sources.size() != 1) return reduce(into, s, step);
    std::vector<Chunks> plain, packets, remotePlain, remotePackets;
    for (auto const& target : step.targets) {
      auto& list =
          target.rank == rank_ ? (target.packets ? packets : plain) : (target.packets ? remotePackets : remotePlain);
      list.push_back(target);
    }
    auto const& source = step.sources[0];
    if (source.rank != rank_) {
      if (plain.size() != step.targets.size()) refuse(s, "reads from another rank and writes elsewhere than here");
      for (auto const& target : plain) push(into, step, "get", {target});
      return;
    }
    for (auto const& target : plain) push(into, step, source.packets ? "upkt" : "copy", {target});
    for (auto const& target : packets) {
      if (source.packets) refuse(s, "copies packets to packets of the same rank");
      push(into, step, "cpkt", {target});
    }
    if (!remotePlain.empty()) {
      if (source.packets) refuse(s, "unpacks into another rank's memory");
      push(into, step, "put", remotePlain);
    }
    if (!remotePackets.empty()) {
      push(into, step, source.packets && step.link == ChannelKind::memory ? "rppkt" : "ppkt", remotePackets);
    }
  }

  // The plain result comes first, then packets here, then what is sent.
  void reduce(Json& into, int s, Step step) {
    auto const place = [&](Chunks const& target) { return target.rank != rank_ ? 2 : target.packets ? 1 : 0; };
    std::stable_sort(step.targets.begin(), step.targets.end(),
                     [&](Chunks const& a, Chunks const& b) { return place(a) < place(b); });
    auto const name = reductionName(step, rank_);
    if (name.empty()) refuse(s, "reduces these sources into these targets");
    push(into, step, name, step.targets);
  }

  Program const& program_;
  int rank_;
  RankPlan plan_;
  int block_ = 0;
};

Json planOf(Program const& program) {
  Json ranks = Json::array();
  for (int rank = 0; rank < program.size(); ++rank) ranks.push_back(RankWriter(program, rank).write());
  return planOf(program, std::move(ranks));
}

}  // namespace

std::string collectiveName(Program const& program) {
  return std::string(wordFor(collectiveWords, program.collective.kind));
}

std::optional<CollectiveKind> collectiveKindOf(std::string_view name) {
  auto const found = std::ranges::find(collectiveWords, name, [](auto const& each) { return each.second; });
  if (found == collectiveWords.end()) return {};
  return found->first;
}

std::string toJson(Program const& program) { return planOf(program).dump() + "\n"; }

std::string mscclppRefusal(Program const& program) {
  // Of its executor's tables.
  constexpr std::size_t operations = 64, channelsOfKind = 16, channelsOfOperation = 8, semaphores = 16, barriers = 16;
  Json plan;
  try {
    plan = planOf(program);
  } catch (Error const& error) {
    return error.what();
  }
  for (auto const& gpu : plan["gpus"]) {
    auto const rank = gpu["id"].get<int>();
    if (gpu["semaphores"].size() > semaphores) {
      return fmt::format("rank {} has {} semaphores, of {} at most", rank, gpu["semaphores"].size(), semaphores);
    }
    for (auto const& block : gpu["threadblocks"]) {
      auto const whose = fmt::format("rank {} block {}", rank, block["id"].get<int>());
      std::size_t count = 0;
      std::string why;
      auto const look = [&](auto const& self, Json const& ops) -> void {
        count += ops.size();
        for (auto const& op : ops) {
          if (op.contains("channel_ids") && op["channel_ids"].size() > channelsOfOperation) {
            why = fmt::format("{} names {} channels in one operation, of {} at most", whose, op["channel_ids"].size(),
                              channelsOfOperation);
          }
          if (op.contains("barrier_id") && op["barrier_id"].get<std::size_t>() >= barriers) {
            why = fmt::format("{} uses barrier {}, of {} that there are", whose, op["barrier_id"].get<int>(), barriers);
          }
          if (op.contains("ops")) self(self, op["ops"]);
        }
      };
      look(look, block["ops"]);
      if (count > operations) why = fmt::format("{} has {} operations, of {} at most", whose, count, operations);
      for (auto const& channels : block["channels"]) {
        if (channels["channel_ids"].size() <= channelsOfKind) continue;
        why = fmt::format("{} uses {} {} channels, of {} at most", whose, channels["channel_ids"].size(),
                          channels["channel_type"].get<std::string>(), channelsOfKind);
      }
      if (!why.empty()) return why;
    }
  }
  return {};
}

}  // namespace mscclpp::dsl
