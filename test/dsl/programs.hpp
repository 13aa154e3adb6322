// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Right programs of every kind, for the tests: of the seed documents, ring, all pairs, two levels, in turns, by
// packets.
#pragma once

#include <vector>

#include "mscclpp/dsl/build.hpp"

namespace dsl_test {

using namespace mscclpp;

struct SimpleAllGather {
  static constexpr dsl::Spec spec{.name = "simple_allgather", .collective = dsl::allGather(2), .inPlace = true};
  static constexpr void define(dsl::Builder& p) {
    for (int src = 0; src < 2; ++src) {
      for (int dst = 0; dst < 2; ++dst) {
        if (src == dst) continue;
        auto channel = p.memoryChannel(dst, src);
        channel.signal({.tb = 0, .relaxed = true});
        channel.wait({.tb = 0, .relaxed = true, .dataSync = dsl::after});
        channel.put(p.rank(dst).output()[src], p.rank(src).output()[src], {.tb = 0});
        channel.signal({.tb = 0, .dataSync = dsl::before});
        channel.wait({.tb = 0, .dataSync = dsl::after});
      }
    }
  }
};

// Each part goes round the ring, a rank each step. In place.
template <int Ranks>
struct RingAllGather {
  static constexpr dsl::Spec spec{.name = "ring_allgather", .collective = dsl::allGather(Ranks), .inPlace = true};
  static constexpr void define(dsl::Builder& p) {
    for (int rank = 0; rank < Ranks; ++rank) {
      int const next = (rank + 1) % Ranks, previous = (rank + Ranks - 1) % Ranks;
      auto to = p.memoryChannel(next, rank);
      auto from = p.memoryChannel(previous, rank);
      from.signal({.relaxed = true});  // come in
      to.wait({.relaxed = true});
      for (int step = 0; step < Ranks - 1; ++step) {
        int const part = (rank + Ranks - step) % Ranks;
        to.put(p.rank(next).output()[part], p.rank(rank).output()[part]);
        to.signal();
        from.wait();
      }
    }
  }
};

// The same by packets that each rank hands on as they are, from scratch to scratch. Out of place; of chunks that are
// not all of one length, if there are instances.
template <int Ranks, int Instances = 1>
struct RelayAllGather {
  static constexpr dsl::Spec spec{.name = "relay_allgather",
                                  .collective = dsl::allGather(Ranks),
                                  .protocol = dsl::Protocol::lowLatency,
                                  .instances = Instances,
                                  .fuse = false,
                                  .doubleScratch = true};
  static constexpr void define(dsl::Builder& p) {
    std::vector<dsl::BufferRef> scratch;
    for (int rank = 0; rank < Ranks; ++rank) scratch.push_back(p.rank(rank).scratch(Ranks));
    for (int rank = 0; rank < Ranks; ++rank) {
      auto const self = p.rank(rank);
      auto const mine = scratch[static_cast<std::size_t>(rank)];
      auto const theirs = scratch[static_cast<std::size_t>((rank + 1) % Ranks)];
      auto channel = p.memoryChannel((rank + 1) % Ranks, rank);
      channel.putPackets(theirs[rank], self.input()[0]);
      self.copy(self.output()[rank], self.input()[0]);
      for (int back = 1; back < Ranks; ++back) {
        int const part = (rank + Ranks - back) % Ranks;
        if (back < Ranks - 1) channel.readPutPackets(theirs[part], mine[part]);
        self.unpackPackets(self.output()[part], mine[part]);
      }
    }
  }
};

// Every rank pushes its part to every other, a block for each.
template <int Ranks, int Instances = 1>
struct AllPairsAllGather {
  static constexpr dsl::Spec spec{
      .name = "allpairs_allgather", .collective = dsl::allGather(Ranks), .instances = Instances};
  static constexpr void define(dsl::Builder& p) {
    for (int rank = 0; rank < Ranks; ++rank) {
      p.rank(rank).copy(p.rank(rank).output()[rank], p.rank(rank).input()[0], {.tb = 0});
      for (int distance = 1; distance < Ranks; ++distance) {
        int const peer = (rank + distance) % Ranks;
        // The channel back is the one that the peer makes for the distance that it sees this rank at.
        auto channel = p.memoryChannel(peer, rank);
        int const block = distance < Ranks - distance    ? 2 * distance - 2
                          : distance == Ranks - distance ? Ranks - 2
                                                         : 2 * (Ranks - distance) - 1;
        channel.signal({.tb = block, .relaxed = true});
        channel.wait({.tb = block, .relaxed = true});
        channel.put(p.rank(peer).output()[rank], p.rank(rank).input()[0], {.tb = block});
        channel.signal({.tb = block});
        channel.wait({.tb = block});
      }
    }
  }
};

// One-shot all-reduce by packets: everybody gets everybody's input.
template <int Ranks, bool Double = true>
struct OneShotPackets {
  static constexpr dsl::Spec spec{.name = "oneshot_packets",
                                  .collective = dsl::allReduce(Ranks),
                                  .inPlace = true,
                                  .protocol = dsl::Protocol::lowLatency,
                                  .doubleScratch = Double};
  static constexpr void define(dsl::Builder& p) {
    std::vector<dsl::BufferRef> scratch;
    for (int rank = 0; rank < Ranks; ++rank) scratch.push_back(p.rank(rank).scratch(Ranks * Ranks));
    for (int rank = 0; rank < Ranks; ++rank) {
      std::vector<dsl::Chunks> arrived;
      for (int peer = 0; peer < Ranks; ++peer) {
        if (peer == rank) continue;
        p.memoryChannel(peer, rank)
            .putPackets(scratch[static_cast<std::size_t>(peer)](rank * Ranks, Ranks), p.rank(rank).input()(0, Ranks));
        arrived.push_back(scratch[static_cast<std::size_t>(rank)](peer * Ranks, Ranks));
      }
      p.rank(rank).reducePackets(p.rank(rank).output()(0, Ranks), p.rank(rank).input()(0, Ranks), arrived);
    }
  }
};

// Two-shot all-reduce by packets: each rank reduces its chunk and hands the result to everybody. In place.
template <int Ranks, int Instances = 1>
struct TwoShotPackets {
  static constexpr dsl::Spec spec{.name = "twoshot_packets",
                                  .collective = dsl::allReduce(Ranks),
                                  .inPlace = true,
                                  .protocol = dsl::Protocol::lowLatency,
                                  .instances = Instances};
  static constexpr void define(dsl::Builder& p) {
    std::vector<dsl::BufferRef> scratch;
    for (int rank = 0; rank < Ranks; ++rank) scratch.push_back(p.rank(rank).scratch(2 * Ranks));
    for (int rank = 0; rank < Ranks; ++rank) {
      auto const self = p.rank(rank);
      auto const mine = scratch[static_cast<std::size_t>(rank)];
      std::vector<dsl::Chunks> arrived;
      std::vector<dsl::MemoryChannelRef> channels;
      for (int peer = 0; peer < Ranks; ++peer) {
        if (peer == rank) continue;
        channels.push_back(p.memoryChannel(peer, rank));
        channels.back().putPackets(scratch[static_cast<std::size_t>(peer)][rank], self.input()[peer]);
        arrived.push_back(mine[peer]);
      }
      self.reducePackets(self.output()[rank], self.input()[rank], arrived);
      for (int peer = 0, c = 0; peer < Ranks; ++peer) {
        if (peer == rank) continue;
        channels[static_cast<std::size_t>(c++)].putPackets(scratch[static_cast<std::size_t>(peer)][Ranks + rank],
                                                           self.output()[rank]);
      }
      for (int peer = 0; peer < Ranks; ++peer) {
        if (peer != rank) self.unpackPackets(self.output()[peer], mine[Ranks + peer]);
      }
    }
  }
};

// Two-shot all-reduce straight from and into the peers' buffers: reads, reduces, writes. In place.
template <int Ranks, int Instances = 1>
struct PullPushAllReduce {
  static constexpr dsl::Spec spec{
      .name = "pull_push_allreduce", .collective = dsl::allReduce(Ranks), .inPlace = true, .instances = Instances};
  static constexpr void define(dsl::Builder& p) {
    for (int rank = 0; rank < Ranks; ++rank) {
      auto const self = p.rank(rank);
      std::vector<dsl::MemoryChannelRef> channels;
      std::vector<dsl::Chunks> others;
      for (int peer = 0; peer < Ranks; ++peer) {
        if (peer == rank) continue;
        channels.push_back(p.memoryChannel(peer, rank));
        others.push_back(p.rank(peer).input()[rank]);
      }
      for (auto const& channel : channels) channel.signal({.relaxed = true});
      for (auto const& channel : channels) channel.wait({.relaxed = true});
      channels[0].reduce(self.output()[rank], self.input()[rank], others);
      for (int peer = 0; peer < Ranks; ++peer) {
        if (peer != rank) self.move({self.output()[rank]}, {p.rank(peer).output()[rank]});
      }
      for (auto const& channel : channels) channel.signal();
      for (auto const& channel : channels) channel.wait();
    }
  }
};

// All-to-all through scratch, a block for each peer.
template <int Ranks>
struct ScratchAllToAll {
  static constexpr dsl::Spec spec{.name = "scratch_alltoall", .collective = dsl::allToAll(Ranks)};
  static constexpr void define(dsl::Builder& p) {
    std::vector<dsl::BufferRef> scratch;
    for (int rank = 0; rank < Ranks; ++rank) scratch.push_back(p.rank(rank).scratch(Ranks));
    for (int rank = 0; rank < Ranks; ++rank) {
      auto const self = p.rank(rank);
      for (int peer = 0; peer < Ranks; ++peer) {
        if (peer == rank) {
          self.copy(self.output()[rank], self.input()[rank], {.tb = rank});
          continue;
        }
        auto channel = p.memoryChannel(peer, rank);
        channel.signal({.tb = peer, .relaxed = true});
        channel.wait({.tb = peer, .relaxed = true});
        channel.put(scratch[static_cast<std::size_t>(peer)][rank], self.input()[peer], {.tb = peer});
        channel.signal({.tb = peer});
        channel.wait({.tb = peer});
        self.copy(self.output()[peer], scratch[static_cast<std::size_t>(rank)][peer], {.tb = peer});
      }
    }
  }
};

// An all-to-all whose parts differ: a custom collective of as many chunks as the longest buffer has, the demand said
// part by part. What no part takes stays as it was.
struct UnevenAllToAll {
  static constexpr int ranks = 3;
  static constexpr int chunks = 9;  // rank 2 sends and gets so many
  // Parts of 0 to 4 chunks.
  static constexpr int part(int from, int to) { return from + to; }

  static constexpr dsl::Spec spec{.name = "uneven_alltoall", .collective = dsl::custom(ranks, chunks, chunks)};
  static constexpr void define(dsl::Builder& p) {
    for (int from = 0; from < ranks; ++from) {
      for (int to = 0, sent = 0; to < ranks; sent += part(from, to++)) {
        int got = 0;
        for (int r = 0; r < from; ++r) got += part(r, to);
        auto const source = p.rank(from).input()(sent, part(from, to)),
                   target = p.rank(to).output()(got, part(from, to));
        for (int c = 0; c < part(from, to); ++c) {
          p.expect(p.rank(to).output()[got + c], {p.rank(from).input()[sent + c]});
        }
        if (from == to) {
          if (part(from, to) > 0) p.rank(to).copy(target, source, {.tb = to});
          continue;
        }
        auto channel = p.memoryChannel(to, from), back = p.memoryChannel(from, to);
        back.signal({.tb = from, .relaxed = true});
        channel.wait({.tb = to, .relaxed = true});
        channel.put(target, source, {.tb = to});
        channel.signal({.tb = to});
        back.wait({.tb = from});
      }
    }
  }
};

// Two levels: `Groups` groups of two ranks reduce among themselves first, then across the groups. Reduce-scatter.
struct TwoLevelReduceScatter {
  static constexpr dsl::Spec spec{.name = "two_level_reducescatter", .collective = dsl::reduceScatter(4)};
  static constexpr void define(dsl::Builder& p) {
    std::vector<dsl::BufferRef> near, sums, far;
    for (int rank = 0; rank < 4; ++rank) {
      near.push_back(p.rank(rank).scratch(2));
      sums.push_back(p.rank(rank).scratch(1));
      far.push_back(p.rank(rank).scratch(1));
    }
    for (int rank = 0; rank < 4; ++rank) {
      auto const self = p.rank(rank);
      int const partner = rank ^ 1, across = rank ^ 2;
      auto const at = [](std::vector<dsl::BufferRef> const& list, int i) { return list[static_cast<std::size_t>(i)]; };
      auto close = p.memoryChannel(partner, rank);
      auto distant = p.memoryChannel(across, rank);
      close.signal({.relaxed = true});
      close.wait({.relaxed = true});
      // What the partner's side of each group needs: its own chunk and that of the rank across from it.
      close.put(at(near, partner)[0], self.input()[partner]);
      close.put(at(near, partner)[1], self.input()[partner ^ 2]);
      close.signal();
      close.wait();
      self.reduce(at(sums, rank)[0], self.input()[across], {at(near, rank)[1]});
      distant.signal({.relaxed = true});
      distant.wait({.relaxed = true});
      distant.put(at(far, across)[0], at(sums, rank)[0]);
      distant.signal();
      distant.wait();
      self.reduce(self.output()[0], self.input()[rank], {at(near, rank)[0], at(far, rank)[0]});
    }
  }
};

// A ring of two ranks in turns: one block brings data to the peer's scratch, another takes it out, while the next turn
// is on its way.
struct PipelinedSendReceive {
  static constexpr dsl::Spec spec{.name = "pipelined_sendrecv", .collective = dsl::sendReceive(2, 2)};
  static constexpr void define(dsl::Builder& p) {
    dsl::BufferRef const scratch[] = {p.rank(0).scratch(2), p.rank(1).scratch(2)};
    dsl::MemoryChannelRef const channels[] = {p.memoryChannel(1, 0), p.memoryChannel(0, 1)};
    dsl::SemaphoreRef const arrived[] = {p.semaphore(0), p.semaphore(1)};
    for (int rank = 0; rank < 2; ++rank) {
      channels[rank].signal({.tb = 0, .relaxed = true});
      channels[rank].wait({.tb = 0, .relaxed = true});
    }
    p.loop(256, 1, [&] {
      for (int rank = 0; rank < 2; ++rank) {
        auto const self = p.rank(rank);
        channels[rank].put(scratch[1 - rank](0, 2), self.input()(0, 2), {.tb = 0});
        channels[rank].signal({.tb = 0});
        channels[rank].wait({.tb = 0});
        arrived[rank].release({.tb = 0});
        arrived[rank].acquire({.tb = 1});
        self.copy(self.output()(0, 2), scratch[rank](0, 2), {.tb = 1});
      }
    });
    // The scratch is free again when both are through; tells the peer for the next call.
    for (int rank = 0; rank < 2; ++rank) p.rank(rank).barrier({0, 1});
  }
};

// One chunk in a loop, the other one before it.
struct PartlyInTurns {
  static constexpr dsl::Spec spec{.name = "partly_in_turns", .collective = dsl::custom(1, 2, 2)};
  static constexpr void define(dsl::Builder& p) {
    auto const self = p.rank(0);
    self.copy(self.output()[0], self.input()[0]);
    p.loop(256, 1, [&] { self.copy(self.output()[1], self.input()[1]); });
    for (int chunk = 0; chunk < 2; ++chunk) p.expect(self.output()[chunk], {self.input()[chunk]});
  }
};

// Two barriers that share a block and cross, on a rank with more blocks than the other.
struct CrossingBarriers {
  static constexpr dsl::Spec spec{.name = "crossing_barriers", .collective = dsl::custom(2, 1, 1)};
  static constexpr void define(dsl::Builder& p) {
    auto const self = p.rank(0);
    auto const scratch = self.scratch(2);
    self.copy(scratch[0], self.input()[0], {.tb = 0});
    self.barrier({0, 1});
    self.copy(scratch[1], scratch[0], {.tb = 1});
    self.barrier({1, 2});
    self.barrier({0, 1});
    self.copy(self.output()[0], scratch[1], {.tb = 2});
    p.rank(1).copy(p.rank(1).output()[0], p.rank(1).input()[0]);
    for (int rank = 0; rank < 2; ++rank) p.expect(p.rank(rank).output()[0], {p.rank(rank).input()[0]});
  }
};

}  // namespace dsl_test
