// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <limits>
#include <vector>

#include "base/json_place.hpp"
#include "dsl/plan_names.hpp"
#include "mscclpp/dsl/plan_json.hpp"

namespace mscclpp::dsl {
namespace {

int numberOf(JsonPlace const& place, int most = 1 << 24) { return place.number(0, most); }
std::uint64_t bytesOf(JsonPlace const& place) { return place.whole(0, std::numeric_limits<std::uint64_t>::max()); }

template <class T, std::size_t N>
T wordOf(JsonPlace const& place, Words<T, N> const& words) {
  auto const wanted = place.text();
  std::string allowed;
  for (auto const& [value, each] : words) {
    if (each == wanted) return value;
    allowed += (allowed.empty() ? "\"" : ", \"") + std::string(each) + "\"";
  }
  place.refuse(allowed);
}

// One of a list that has been read before.
template <class T>
T const& oneOf(JsonPlace const& place, std::vector<T> const& list, std::string_view what) {
  auto const i = static_cast<std::size_t>(numberOf(place));
  if (i >= list.size()) place.refuse(fmt::format("the number of one of {} {}", list.size(), what));
  return list[i];
}

struct RemoteBuffer {
  int rank;
  BufferKind buffer;
};

class RankReader {
 public:
  RankReader(JsonPlace const& gpu, int rank, int ranks) : rank_(rank), ranks_(ranks) {
    if (numberOf(gpu.at("id")) != rank) gpu.at("id").refuse(fmt::format("{}, its place in the list", rank));
    made_.scratchChunks = numberOf(gpu.at("scratch_chunks"));
    for (auto const& channel : gpu.items("channels")) readChannel(channel);
    for (auto const& remote : gpu.items("remote_buffers")) {
      remotes_.push_back({numberOf(remote.at("rank"), ranks - 1), wordOf(remote.at("type"), bufferWords)});
    }
    for (auto const& semaphore : gpu.items("semaphores")) {
      made_.semaphores.push_back(numberOf(semaphore.at("init_value")));
    }
    auto const blocks = gpu.items("threadblocks");
    made_.blocks.resize(blocks.size());
    std::vector<bool> there(blocks.size());
    for (auto const& block : blocks) {
      auto const place = block.at("id");
      auto const id = static_cast<std::size_t>(numberOf(place, static_cast<int>(blocks.size()) - 1));
      if (there[id]) place.refuse("the number of no other thread block of the rank");
      there[id] = true;
      readBlock(block, made_.blocks[id]);
    }
  }

  RankProgram const& made() const { return made_; }

 private:
  void readChannel(JsonPlace const& channel) {
    auto const kind = wordOf(channel.at("channel_type"), channelWords);
    auto& list = channels_[static_cast<std::size_t>(kind)];
    auto const add = [&](Channel made) {
      list.push_back(static_cast<int>(made_.channels.size()));
      made_.channels.push_back(std::move(made));
    };
    if (kind != ChannelKind::switched) {
      for (auto const& peer : channel.at("connected_to").items()) {
        if (numberOf(peer, ranks_ - 1) == rank_) peer.refuse("another rank than the channel's own");
        add({.kind = kind, .peer = numberOf(peer, ranks_ - 1)});
      }
      return;
    }
    auto const buffer = wordOf(channel.at("buffer_type"), bufferWords);
    for (auto const& group : channel.at("rank_groups").items()) {
      Channel made{.kind = kind, .buffer = buffer};
      for (auto const& rank : group.at("ranks").items()) made.ranks.push_back(numberOf(rank, ranks_ - 1));
      add(std::move(made));
    }
  }

  void readBlock(JsonPlace const& block, Block& into) {
    for (auto& list : used_) list.clear();
    for (auto& list : refs_) list.clear();
    for (auto const& each : block.items("channels")) {
      auto const kind = static_cast<std::size_t>(wordOf(each.at("channel_type"), channelWords));
      for (auto const& id : each.at("channel_ids").items())
        used_[kind].push_back(oneOf(id, channels_[kind], "channels"));
    }
    for (auto const& each : block.items("remote_buffer_refs")) {
      auto const kind = static_cast<std::size_t>(wordOf(each.at("access_channel_type"), channelWords));
      for (auto const& id : each.at("remote_buffer_ids").items()) {
        refs_[kind].push_back(oneOf(id, remotes_, "remote buffers"));
      }
    }
    steps_ = &into.steps;
    number_ = 0;
    for (auto const& op : block.at("ops").items()) readOp(op, false);
  }

  void push(Step step) {
    step.number = number_;
    steps_->push_back(std::move(step));
  }

  void readOp(JsonPlace const& op, bool inLoop) {
    auto const name = op.at("name").text();
    if (name == "pipeline") {
      if (inLoop) op.at("name").refuse("an operation that is no pipeline: they do not nest");
      auto const context = op.at("iter_context");
      push({.kind = StepKind::loopBegin,
            .unitBytes = bytesOf(context.at("unit_size")),
            .loopChunks = numberOf(context.at("num_chunks"))});
      ++number_;
      for (auto const& inner : op.at("ops").items()) readOp(inner, true);
      push({.kind = StepKind::loopEnd});
    } else if (name == "nop") {
      push({.kind = StepKind::sync});
    } else if (name == "barrier") {
      push({.kind = StepKind::barrier,
            .objects = {numberOf(op.at("barrier_id"), 4095)},
            .blocks = numberOf(op.at("num_threadblocks"))});
    } else if (name == "sem_acquire" || name == "sem_release") {
      Step step{.kind = name == "sem_acquire" ? StepKind::acquire : StepKind::release};
      for (auto const& id : op.at("semaphore_ids").items()) step.objects.push_back(numberOf(id));
      push(std::move(step));
    } else if (name == "signal" || name == "rlxsignal" || name == "wait" || name == "rlxwait" || name == "flush") {
      auto const kind = name == "flush"            ? StepKind::flush
                        : name.ends_with("signal") ? StepKind::signal
                                                   : StepKind::wait;
      push({.kind = kind, .link = linkOf(op), .relaxed = name.starts_with("rlx"), .objects = channelsOf(op)});
    } else {
      readMove(op, name);
    }
    ++number_;
  }

  static ChannelKind linkOf(JsonPlace const& op) {
    return op.has("channel_type") ? wordOf(op.at("channel_type"), channelWords) : ChannelKind::memory;
  }
  std::vector<int> channelsOf(JsonPlace const& op) const {
    std::vector<int> ids;
    auto const& list = used_[static_cast<std::size_t>(linkOf(op))];
    for (auto const& id : op.at("channel_ids").items()) ids.push_back(oneOf(id, list, "channels of the block"));
    return ids;
  }

  // A local chunk, one of a remote buffer, or the same chunk of all ranks of a switch channel.
  std::vector<Chunks> chunksOf(JsonPlace const& chunk, ChannelKind link, bool packets) const {
    Chunks made{rank_, BufferKind::input, numberOf(chunk.at("index")), numberOf(chunk.at("size")), packets};
    if (chunk.has("switch_channel_id")) {
      auto const& channel = switchOf(chunk.at("switch_channel_id"));
      std::vector<Chunks> all;
      for (int const rank : channel.ranks) {
        made.rank = rank;
        made.buffer = channel.buffer;
        all.push_back(made);
      }
      return all;
    }
    if (chunk.has("buffer_id")) {
      auto const& remote =
          oneOf(chunk.at("buffer_id"), refs_[static_cast<std::size_t>(link)], "remote buffers of the block");
      made.rank = remote.rank;
      made.buffer = remote.buffer;
    } else {
      made.buffer = wordOf(chunk.at("type"), bufferWords);
    }
    return {made};
  }
  Channel const& switchOf(JsonPlace const& id) const {
    int const channel =
        oneOf(id, used_[static_cast<std::size_t>(ChannelKind::switched)], "switch channels of the block");
    return made_.channels[static_cast<std::size_t>(channel)];
  }
  std::vector<Chunks> listOf(JsonPlace const& op, char const* name, ChannelKind link) const {
    std::vector<Chunks> all;
    for (auto const& chunk : op.at(name).items()) {
      auto const some = chunksOf(chunk, link, false);
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }

  void readMove(JsonPlace const& op, std::string const& name) {
    static constexpr std::string_view known[] = {"put",     "pws",  "pwsf",  "get",  "copy",  "cpkt",   "upkt",
                                                 "re",      "res",  "rre",   "rres", "repkt", "recpkt", "respkt",
                                                 "recspkt", "ppkt", "rppkt", "glre", "glres", "gstore", "gstorepkt"};
    if (std::find(std::begin(known), std::end(known), name) == std::end(known)) {
      op.at("name").refuse("an operation of the plan format");
    }
    Step step{.kind = StepKind::move, .link = linkOf(op)};
    if (op.has("tbg_info")) {
      step.grouped = true;
      step.part = numberOf(op.at("tbg_info").at("tb_id"));
      step.parts = numberOf(op.at("tbg_info").at("tbg_size"));
    }
    if (op.has("reduce_op")) step.reduce = wordOf(op.at("reduce_op"), reduceWords);
    if (step.link != ChannelKind::memory && op.has("channel_ids")) step.objects = channelsOf(op);
    if (name == "glre") {
      readSwitchReduce(op, std::move(step));
      return;
    }
    step.sources = listOf(op, "src_buff", step.link);
    step.targets = listOf(op, "dst_buff", step.link);
    if (step.link == ChannelKind::switched && step.objects.empty()) {
      for (char const* const side : {"src_buff", "dst_buff"}) {
        for (auto const& chunk : op.at(side).items()) {
          if (!chunk.has("switch_channel_id") || !step.objects.empty()) continue;
          step.objects.push_back(oneOf(chunk.at("switch_channel_id"),
                                       used_[static_cast<std::size_t>(ChannelKind::switched)], "switch channels"));
        }
      }
    }
    if (step.sources.empty() || step.targets.empty()) op.refuse("an operation with sources and targets");
    // Which operands are packets.
    bool const reduces = name.starts_with("re") || name.starts_with("rre");
    if (reduces && name.ends_with("pkt")) {
      for (std::size_t i = 1; i < step.sources.size(); ++i) step.sources[i].packets = true;
      // The plain result comes first; with "c" its packets here, with "s" those of others.
      for (std::size_t i = 1; i < step.targets.size(); ++i) step.targets[i].packets = true;
    } else if (name == "upkt" || name == "rppkt" || name == "gstorepkt" ||
               (name == "ppkt" && step.link == ChannelKind::port)) {
      for (auto& source : step.sources) source.packets = true;
    }
    if (name == "cpkt" || name == "ppkt" || name == "rppkt" || name == "gstorepkt") {
      for (auto& target : step.targets) target.packets = true;
    }
    if (reduces || name == "glres" || name == "gstore" || name == "gstorepkt") {
      push(std::move(step));
      return;
    }
    pushPairs(op, name, step);
  }

  // Several sources go to the targets of the same places; one goes to all.
  void pushPairs(JsonPlace const& op, std::string const& name, Step const& step) {
    if (step.sources.size() != 1 && step.sources.size() != step.targets.size()) {
      op.refuse(fmt::format("{} with one source, or as many as targets", name));
    }
    bool const ports = step.link == ChannelKind::port;
    std::size_t const moves = step.sources.size() != 1 || ports ? step.targets.size() : 1;
    for (std::size_t i = 0; i < moves; ++i) {
      auto each = step;
      if (moves != 1 || ports) each.targets = {step.targets[i]};
      each.sources = {step.sources[step.sources.size() == 1 ? 0 : i]};
      if (ports && step.objects.size() > 1) each.objects = {step.objects[std::min(i, step.objects.size() - 1)]};
      push(std::move(each));
    }
    if (name == "pws" || name == "pwsf") push({.kind = StepKind::signal, .link = step.link, .objects = step.objects});
    if (name == "pwsf") push({.kind = StepKind::flush, .link = step.link, .objects = step.objects});
  }

  void readSwitchReduce(JsonPlace const& op, Step step) {
    if (step.link != ChannelKind::switched || step.objects.empty()) op.refuse("an operation with a switch channel");
    auto const& channel = made_.channels[static_cast<std::size_t>(step.objects[0])];
    int const index = numberOf(op.at("buffer_offset")), size = numberOf(op.at("size"));
    for (int const rank : channel.ranks) step.sources.push_back({rank, channel.buffer, index, size, false});
    auto const to = op.at("dst_chunk");
    step.targets = {{numberOf(to.at("rank"), ranks_ - 1), wordOf(to.at("type"), bufferWords), numberOf(to.at("index")),
                     numberOf(to.at("size")), false}};
    push(std::move(step));
  }

  int rank_;
  int ranks_;
  RankProgram made_;
  std::vector<int> channels_[3];  // by kind and the plan's number: ours
  std::vector<RemoteBuffer> remotes_;
  std::vector<int> used_[3];  // of the block, by kind and its number
  std::vector<RemoteBuffer> refs_[3];
  std::vector<Step>* steps_ = nullptr;
  int number_ = 0;
};

Collective collectiveOf(JsonPlace const& plan, std::vector<JsonPlace> const& gpus) {
  Collective made{.kind = wordOf(plan.at("collective"), collectiveWords), .ranks = static_cast<int>(gpus.size())};
  int input = 0, output = 0;
  for (auto const& gpu : gpus) {
    auto const agree = [&](char const* name, int& known) {
      int const here = numberOf(gpu.at(name));
      if (made.kind != CollectiveKind::custom && known != 0 && here != known) {
        gpu.at(name).refuse(fmt::format("{}, as for rank 0", known));
      }
      known = std::max(known, here);
    };
    agree("input_chunks", input);
    agree("output_chunks", output);
  }
  auto const divided = [&](char const* name, int chunks) {
    if (chunks == 0 || chunks % made.ranks != 0) {
      gpus[0].at(name).refuse(fmt::format("a multiple of the {} ranks", made.ranks));
    }
    return chunks / made.ranks;
  };
  switch (made.kind) {
    case CollectiveKind::allGather:
      made.chunkFactor = divided("output_chunks", output);
      break;
    case CollectiveKind::reduceScatter:
    case CollectiveKind::allToAll:
      made.chunkFactor = divided("input_chunks", input);
      break;
    case CollectiveKind::allReduce:
      made.customInput = input;
      break;
    case CollectiveKind::sendReceive:
      made.chunkFactor = input;
      break;
    case CollectiveKind::custom:
      made.customInput = input;
      made.customOutput = output;
      return made;
  }
  if (made.inputChunks() != input || input == 0) {
    gpus[0]
        .at("input_chunks")
        .refuse(fmt::format("{}, as the collective's output has {} chunks", made.inputChunks(), output));
  }
  if (made.outputChunks() != output) {
    gpus[0]
        .at("output_chunks")
        .refuse(fmt::format("{}, as the collective's input has {} chunks", made.outputChunks(), input));
  }
  return made;
}

}  // namespace

Program programFromJson(std::string_view text, std::string const& source) {
  JsonFile const file(text, fmt::format("plan {}", source));
  JsonPlace const plan(file);
  auto const gpus = plan.at("gpus").items();
  if (gpus.empty() || gpus.size() > maxTeamSize)
    plan.at("gpus").refuse(fmt::format("a list of 1 to {} ranks", maxTeamSize));
  Program program;
  program.name.add(plan.at("name").text());
  program.collective = collectiveOf(plan, gpus);
  program.protocol = wordOf(plan.at("protocol"), protocolWords);
  program.inPlace = plan.at("inplace").flag();
  if (plan.has("reuse_resources")) program.reuseResources = plan.at("reuse_resources").flag();
  if (plan.has("use_double_scratch_buffer")) program.doubleScratch = plan.at("use_double_scratch_buffer").flag();
  if (plan.has("num_threads_per_block")) program.threads = numberOf(plan.at("num_threads_per_block"), 1024);
  if (plan.has("buffer_alignment")) program.alignment = bytesOf(plan.at("buffer_alignment"));
  if (plan.has("min_message_size")) program.minBytes = bytesOf(plan.at("min_message_size"));
  if (plan.has("max_message_size")) program.maxBytes = bytesOf(plan.at("max_message_size"));
  for (std::size_t r = 0; r < gpus.size(); ++r) {
    program.ranks.push_back(RankReader(gpus[r], static_cast<int>(r), static_cast<int>(gpus.size())).made());
  }
  return program;
}

}  // namespace mscclpp::dsl
