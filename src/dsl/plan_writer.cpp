// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/format.hpp"
#include "dsl/plan_names.hpp"
#include "mscclpp/dsl/core/describe.hpp"
#include "mscclpp/dsl/plan_json.hpp"

namespace mscclpp::dsl {
namespace {

using Json = nlohmann::ordered_json;

struct RemoteBuffer {
  int rank;
  BufferKind buffer;
  ChannelKind link;
  friend bool operator==(RemoteBuffer const&, RemoteBuffer const&) = default;
};

// Numbers things in the order in which they are first asked for.
template <class T>
int numberOf(std::vector<T>& known, T const& thing) {
  auto const found = std::find(known.begin(), known.end(), thing);
  if (found != known.end()) return static_cast<int>(found - known.begin());
  known.push_back(thing);
  return static_cast<int>(known.size()) - 1;
}

class RankWriter {
 public:
  RankWriter(Program const& program, int rank)
      : program_(program), rank_(rank), mine_(program.ranks[static_cast<std::size_t>(rank)]) {}

  Json write() {
    Json blocks = Json::array();
    for (int b = 0; b < static_cast<int>(mine_.blocks.size()); ++b) blocks.push_back(block(b));
    Json semaphores = Json::array();
    for (int const value : mine_.semaphores) semaphores.push_back({{"init_value", value}});
    Json buffers = Json::array();
    for (auto const& remote : remotes_) {
      buffers.push_back({{"rank", remote.rank},
                         {"type", wordFor(bufferWords, remote.buffer)},
                         {"access_channel_types", Json::array({wordFor(channelWords, remote.link)})}});
    }
    return {{"id", rank_},
            {"input_chunks", program_.collective.inputChunks()},
            {"output_chunks", program_.collective.outputChunks()},
            {"scratch_chunks", mine_.scratchChunks},
            {"threadblocks", std::move(blocks)},
            {"channels", channels()},
            {"remote_buffers", std::move(buffers)},
            {"semaphores", std::move(semaphores)}};
  }

 private:
  // A channel's number among those of its kind.
  int place(int channel) const {
    auto const kind = mine_.channels[static_cast<std::size_t>(channel)].kind;
    return static_cast<int>(std::count_if(mine_.channels.begin(), mine_.channels.begin() + channel,
                                          [&](Channel const& other) { return other.kind == kind; }));
  }

  Json channels() const {
    Json list = Json::array();
    for (auto const kind : {ChannelKind::memory, ChannelKind::port}) {
      Json peers = Json::array();
      for (auto const& channel : mine_.channels) {
        if (channel.kind == kind) peers.push_back(channel.peer);
      }
      if (!peers.empty()) list.push_back({{"channel_type", wordFor(channelWords, kind)}, {"connected_to", peers}});
    }
    for (auto const& channel : mine_.channels) {
      if (channel.kind != ChannelKind::switched) continue;
      Json const group{{"size", channel.ranks.size()}, {"ranks", channel.ranks}};
      list.push_back({{"channel_type", "switch"},
                      {"buffer_type", wordFor(bufferWords, channel.buffer)},
                      {"rank_groups", Json::array({group})}});
    }
    return list;
  }

  Json block(int b) {
    block_ = b;
    for (auto& list : channels_) list.clear();
    for (auto& list : buffers_) list.clear();
    Json ops = Json::array();
    Json* into = &ops;
    Json loop;
    auto const& steps = mine_.blocks[static_cast<std::size_t>(b)].steps;
    for (int s = 0; s < static_cast<int>(steps.size()); ++s) {
      auto const& step = steps[static_cast<std::size_t>(s)];
      if (step.kind == StepKind::loopBegin) {
        loop = {{"name", "pipeline"},
                {"iter_context", {{"unit_size", step.unitBytes}, {"num_chunks", step.loopChunks}}},
                {"ops", Json::array()}};
        into = &loop["ops"];
      } else if (step.kind == StepKind::loopEnd) {
        into = &ops;
        ops.push_back(loop);
      } else if (step.kind == StepKind::move) {
        move(*into, s, step);
      } else {
        into->push_back(order(step));
      }
    }
    Json used = Json::array(), refs = Json::array();
    for (auto const& [kind, word] : channelWords) {
      auto const k = static_cast<std::size_t>(kind);
      if (!channels_[k].empty()) used.push_back({{"channel_type", word}, {"channel_ids", channels_[k]}});
      if (!buffers_[k].empty()) refs.push_back({{"access_channel_type", word}, {"remote_buffer_ids", buffers_[k]}});
    }
    return {{"id", b}, {"ops", std::move(ops)}, {"channels", std::move(used)}, {"remote_buffer_refs", std::move(refs)}};
  }

  Json order(Step const& step) {
    switch (step.kind) {
      case StepKind::sync:
        return {{"name", "nop"}};
      case StepKind::barrier:
        return {{"name", "barrier"}, {"barrier_id", step.objects[0]}, {"num_threadblocks", step.blocks}};
      case StepKind::acquire:
        return {{"name", "sem_acquire"}, {"semaphore_ids", step.objects}};
      case StepKind::release:
        return {{"name", "sem_release"}, {"semaphore_ids", step.objects}};
      default:
        break;
    }
    char const* const name = step.kind == StepKind::flush    ? "flush"
                             : step.kind == StepKind::signal ? (step.relaxed ? "rlxsignal" : "signal")
                                                             : (step.relaxed ? "rlxwait" : "wait");
    auto const kind = mine_.channels[static_cast<std::size_t>(step.objects[0])].kind;
    return {{"name", name}, {"channel_ids", channelIds(step.objects)}, {"channel_type", wordFor(channelWords, kind)}};
  }

  // This block's numbers of these channels.
  Json channelIds(std::vector<int> const& channels) {
    Json ids = Json::array();
    for (int const channel : channels) {
      auto const kind = mine_.channels[static_cast<std::size_t>(channel)].kind;
      ids.push_back(numberOf(channels_[static_cast<std::size_t>(kind)], place(channel)));
    }
    return ids;
  }

  Json chunk(Chunks const& chunks, ChannelKind link) {
    if (chunks.rank == rank_) {
      return {{"type", wordFor(bufferWords, chunks.buffer)}, {"index", chunks.index}, {"size", chunks.count}};
    }
    int const id =
        numberOf(buffers_[static_cast<std::size_t>(link)], numberOf(remotes_, {chunks.rank, chunks.buffer, link}));
    return {{"buffer_id", id}, {"index", chunks.index}, {"size", chunks.count}};
  }
  Json list(std::vector<Chunks> const& all, ChannelKind link) {
    Json array = Json::array();
    for (auto const& chunks : all) array.push_back(chunk(chunks, link));
    return array;
  }

  [[noreturn]] void refuse(int s, char const* why) const {
    fail(ErrorCode::unsupported, "{}: the plan format has no operation that {}",
         describe(program_, rank_, block_, s).str(), why);
  }

  void push(Json& into, Step const& step, char const* name, std::vector<Chunks> const& sources,
            std::vector<Chunks> const& targets) {
    Json op{{"name", name}, {"src_buff", list(sources, step.link)}, {"dst_buff", list(targets, step.link)}};
    if (step.link == ChannelKind::port) op["channel_ids"] = channelIds(step.objects);
    bool const remote = std::any_of(sources.begin(), sources.end(), [&](auto const& c) { return c.rank != rank_; }) ||
                        std::any_of(targets.begin(), targets.end(), [&](auto const& c) { return c.rank != rank_; });
    if (remote) op["channel_type"] = wordFor(channelWords, step.link);
    if (sources.size() > 1 && step.reduce != ReduceKind::asCalled) op["reduce_op"] = wordFor(reduceWords, step.reduce);
    if (step.parts != 1) op["tbg_info"] = {{"tb_id", step.part}, {"tbg_size", step.parts}};
    into.push_back(std::move(op));
  }

  void move(Json& into, int s, Step const& step) {
    if (step.link == ChannelKind::switched) return switchMove(into, s, step);
    std::vector<Chunks> plain, packets, remotePlain, remotePackets;
    for (auto const& target : step.targets) {
      auto& list =
          target.rank == rank_ ? (target.packets ? packets : plain) : (target.packets ? remotePackets : remotePlain);
      list.push_back(target);
    }
    if (step.sources.size() == 1) {
      auto const& source = step.sources[0];
      if (source.rank != rank_) {
        if (plain.size() != step.targets.size()) refuse(s, "reads from another rank and writes elsewhere than here");
        for (auto const& target : plain) push(into, step, "get", step.sources, {target});
        return;
      }
      for (auto const& target : plain) push(into, step, source.packets ? "upkt" : "copy", step.sources, {target});
      for (auto const& target : packets) {
        if (source.packets) refuse(s, "copies packets to packets of the same rank");
        push(into, step, "cpkt", step.sources, {target});
      }
      if (!remotePlain.empty()) {
        if (source.packets) refuse(s, "unpacks into another rank's memory");
        push(into, step, "put", step.sources, remotePlain);
      }
      if (!remotePackets.empty()) {
        push(into, step, source.packets && step.link == ChannelKind::memory ? "rppkt" : "ppkt", step.sources,
             remotePackets);
      }
      return;
    }
    reduce(into, s, step, plain, packets, remotePlain, remotePackets);
  }

  void reduce(Json& into, int s, Step const& step, std::vector<Chunks> const& plain, std::vector<Chunks> const& packets,
              std::vector<Chunks> const& remotePlain, std::vector<Chunks> const& remotePackets) {
    if (plain.size() != 1) refuse(s, "reduces without one plain result of its own rank");
    bool anyRemote = false, anyPackets = false, anyLocal = false;
    for (std::size_t i = 1; i < step.sources.size(); ++i) {
      auto const& source = step.sources[i];
      anyRemote |= source.rank != rank_;
      anyPackets |= source.packets;
      anyLocal |= source.rank == rank_ && !source.packets;
    }
    if (step.sources[0].packets || step.sources[0].rank != rank_ || anyRemote + anyPackets + anyLocal != 1) {
      refuse(s, "reduces sources of several kinds");
    }
    auto targets = plain;
    if (anyPackets) {
      if (!remotePlain.empty() || packets.size() > 1) refuse(s, "reduces packets and puts the result as plain data");
      targets.insert(targets.end(), packets.begin(), packets.end());
      targets.insert(targets.end(), remotePackets.begin(), remotePackets.end());
      char const* const names[2][2] = {{"repkt", "respkt"}, {"recpkt", "recspkt"}};
      return push(into, step, names[!packets.empty()][!remotePackets.empty()], step.sources, targets);
    }
    if (!packets.empty() || !remotePackets.empty()) refuse(s, "reduces plain data into packets");
    targets.insert(targets.end(), remotePlain.begin(), remotePlain.end());
    char const* const names[2][2] = {{"re", "res"}, {"rre", "rres"}};
    push(into, step, names[anyRemote][!remotePlain.empty()], step.sources, targets);
  }

  void switchMove(Json& into, int s, Step const& step) {
    auto const ids = channelIds(step.objects);
    auto const& channel = mine_.channels[static_cast<std::size_t>(step.objects[0])];
    auto const everywhere = [&](std::vector<Chunks> const& all) {
      return all.size() == channel.ranks.size() && all.size() > 1;
    };
    auto const group = [&](Chunks const& chunks) {
      return Json{{"switch_channel_id", ids[0]}, {"index", chunks.index}, {"size", chunks.count}};
    };
    Json op;
    if (everywhere(step.sources) && everywhere(step.targets)) {
      op = {{"name", "glres"},
            {"src_buff", Json::array({group(step.sources[0])})},
            {"dst_buff", Json::array({group(step.targets[0])})}};
    } else if (everywhere(step.targets)) {
      op = {{"name", step.targets[0].packets ? "gstorepkt" : "gstore"},
            {"src_buff", list(step.sources, step.link)},
            {"dst_buff", Json::array({group(step.targets[0])})}};
    } else if (everywhere(step.sources) && step.targets.size() == 1) {
      auto const& to = step.targets[0];
      op = {{"name", "glre"},
            {"buffer_type", wordFor(bufferWords, channel.buffer)},
            {"buffer_offset", step.sources[0].index},
            {"size", step.sources[0].count},
            {"dst_chunk",
             {{"rank", to.rank}, {"type", wordFor(bufferWords, to.buffer)}, {"index", to.index}, {"size", to.count}}},
            {"channel_ids", ids}};
    } else {
      refuse(s, "lets a switch do this");
    }
    op["channel_type"] = "switch";
    if (step.sources.size() > 1 && step.reduce != ReduceKind::asCalled)
      op["reduce_op"] = wordFor(reduceWords, step.reduce);
    if (step.parts != 1) op["tbg_info"] = {{"tb_id", step.part}, {"tbg_size", step.parts}};
    into.push_back(std::move(op));
  }

  Program const& program_;
  int rank_;
  RankProgram const& mine_;
  int block_ = 0;
  std::vector<RemoteBuffer> remotes_;
  std::vector<int> channels_[3], buffers_[3];  // of the block, by kind
};

Json planOf(Program const& program) {
  Json ranks = Json::array();
  for (int rank = 0; rank < program.size(); ++rank) ranks.push_back(RankWriter(program, rank).write());
  return {{"name", program.name.str()},
          {"collective", wordFor(collectiveWords, program.collective.kind)},
          {"protocol", wordFor(protocolWords, program.protocol)},
          {"inplace", program.inPlace},
          {"reuse_resources", program.reuseResources},
          {"gpus", std::move(ranks)},
          {"num_threads_per_block", program.threads},
          {"use_double_scratch_buffer", program.doubleScratch},
          {"buffer_alignment", program.alignment},
          {"min_message_size", program.minBytes},
          {"max_message_size", program.maxBytes}};
}

}  // namespace

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
