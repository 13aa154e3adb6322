// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The channels of a program: what a rank does with the memory of others.
//
// A channel belongs to one rank (`of`), whose blocks do its steps. Offsets into other ranks' buffers are chunks of
// those ranks; the verifier checks that a channel's steps touch its own rank and its peer only.
#pragma once

#include <utility>
#include <vector>

#include "mscclpp/dsl/builder.hpp"

namespace mscclpp::dsl {

// What all channels share: the rank whose they are, and how steps get into the builder.
class ChannelRef {
 public:
  constexpr ChannelRef(Builder& builder, ChannelKind kind, int of, int id)
      : builder_(&builder), kind_(kind), of_(of), id_(id) {}

 protected:
  constexpr void order(StepKind kind, At const& at, Spelling spelling = Spelling::plain) const {
    builder_->add(of_, at,
                  {.kind = kind, .link = kind_, .relaxed = at.relaxed, .spelling = spelling, .objects = {id_}});
  }
  constexpr void move(std::vector<Chunks> sources, std::vector<Chunks> targets, At const& at,
                      Spelling spelling = Spelling::plain) const {
    builder_->add(of_, at,
                  {.kind = StepKind::move,
                   .link = kind_,
                   .reduce = at.reduce,
                   .spelling = spelling,
                   .sources = std::move(sources),
                   .targets = std::move(targets),
                   .objects = {id_}});
  }

  Builder* builder_;
  ChannelKind kind_;
  int of_;
  int id_;
};

// Threads of the rank reach the peer's memory themselves.
class MemoryChannelRef : public ChannelRef {
 public:
  using ChannelRef::ChannelRef;

  // signal() ends one wait() of the peer's channel. Ordered, with what was put before it, unless At::relaxed.
  constexpr void signal(At const& at = {}) const { order(StepKind::signal, at); }
  constexpr void wait(At const& at = {}) const { order(StepKind::wait, at); }
  // Own memory to the peer's.
  constexpr void put(Chunks const& dst, Chunks const& src, At const& at = {}) const { move({src}, {dst}, at); }
  // The peer's memory to the own.
  constexpr void get(Chunks const& dst, Chunks const& src, At const& at = {}) const { move({src}, {dst}, at); }
  constexpr void putPackets(Chunks const& dst, Chunks const& src, At const& at = {}) const {
    move({src}, {asPackets(dst)}, at);
  }
  // Awaits packets in the own memory and passes them on.
  constexpr void readPutPackets(Chunks const& dst, Chunks const& src, At const& at = {}) const {
    move({asPackets(src)}, {asPackets(dst)}, at);
  }
  // dst = local + the peer's
  constexpr void reduce(Chunks const& dst, Chunks const& local, std::vector<Chunks> remote, At const& at = {}) const {
    remote.insert(remote.begin(), local);
    move(std::move(remote), {dst}, at);
  }
};

// The host's proxy moves the data: a put is only asked for, and its source may be written again after flush().
class PortChannelRef : public ChannelRef {
 public:
  using ChannelRef::ChannelRef;

  // As a memory channel's, of what the proxy has been asked for before.
  constexpr void signal(At const& at = {}) const { order(StepKind::signal, at); }
  constexpr void wait(At const& at = {}) const { order(StepKind::wait, at); }
  constexpr void flush(At const& at = {}) const { order(StepKind::flush, at); }
  constexpr void put(Chunks const& dst, Chunks const& src, At const& at = {}) const { move({src}, {dst}, at); }
  // put(), then signal(), then with putWithSignalAndFlush() flush(): `dataSync` stands around the put alone.
  constexpr void putWithSignal(Chunks const& dst, Chunks const& src, At at = {}) const {
    put(dst, src, at);
    at.dataSync = none;
    order(StepKind::signal, at, Spelling::joined);
  }
  constexpr void putWithSignalAndFlush(Chunks const& dst, Chunks const& src, At at = {}) const {
    putWithSignal(dst, src, at);
    at.dataSync = none;
    order(StepKind::flush, at, Spelling::joined);
  }
  // Packets that lie ready in the own memory.
  constexpr void putPackets(Chunks const& dst, Chunks const& src, At const& at = {}) const {
    move({asPackets(src)}, {asPackets(dst)}, at);
  }
  // Awaits packets in the own memory and passes them on.
  constexpr void readPutPackets(Chunks const& dst, Chunks const& src, At const& at = {}) const {
    move({asPackets(src)}, {asPackets(dst)}, at, Spelling::awaiting);
  }
};

// One rank's side of a switch channel: what the switch does with the same chunks of all its ranks.
class SwitchPort : public ChannelRef {
 public:
  constexpr SwitchPort(Builder& builder, int of, int id, std::vector<int> ranks, BufferKind buffer)
      : ChannelRef(builder, ChannelKind::switched, of, id), ranks_(std::move(ranks)), buffer_(buffer) {}

  // dst = the reduction of all ranks' chunks
  constexpr void reduce(Chunks const& dst, int index, int count, At const& at = {}) const {
    move(everywhere(index, count), {dst}, at);
  }
  constexpr void broadcast(int index, Chunks const& src, At const& at = {}) const {
    move({src}, everywhere(index, src.count), at);
  }
  constexpr void broadcastPackets(int index, Chunks const& src, At const& at = {}) const {
    move({asPackets(src)}, asPackets(everywhere(index, src.count)), at);
  }

 private:
  constexpr std::vector<Chunks> everywhere(int index, int count) const {
    std::vector<Chunks> all;
    for (int const rank : ranks_) all.push_back({rank, buffer_, index, count, false});
    return all;
  }

  std::vector<int> ranks_;
  BufferKind buffer_;
};

// A switch channel of several ranks, over the same chunks of one buffer of each.
class SwitchChannelRef {
 public:
  constexpr SwitchChannelRef(Builder& builder, std::vector<int> ranks, BufferKind buffer, std::vector<int> ids)
      : builder_(&builder), ranks_(std::move(ranks)), buffer_(buffer), ids_(std::move(ids)) {}

  // The side of one rank, whose blocks do its steps. The builder refuses a rank that is not the channel's.
  constexpr SwitchPort atRank(int rank) const {
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      if (ranks_[i] == rank) return {*builder_, rank, ids_[i], ranks_, buffer_};
    }
    builder_->refuse(say("a switch channel at rank ", rank, ", which is not one of its ranks"));
    return {*builder_, ranks_.empty() ? 0 : ranks_[0], ids_.empty() ? 0 : ids_[0], ranks_, buffer_};
  }

 private:
  Builder* builder_;
  std::vector<int> ranks_;
  BufferKind buffer_;
  std::vector<int> ids_;  // of the ranks' channels, in their order
};

constexpr MemoryChannelRef Builder::memoryChannel(int to, int of) {
  of = known(of, "memory channel");
  to = known(to, "memory channel");
  if (of == to) refuse(say("a memory channel of rank ", of, " to itself"));
  return {*this, ChannelKind::memory, of, newChannel(of, {.kind = ChannelKind::memory, .peer = to})};
}

constexpr PortChannelRef Builder::portChannel(int to, int of) {
  of = known(of, "port channel");
  to = known(to, "port channel");
  if (of == to) refuse(say("a port channel of rank ", of, " to itself"));
  return {*this, ChannelKind::port, of, newChannel(of, {.kind = ChannelKind::port, .peer = to})};
}

constexpr SwitchChannelRef Builder::switchChannel(std::vector<int> ranks, BufferKind buffer) {
  std::vector<int> ids;
  for (auto& rank : ranks) {
    rank = known(rank, "switch channel");
    ids.push_back(newChannel(rank, {.kind = ChannelKind::switched, .buffer = buffer, .ranks = ranks}));
  }
  return {*this, std::move(ranks), buffer, std::move(ids)};
}

}  // namespace mscclpp::dsl
