// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The usual all-reduces as programs of four ranks, in place: each by plain memory with signals, and by packets, which
// carry their own flags. Copy one and change it; it compiles only while it is right.
#pragma once

#include <cstddef>
#include <vector>

#include "mscclpp/dsl/kernel.hpp"

namespace gallery {

using namespace mscclpp;

inline constexpr int ranks = 4;

// `twice`: calls take turns with two scratches, since a peer may be a call ahead.
constexpr dsl::Spec specOf(char const* name, bool packets, bool twice = false) {
  return {.name = name,
          .collective = dsl::allReduce(ranks),
          .inPlace = true,
          .protocol = packets ? dsl::Protocol::lowLatency : dsl::Protocol::simple,
          .doubleScratch = twice};
}

// So many chunks of scratch at every rank.
constexpr std::vector<dsl::BufferRef> scratchOf(dsl::Builder& p, int chunks) {
  std::vector<dsl::BufferRef> scratch;
  for (int rank = 0; rank < ranks; ++rank) scratch.push_back(p.rank(rank).scratch(chunks));
  return scratch;
}

// A rank's channels to all others.
constexpr std::vector<dsl::MemoryChannelRef> channelsOf(dsl::Builder& p, int rank) {
  std::vector<dsl::MemoryChannelRef> channels;
  for (int distance = 1; distance < ranks; ++distance)
    channels.push_back(p.memoryChannel((rank + distance) % ranks, rank));
  return channels;
}

// Nobody goes on before all have come here. `relaxed`: no data are told of.
constexpr void meet(std::vector<dsl::MemoryChannelRef>& channels, bool relaxed, int block = 0) {
  for (auto& channel : channels) channel.signal({.tb = block, .relaxed = relaxed});
  for (auto& channel : channels) channel.wait({.tb = block, .relaxed = relaxed});
}

// Chunks go round: each rank adds its own to the sum that comes from the rank behind and hands it on; the sums go
// round once more. 2 (n - 1) steps, one link at a time.
template <bool Packets>
struct Ring {
  static constexpr dsl::Spec spec = specOf(Packets ? "ring_packets" : "ring", Packets);
  static constexpr void define(dsl::Builder& p) {
    constexpr int steps = ranks - 1;
    auto const scratch = scratchOf(p, 2 * steps);
    for (int rank = 0; rank < ranks; ++rank) {
      int const next = (rank + 1) % ranks;
      auto const self = p.rank(rank);
      auto const mine = scratch[static_cast<std::size_t>(rank)], theirs = scratch[static_cast<std::size_t>(next)];
      auto const chunk = [&](int back) { return (rank + 2 * ranks - back) % ranks; };
      auto to = p.memoryChannel(next, rank);
      auto from = p.memoryChannel((rank + ranks - 1) % ranks, rank);
      if (!Packets) {
        from.signal({.relaxed = true});  // come in
        to.wait({.relaxed = true});
      }
      for (int step = 0; step < steps; ++step) {
        auto const sum = self.output()[chunk(step + 1)], own = self.input()[chunk(step + 1)];
        if (Packets) {
          to.putPackets(theirs[step], self.input()[chunk(step)]);
          self.reducePackets(sum, own, {mine[step]});
        } else {
          to.put(theirs[step], self.input()[chunk(step)]);
          to.signal();
          from.wait();
          self.reduce(sum, own, {mine[step]});
        }
      }
      for (int step = 0; step < steps; ++step) {
        int const sent = chunk(step + ranks - 1), comes = chunk(step);
        if (Packets) {
          to.putPackets(theirs[steps + step], self.output()[sent]);
          self.unpackPackets(self.output()[comes], mine[steps + step]);
        } else {
          to.put(p.rank(next).output()[sent], self.output()[sent]);
          to.signal();
          from.wait();
        }
      }
    }
  }
};

// Each rank reduces one chunk of everybody's and hands it to all: two steps, all links at once.
template <bool Packets>
struct AllPairs {
  static constexpr dsl::Spec spec = specOf(Packets ? "all_pairs_packets" : "all_pairs", Packets);
  static constexpr void define(dsl::Builder& p) {
    auto const scratch = scratchOf(p, 2 * ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      auto const self = p.rank(rank);
      auto const mine = scratch[static_cast<std::size_t>(rank)];
      auto channels = channelsOf(p, rank);
      std::vector<dsl::Chunks> arrived;
      if (!Packets) meet(channels, true);
      for (int distance = 1; distance < ranks; ++distance) {
        int const peer = (rank + distance) % ranks;
        auto& channel = channels[static_cast<std::size_t>(distance - 1)];
        auto const place = scratch[static_cast<std::size_t>(peer)][rank];
        Packets ? channel.putPackets(place, self.input()[peer]) : channel.put(place, self.input()[peer]);
      }
      for (int peer = 0; peer < ranks; ++peer) {
        if (peer != rank) arrived.push_back(mine[peer]);
      }
      auto const sum = self.output()[rank];
      if (Packets) {
        self.reducePackets(sum, self.input()[rank], arrived);
      } else {
        meet(channels, false);
        self.reduce(sum, self.input()[rank], arrived);
      }
      for (int distance = 1; distance < ranks; ++distance) {
        int const peer = (rank + distance) % ranks;
        auto& channel = channels[static_cast<std::size_t>(distance - 1)];
        if (Packets) {
          channel.putPackets(scratch[static_cast<std::size_t>(peer)][ranks + rank], sum);
        } else {
          channel.put(p.rank(peer).output()[rank], sum);
        }
      }
      if (!Packets) meet(channels, false);
      for (int peer = 0; Packets && peer < ranks; ++peer) {
        if (peer != rank) self.unpackPackets(self.output()[peer], mine[ranks + peer]);
      }
    }
  }
};

// Two nodes of two ranks. The ranks of a node split the message, reduce their halves with the same rank of the other
// node, and swap them: only half of the message goes between nodes.
template <bool Packets>
struct TwoLevel {
  static constexpr dsl::Spec spec = specOf(Packets ? "two_level_packets" : "two_level", Packets, Packets);
  static constexpr void define(dsl::Builder& p) {
    auto const scratch = scratchOf(p, 6);
    for (int rank = 0; rank < ranks; ++rank) {
      int const partner = rank ^ 1, across = rank ^ 2;
      int const half = 2 * (rank % 2), other = 2 - half;
      auto const self = p.rank(rank);
      auto const mine = scratch[static_cast<std::size_t>(rank)];
      auto near = p.memoryChannel(partner, rank);
      auto far = p.memoryChannel(across, rank);
      // Two chunks from `from` to the scratch of `peer`, and what comes to the same place of the own.
      auto const exchange = [&](dsl::MemoryChannelRef& channel, int peer, int place, dsl::Chunks const& from) {
        auto const theirs = scratch[static_cast<std::size_t>(peer)](place, 2);
        if (Packets) {
          channel.putPackets(theirs, from);
          return;
        }
        channel.put(theirs, from);
        channel.signal();
        channel.wait();
      };
      auto const reduce = [&](int place) {
        auto const sum = self.output()(half, 2), own = self.input()(half, 2);
        Packets ? self.reducePackets(sum, own, {mine(place, 2)}) : self.reduce(sum, own, {mine(place, 2)});
      };
      for (auto* channel : {&near, &far}) {
        if (Packets) break;
        channel->signal({.relaxed = true});
        channel->wait({.relaxed = true});
      }
      exchange(near, partner, 0, self.input()(other, 2));
      reduce(0);
      exchange(far, across, 2, self.output()(half, 2));
      reduce(2);
      exchange(near, partner, 4, self.output()(half, 2));
      auto const rest = self.output()(other, 2);
      Packets ? self.unpackPackets(rest, mine(4, 2)) : self.copy(rest, mine(4, 2));
    }
  }
};

// Everybody gets everybody's input, a piece of each chunk at a time: while one block adds up what has arrived, another
// sends the next piece.
template <bool Packets>
struct Pipelined {
  static constexpr dsl::Spec spec = specOf(Packets ? "pipelined_packets" : "pipelined", Packets, Packets);
  static constexpr void define(dsl::Builder& p) {
    constexpr int sender = 0, adder = 1;
    auto const scratch = scratchOf(p, ranks * ranks);
    std::vector<std::vector<dsl::MemoryChannelRef>> channels;
    std::vector<dsl::SemaphoreRef> arrived;
    for (int rank = 0; rank < ranks; ++rank) {
      channels.push_back(channelsOf(p, rank));
      arrived.push_back(p.semaphore(rank));
      if (!Packets) meet(channels.back(), true, sender);
    }
    p.loop(4096, 1, [&] {
      for (int rank = 0; rank < ranks; ++rank) {
        auto const self = p.rank(rank);
        auto& own = channels[static_cast<std::size_t>(rank)];
        std::vector<dsl::Chunks> parts;
        for (int distance = 1; distance < ranks; ++distance) {
          int const peer = (rank + distance) % ranks;
          auto const to = scratch[static_cast<std::size_t>(peer)](rank * ranks, ranks);
          auto& channel = own[static_cast<std::size_t>(distance - 1)];
          if (Packets) {
            channel.putPackets(to, self.input()(0, ranks), {.tb = sender});
          } else {
            channel.put(to, self.input()(0, ranks), {.tb = sender});
          }
        }
        for (int peer = 0; peer < ranks; ++peer) {
          if (peer != rank) parts.push_back(scratch[static_cast<std::size_t>(rank)](peer * ranks, ranks));
        }
        // The own input has been sent before the sum takes its place.
        if (!Packets) meet(own, false, sender);
        arrived[static_cast<std::size_t>(rank)].release({.tb = sender});
        arrived[static_cast<std::size_t>(rank)].acquire({.tb = adder});
        if (Packets) {
          self.reducePackets(self.output()(0, ranks), self.input()(0, ranks), parts, {.tb = adder});
        } else {
          self.reduce(self.output()(0, ranks), self.input()(0, ranks), parts, {.tb = adder});
        }
      }
    });
    // Scratch is free for the next call when both blocks are through.
    for (int rank = 0; rank < ranks; ++rank) p.rank(rank).barrier({sender, adder});
  }
};

// The switch between the GPUs reduces each rank's chunk and hands the sum to all.
struct ThroughSwitch {
  static constexpr dsl::Spec spec = specOf("through_switch", false);
  static constexpr void define(dsl::Builder& p) {
    auto const through = p.switchChannel({0, 1, 2, 3}, dsl::BufferKind::output);
    for (int rank = 0; rank < ranks; ++rank) {
      auto channels = channelsOf(p, rank);
      auto const port = through.atRank(rank);
      meet(channels, true);
      port.reduce(p.rank(rank).output()[rank], rank, 1);
      port.broadcast(rank, p.rank(rank).output()[rank]);
      meet(channels, false);
    }
  }
};

}  // namespace gallery
