// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Right programs of port and of switch channels, for the tests.
#pragma once

#include <vector>

#include "mscclpp/dsl/build.hpp"

namespace dsl_test {

using namespace mscclpp;

// ---- port channels --------------------------------------------------------------------------------------------------

// Each rank puts its part to all others, a block for each. In place.
template <int Ranks>
struct PortAllGather {
  static constexpr dsl::Spec spec{
      .name = "port_allgather", .collective = dsl::allGather(Ranks), .inPlace = true, .threads = 64};
  static constexpr void define(dsl::Builder& p) {
    for (int rank = 0; rank < Ranks; ++rank) {
      for (int to = 1; to < Ranks; ++to) {
        int const peer = (rank + to) % Ranks, tb = to - 1;
        auto channel = p.portChannel(peer, rank);
        channel.signal({.tb = tb});  // the call has begun here: come in
        channel.wait({.tb = tb, .dataSync = dsl::after});
        channel.putWithSignalAndFlush(p.rank(peer).output()[rank], p.rank(rank).output()[rank], {.tb = tb});
        channel.wait({.tb = tb, .dataSync = dsl::after});
      }
    }
  }
};

// Each rank sends packets of its input to the other, out of its own scratch, and reduces those that come.
struct PortPackets {
  static constexpr dsl::Spec spec{.name = "port_packets",
                                  .collective = dsl::allReduce(2),
                                  .inPlace = true,
                                  .protocol = dsl::Protocol::lowLatency,
                                  .doubleScratch = true,
                                  .threads = 64};
  static constexpr void define(dsl::Builder& p) {
    dsl::BufferRef const scratch[] = {p.rank(0).scratch(4), p.rank(1).scratch(4)};
    for (int rank = 0; rank < 2; ++rank) {
      auto const self = p.rank(rank);
      int const peer = 1 - rank;
      auto channel = p.portChannel(peer, rank);
      self.copyPackets(scratch[rank](2, 2), self.input()(0, 2));
      channel.putPackets(scratch[peer](0, 2), scratch[rank](2, 2), {.dataSync = dsl::before});
      self.reducePackets(self.output()(0, 2), self.input()(0, 2), {scratch[rank](0, 2)});
      channel.flush();
    }
  }
};

// Both pack packets, meet, have their ports send them, and unpack what comes. What tells that the port has read what
// the next call overwrites: a flush, an answer, or nothing.
enum class PackedTold { flushed, answered, nothing };
constexpr void packForPorts(dsl::Builder& p, PackedTold told) {
  dsl::BufferRef const scratch[] = {p.rank(0).scratch(2), p.rank(1).scratch(2)};
  for (int rank = 0; rank < 2; ++rank) {
    auto const self = p.rank(rank);
    int const peer = 1 - rank;
    auto port = p.portChannel(peer, rank);
    auto memory = p.memoryChannel(peer, rank);
    self.copyPackets(scratch[rank][1], self.input()[0]);
    memory.signal({.relaxed = true});
    memory.wait({.relaxed = true});
    port.putPackets(scratch[peer][0], scratch[rank][1]);
    self.unpackPackets(self.output()[0], scratch[rank][0]);
    if (told == PackedTold::flushed) port.flush();
    if (told == PackedTold::answered) {
      memory.signal({.relaxed = true});
      memory.wait({.relaxed = true});
    }
  }
}

// Rank r's input goes to rank r + 1 in turns, through scratch of the receiver; two memory channels say who may write.
struct PortPipeline {
  static constexpr dsl::Spec spec{.name = "port_pipeline", .collective = dsl::sendReceive(2), .threads = 64};
  static constexpr void define(dsl::Builder& p) {
    dsl::BufferRef const scratch[] = {p.rank(0).scratch(1), p.rank(1).scratch(1)};
    for (int rank = 0; rank < 2; ++rank) {
      auto const self = p.rank(rank);
      int const peer = 1 - rank;
      auto data = p.portChannel(peer, rank);
      auto ready = p.memoryChannel(peer, rank);
      p.loop(256, 1, [&] {
        ready.signal({.relaxed = true});
        ready.wait({.relaxed = true, .dataSync = dsl::after});
        data.putWithSignalAndFlush(scratch[peer][0], self.input()[0]);
        data.wait({.dataSync = dsl::after});
        self.copy(self.output()[0], scratch[rank][0]);
        self.sync(0);
      });
    }
  }
};

// ---- two hosts of two ranks each: memory channels within, ports between --------------------------------------------

// Each rank reduces one half within its host, exchanges it with its like on the other host, and hands the result on.
struct TwoHostsAllReduce {
  static constexpr dsl::Spec spec{.name = "two_hosts_allreduce",
                                  .collective = dsl::allReduce(4),
                                  .inPlace = true,
                                  .protocol = dsl::Protocol::lowLatency,
                                  .doubleScratch = true,
                                  .threads = 64};
  static constexpr void define(dsl::Builder& p) {
    std::vector<dsl::BufferRef> scratch;
    for (int rank = 0; rank < 4; ++rank) scratch.push_back(p.rank(rank).scratch(8));
    constexpr int fromNeighbour = 0, toSend = 2, fromOther = 4, results = 6;
    for (int rank = 0; rank < 4; ++rank) {
      auto const self = p.rank(rank);
      auto const& mine = scratch[static_cast<std::size_t>(rank)];
      int const neighbour = rank ^ 1, other = rank ^ 2, own = rank % 2 * 2, theirs = 2 - own;
      auto within = p.memoryChannel(neighbour, rank);
      auto between = p.portChannel(other, rank);
      within.putPackets(scratch[static_cast<std::size_t>(neighbour)](fromNeighbour, 2), self.input()(theirs, 2));
      self.reducePackets(self.output()(own, 2), self.input()(own, 2), {mine(fromNeighbour, 2)});
      self.copyPackets(mine(toSend, 2), self.output()(own, 2));
      between.putPackets(scratch[static_cast<std::size_t>(other)](fromOther, 2), mine(toSend, 2));
      self.reducePackets(self.output()(own, 2), self.output()(own, 2), {mine(fromOther, 2)});
      within.putPackets(scratch[static_cast<std::size_t>(neighbour)](results, 2), self.output()(own, 2));
      self.unpackPackets(self.output()(theirs, 2), mine(results, 2));
    }
  }
};

// From input to output, without scratch: to the other host first, then to the neighbour what came from there.
struct TwoHostsAllGather {
  static constexpr dsl::Spec spec{.name = "two_hosts_allgather", .collective = dsl::allGather(4), .threads = 64};
  static constexpr void define(dsl::Builder& p) {
    for (int rank = 0; rank < 4; ++rank) {
      auto const self = p.rank(rank);
      int const neighbour = rank ^ 1, other = rank ^ 2;
      auto within = p.memoryChannel(neighbour, rank);
      auto between = p.portChannel(other, rank);
      auto const input = self.input()[0];
      between.signal();
      within.signal({.relaxed = true});
      between.wait();
      between.putWithSignalAndFlush(p.rank(other).output()[rank], input);
      within.wait({.relaxed = true, .dataSync = dsl::after});
      within.put(p.rank(neighbour).output()[rank], input);
      self.copy(self.output()[rank], input);
      between.wait({.dataSync = dsl::after});
      within.put(p.rank(neighbour).output()[other], self.output()[other]);
      within.signal();
      within.wait();
    }
  }
};

// ---- switch channels ------------------------------------------------------------------------------------------------

// All ranks have begun, or are done with what comes before: each pair meets.
template <int Ranks>
constexpr void meet(std::vector<dsl::MemoryChannelRef> const& channels, bool relaxed) {
  for (auto const& channel : channels) channel.signal({.relaxed = relaxed, .dataSync = dsl::before});
  for (auto const& channel : channels) channel.wait({.relaxed = relaxed, .dataSync = dsl::after});
}

// Each rank has the switch reduce its part of everybody's buffer, and write the result into everybody's. In place. With
// relaxed signals and waits at its end as well, it is right only when those are made ordered ones.
template <int Ranks, bool RelaxedEnd = false>
struct SwitchAllReduce {
  static constexpr dsl::Spec spec{
      .name = "switch_allreduce", .collective = dsl::allReduce(Ranks), .inPlace = true, .threads = 64};
  static constexpr void define(dsl::Builder& p) {
    std::vector<int> all;
    for (int rank = 0; rank < Ranks; ++rank) all.push_back(rank);
    auto const through = p.switchChannel(all, dsl::BufferKind::output);
    for (int rank = 0; rank < Ranks; ++rank) {
      std::vector<dsl::MemoryChannelRef> channels;
      for (int to = 1; to < Ranks; ++to) channels.push_back(p.memoryChannel((rank + to) % Ranks, rank));
      auto const port = through.atRank(rank);
      meet<Ranks>(channels, true);
      port.reduce(p.rank(rank).output()[rank], rank, 1);
      port.broadcast(rank, p.rank(rank).output()[rank]);
      meet<Ranks>(channels, RelaxedEnd);
    }
  }
};

// By way of scratch, which the switch reads and writes: two ranks, out of place.
struct SwitchScratch {
  static constexpr dsl::Spec spec{.name = "switch_scratch", .collective = dsl::allReduce(2), .threads = 64};
  static constexpr void define(dsl::Builder& p) {
    dsl::BufferRef const scratch[] = {p.rank(0).scratch(4), p.rank(1).scratch(4)};
    auto const through = p.switchChannel({0, 1}, dsl::BufferKind::scratch);
    for (int rank = 0; rank < 2; ++rank) {
      auto const self = p.rank(rank);
      std::vector<dsl::MemoryChannelRef> const channels{p.memoryChannel(1 - rank, rank)};
      auto const port = through.atRank(rank);
      self.copy(scratch[rank](0, 2), self.input()(0, 2));
      meet<2>(channels, false);
      port.reduce(scratch[rank][2 + rank], rank, 1);
      port.broadcast(2 + rank, scratch[rank][2 + rank]);
      meet<2>(channels, false);
      self.copy(self.output()(0, 2), scratch[rank](2, 2));
    }
  }
};

}  // namespace dsl_test
