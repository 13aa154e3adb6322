// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "dsl/plan_rank.hpp"

#include <algorithm>
#include <utility>

#include "dsl/plan_names.hpp"
#include "mscclpp/dsl/plan_json.hpp"

namespace mscclpp::dsl {
namespace {

// Numbers things in the order in which they are first asked for.
template <class T>
int numberIn(std::vector<T>& known, T const& thing) {
  auto const found = std::find(known.begin(), known.end(), thing);
  if (found != known.end()) return static_cast<int>(found - known.begin());
  known.push_back(thing);
  return static_cast<int>(known.size()) - 1;
}

bool usesChannels(Step const& step) {
  return step.kind == StepKind::move || step.kind == StepKind::signal || step.kind == StepKind::wait ||
         step.kind == StepKind::flush;
}

// What operations end with: how they combine, and whose part they are.
void addEnd(Json& op, Step const& step) {
  if (step.sources.size() > 1 && step.reduce != ReduceKind::asCalled) {
    op["reduce_op"] = wordFor(reduceWords, step.reduce);
  }
  if (step.parts != 1 || step.grouped) {
    op["tbg_info"] = {{"tb_id", step.part}, {"tbg_size", step.parts}};
  }
}

}  // namespace

int RankPlan::Used::numberOf(ChannelKind kind, int id) {
  (void)numberIn(kinds, kind);
  return numberIn(ids[static_cast<std::size_t>(kind)], id);
}

Json RankPlan::Used::list(char const* kind, char const* numbers) const {
  Json all = Json::array();
  for (auto const each : kinds) {
    all.push_back({{kind, wordFor(channelWords, each)}, {numbers, ids[static_cast<std::size_t>(each)]}});
  }
  return all;
}

void RankPlan::meetBuffers(Step const& step) {
  if (step.kind != StepKind::move || step.link == ChannelKind::switched) return;
  for (auto const* operands : {&step.sources, &step.targets}) {
    for (auto const& chunks : *operands) {
      if (chunks.rank != rank_) (void)remoteBuffer(chunks, step.link);
    }
  }
}

void RankPlan::meet(Step const& step) {
  if (step.kind == StepKind::move && step.link != ChannelKind::switched) {
    (void)list(step.sources, step.link);
    (void)list(step.targets, step.link);
  }
  if (usesChannels(step)) (void)channelIds(step.objects);
}

// A channel's number among those of its kind.
int RankPlan::place(int channel) const {
  auto const kind = mine_.channels[static_cast<std::size_t>(channel)].kind;
  return static_cast<int>(std::count_if(mine_.channels.begin(), mine_.channels.begin() + channel,
                                        [&](Channel const& other) { return other.kind == kind; }));
}

// The block's numbers of these channels.
Json RankPlan::channelIds(std::vector<int> const& channels) {
  Json ids = Json::array();
  for (int const channel : channels) {
    ids.push_back(channels_.numberOf(mine_.channels[static_cast<std::size_t>(channel)].kind, place(channel)));
  }
  return ids;
}

int RankPlan::remoteBuffer(Chunks const& chunks, ChannelKind link) {
  auto found = std::find_if(remotes_.begin(), remotes_.end(), [&](RemoteBuffer const& each) {
    return each.rank == chunks.rank && each.buffer == chunks.buffer;
  });
  if (found == remotes_.end()) found = remotes_.insert(found, {chunks.rank, chunks.buffer, {}});
  (void)numberIn(found->links, link);
  return static_cast<int>(found - remotes_.begin());
}

Json RankPlan::chunk(Chunks const& chunks, ChannelKind link) {
  if (chunks.rank == rank_) {
    return {{"type", wordFor(bufferWords, chunks.buffer)}, {"index", chunks.index}, {"size", chunks.count}};
  }
  return {{"buffer_id", buffers_.numberOf(link, remoteBuffer(chunks, link))},
          {"index", chunks.index},
          {"size", chunks.count}};
}

Json RankPlan::list(std::vector<Chunks> const& all, ChannelKind link) {
  Json array = Json::array();
  for (auto const& chunks : all) array.push_back(chunk(chunks, link));
  return array;
}

bool RankPlan::anyRemote(std::vector<Chunks> const& all) const {
  return std::any_of(all.begin(), all.end(), [&](Chunks const& chunks) { return chunks.rank != rank_; });
}

Json RankPlan::order(Step const& step) {
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

Json RankPlan::move(std::string_view name, Step const& step, std::vector<Chunks> const& sources,
                    std::vector<Chunks> const& targets, bool namesChannels) {
  Json op{{"name", name}, {"src_buff", list(sources, step.link)}, {"dst_buff", list(targets, step.link)}};
  if (namesChannels) op["channel_ids"] = channelIds(step.objects);
  if (anyRemote(sources) || anyRemote(targets)) op["channel_type"] = wordFor(channelWords, step.link);
  addEnd(op, step);
  return op;
}

Json RankPlan::switchMove(std::string_view name, Step const& step) {
  auto const ids = channelIds(step.objects);
  auto const& channel = mine_.channels[static_cast<std::size_t>(step.objects[0])];
  auto const group = [&](Chunks const& chunks) {
    return Json{{"switch_channel_id", ids[0]}, {"index", chunks.index}, {"size", chunks.count}};
  };
  auto const own = [](Chunks const& chunks) {
    return Json{{"rank", chunks.rank},
                {"type", wordFor(bufferWords, chunks.buffer)},
                {"index", chunks.index},
                {"size", chunks.count}};
  };
  Json op{{"name", name}};
  if (name == "glre") {
    op["buffer_type"] = wordFor(bufferWords, channel.buffer);
    op["buffer_offset"] = step.sources[0].index;
    op["size"] = step.sources[0].count;
    op["dst_chunk"] = own(step.targets[0]);
    op["channel_ids"] = ids;
  } else {
    op["src_buff"] = Json::array({name == "glres" ? group(step.sources[0]) : own(step.sources[0])});
    op["dst_buff"] = Json::array({group(step.targets[0])});
  }
  op["channel_type"] = "switch";
  addEnd(op, step);
  return op;
}

Json RankPlan::loop(Step const& begin, Json operations) {
  return {{"name", "pipeline"},
          {"iter_context", {{"unit_size", begin.unitBytes}, {"num_chunks", begin.loopChunks}}},
          {"ops", std::move(operations)}};
}

Json RankPlan::channels() const {
  Json all = Json::array();
  std::vector<ChannelKind> kinds;
  for (auto const& channel : mine_.channels) {
    if (channel.kind != ChannelKind::switched) (void)numberIn(kinds, channel.kind);
  }
  for (auto const kind : kinds) {
    Json peers = Json::array();
    for (auto const& channel : mine_.channels) {
      if (channel.kind == kind) peers.push_back(channel.peer);
    }
    all.push_back({{"channel_type", wordFor(channelWords, kind)}, {"connected_to", std::move(peers)}});
  }
  for (auto const& channel : mine_.channels) {
    if (channel.kind != ChannelKind::switched) continue;
    Json const group{{"size", channel.ranks.size()}, {"ranks", channel.ranks}};
    all.push_back({{"channel_type", "switch"},
                   {"buffer_type", wordFor(bufferWords, channel.buffer)},
                   {"rank_groups", Json::array({group})}});
  }
  return all;
}

Json RankPlan::block(int id, Json operations) const {
  return {{"id", id},
          {"ops", std::move(operations)},
          {"channels", channels_.list("channel_type", "channel_ids")},
          {"remote_buffer_refs", buffers_.list("access_channel_type", "remote_buffer_ids")}};
}

Json RankPlan::whole(Json blocks) const {
  Json semaphores = Json::array(), buffers = Json::array();
  for (int const value : mine_.semaphores) semaphores.push_back({{"init_value", value}});
  for (auto const& remote : remotes_) {
    Json links = Json::array();
    for (auto const link : remote.links) links.push_back(wordFor(channelWords, link));
    buffers.push_back({{"rank", remote.rank},
                       {"type", wordFor(bufferWords, remote.buffer)},
                       {"access_channel_types", std::move(links)}});
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

std::string_view reductionName(Step const& step, int rank) {
  auto const& [first, plain] = std::pair(step.sources[0], step.targets[0]);
  if (first.packets || first.rank != rank || plain.packets || plain.rank != rank) return {};
  // Kinds of the others: 0 plain here, 1 plain of others, 2 packets.
  bool sources[3]{}, packetsHere = false, packetsSent = false, sent = false;
  for (std::size_t i = 1; i < step.sources.size(); ++i) {
    auto const& source = step.sources[i];
    if (source.packets && source.rank != rank) return {};
    sources[source.packets ? 2 : source.rank != rank ? 1 : 0] = true;
  }
  for (std::size_t i = 1; i < step.targets.size(); ++i) {
    auto const& target = step.targets[i];
    if (target.rank == rank && (!target.packets || packetsHere)) return {};
    (target.rank == rank ? packetsHere : target.packets ? packetsSent : sent) = true;
  }
  if (sources[0] + sources[1] + sources[2] != 1) return {};
  if (sources[2]) {
    if (sent) return {};
    return packetsHere ? (packetsSent ? "recspkt" : "recpkt") : (packetsSent ? "respkt" : "repkt");
  }
  if (packetsHere || packetsSent) return {};
  return sources[1] ? (sent ? "rres" : "rre") : (sent ? "res" : "re");
}

std::string_view switchName(Step const& step, std::size_t ranks) {
  bool const ofAll = step.sources.size() == ranks && ranks > 1, toAll = step.targets.size() == ranks && ranks > 1;
  if (ofAll && toAll) return "glres";
  if (toAll && step.sources.size() == 1) return step.targets[0].packets ? "gstorepkt" : "gstore";
  return ofAll && step.targets.size() == 1 ? "glre" : "";
}

Json planOf(Program const& program, Json ranks) {
  return {{"name", program.name.str()},
          {"collective", collectiveName(program)},
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

}  // namespace mscclpp::dsl
