// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Wrong programs of ports, switches and relaxed steps, each refused with the sentence that says what is wrong, beside
// the right ones that they differ from in one thing.
#include "dsl/channel_programs.hpp"
#include "dsl/refusals.hpp"
#include "mscclpp/dsl/passes/promote.hpp"

using namespace dsl_test;

namespace {

constexpr Spec send{.name = "send", .collective = dsl::sendReceive(2)};
constexpr Spec sendPackets{
    .name = "send_packets", .collective = dsl::sendReceive(2), .protocol = Protocol::lowLatency, .doubleScratch = true};
constexpr Spec sendHalves{.name = "send_halves", .collective = dsl::sendReceive(2, 2)};
constexpr Spec gather{.name = "gather", .collective = dsl::allGather(2), .inPlace = true};
constexpr Spec reduce{.name = "reduce", .collective = dsl::allReduce(2), .inPlace = true};
constexpr Spec reducePackets{
    .name = "reduce_packets", .collective = dsl::allReduce(2), .inPlace = true, .protocol = Protocol::lowLatency};

// Both ranks, with a port to the other.
auto bothPorts(std::function<void(Builder& p, int rank, int peer, dsl::PortChannelRef port)> const& side) {
  return [=](Builder& p) {
    for (int rank = 0; rank < 2; ++rank) side(p, rank, 1 - rank, p.portChannel(1 - rank, rank));
  };
}
void meetThere(dsl::PortChannelRef const& port) {
  port.signal();
  port.wait();
}

}  // namespace

// ---- ports ----------------------------------------------------------------------------------------------------------

TEST_CASE("what a port moves is there when its signal is, and read when it is flushed") {
  CHECK(diagnosticOf(send, bothPorts([](Builder& p, int rank, int peer, dsl::PortChannelRef port) {
                       meetThere(port);
                       port.putWithSignalAndFlush(p.rank(peer).output()[0], p.rank(rank).input()[0]);
                       port.wait();
                     })) == "");
  // Relaxed or not.
  CHECK(diagnosticOf(send, bothPorts([](Builder& p, int rank, int peer, dsl::PortChannelRef port) {
                       meetThere(port);
                       port.put(p.rank(peer).output()[0], p.rank(rank).input()[0]);
                       port.signal({.relaxed = true});
                       port.flush();
                       port.wait();
                     })) == "");
  checkRefused(send, bothPorts([](Builder& p, int rank, int peer, dsl::PortChannelRef port) {
                 meetThere(port);
                 port.putWithSignal(p.rank(peer).output()[0], p.rank(rank).input()[0]);
                 port.wait();
               }),
               "the port moves data later: flush its channel between them");
  // The flush of another channel tells nothing.
  checkRefused(send, bothPorts([](Builder& p, int rank, int peer, dsl::PortChannelRef port) {
                 auto other = p.portChannel(peer, rank);
                 meetThere(port);
                 port.putWithSignal(p.rank(peer).output()[0], p.rank(rank).input()[0]);
                 other.flush();
                 port.wait();
               }),
               "the port moves data later: flush its channel between them");
  // Nor does the signal of another channel, or one that comes first.
  checkRefused(send, bothPorts([](Builder& p, int rank, int peer, dsl::PortChannelRef port) {
                 auto other = p.portChannel(peer, rank);
                 meetThere(port);
                 port.put(p.rank(peer).output()[0], p.rank(rank).input()[0]);
                 other.signal();
                 port.flush();
                 other.wait();
               }),
               "ends its call without having heard of it");
  checkRefused(send, bothPorts([](Builder& p, int rank, int peer, dsl::PortChannelRef port) {
                 meetThere(port);
                 port.signal();
                 port.put(p.rank(peer).output()[0], p.rank(rank).input()[0]);
                 port.flush();
                 port.wait();
               }),
               "ends its call without having heard of it");
  checkRefused(send, bothPorts([](Builder& p, int rank, int peer, dsl::PortChannelRef port) {
                 auto memory = p.memoryChannel(peer, rank);
                 meetThere(port);
                 port.put(p.rank(peer).output()[0], p.rank(rank).input()[0]);
                 memory.signal();
                 memory.wait();
                 port.flush();
               }),
               "ends its call without having heard of it");
  checkRefused(send, bothPorts([](Builder& p, int rank, int peer, dsl::PortChannelRef port) {
                 port.putWithSignalAndFlush(p.rank(peer).output()[0], p.rank(rank).input()[0]);
                 port.wait();
               }),
               "must first tell that its call has begun");
}

TEST_CASE("a port reads its source until it is flushed, and writes in no order") {
  auto const through = [](bool flushes) {
    return bothPorts([=](Builder& p, int rank, int peer, dsl::PortChannelRef port) {
      auto const self = p.rank(rank);
      auto const scratch = self.scratch(1);
      meetThere(port);
      for (int half = 0; half < 2; ++half) {
        self.copy(scratch[0], self.input()[half]);
        port.putWithSignal(p.rank(peer).output()[half], scratch[0]);
        if (flushes) port.flush();
      }
      port.flush();
      port.wait();
      port.wait();
    });
  };
  CHECK(diagnosticOf(sendHalves, through(true)) == "");
  checkRefused(sendHalves, through(false), "the port moves data later: flush its channel between them");
  auto const twice = [](bool flushes) {
    return bothPorts([=](Builder& p, int rank, int peer, dsl::PortChannelRef port) {
      meetThere(port);
      port.put(p.rank(peer).output()[0], p.rank(rank).input()[1]);
      if (flushes) port.flush();
      port.put(p.rank(peer).output()(0, 2), p.rank(rank).input()(0, 2));
      port.signal();
      port.flush();
      port.wait();
    });
  };
  CHECK(diagnosticOf(sendHalves, twice(true)) == "");
  checkRefused(sendHalves, twice(false), "the port moves data later: flush its channel between them");
  // In turns of a loop.
  auto const turns = [](bool flushes) {
    return bothPorts([=](Builder& p, int rank, int peer, dsl::PortChannelRef port) {
      auto const self = p.rank(rank);
      auto const scratch = self.scratch(1);
      auto ready = p.memoryChannel(peer, rank);
      p.loop(256, 1, [&] {
        ready.signal();
        ready.wait();
        self.copy(scratch[0], self.input()[0]);
        port.putWithSignal(p.rank(peer).output()[0], scratch[0]);
        if (flushes) port.flush();
        port.wait();
      });
      port.flush();
    });
  };
  CHECK(diagnosticOf(send, turns(true)) == "");
  CHECK(diagnosticOf(send, turns(false)) == "");  // each turn has its own part of the chunk
}

TEST_CASE("two blocks ask one port in no order but their own") {
  enum Between { nothing, semaphore, barrier };
  auto const twoBlocks = [](Between between, bool bothFlush) {
    return bothPorts([=](Builder& p, int rank, int peer, dsl::PortChannelRef port) {
      auto begun = p.semaphore(rank), asked = p.semaphore(rank);
      port.signal({.tb = 1});
      port.wait({.tb = 1});
      begun.release({.tb = 1});
      begun.acquire({.tb = 0});
      port.put(p.rank(peer).output()[0], p.rank(rank).input()[0], {.tb = 0});
      if (between == semaphore) asked.release({.tb = 0}), asked.acquire({.tb = 1});
      if (between == barrier) p.rank(rank).barrier({0, 1});
      port.signal({.tb = 1});
      port.flush({.tb = bothFlush ? 0 : 1});
      port.wait({.tb = 1});
      if (between != semaphore) asked.release({.tb = 0}), asked.acquire({.tb = 1});
    });
  };
  CHECK(diagnosticOf(send, twoBlocks(semaphore, false)) == "");
  CHECK(diagnosticOf(send, twoBlocks(barrier, false)) == "");
  checkRefused(send, twoBlocks(nothing, false), "nothing writes input[0] of rank 0 there");
  checkRefused(send, twoBlocks(nothing, true), "nothing writes input[0] of rank 0 there");
}

TEST_CASE("a group of blocks asks for a part each, and who signals must have heard of all") {
  auto const group = [](bool meets) {
    return bothPorts([=](Builder& p, int rank, int peer, dsl::PortChannelRef port) {
      meetThere(port);
      p.rank(rank).barrier({0, 1});
      port.put(p.rank(peer).output()[0], p.rank(rank).input()[0], {.group = {0, 2}});
      if (meets) p.rank(rank).barrier({0, 1});
      port.signal();
      port.flush();
      port.wait();
    });
  };
  CHECK(diagnosticOf(send, group(true)) == "");
  // Any list of blocks, each once.
  auto const listed = [](std::vector<int> blocks) {
    return [=](Builder& p) {
      forBoth(p, [&](int rank, int peer, dsl::MemoryChannelRef channel) {
        channel.signal({.relaxed = true});
        channel.wait({.relaxed = true});
        p.rank(rank).barrier({0, 1, 2});
        channel.put(p.rank(peer).output()[0], p.rank(rank).input()[0], {.group = {.blocks = blocks}});
        p.rank(rank).barrier({0, 1, 2});
        channel.signal();
        channel.wait();
      });
    };
  };
  CHECK(diagnosticOf(send, listed({2, 0})) == "");
  checkRefused(send, listed({2, 0, 2}), "a group of blocks names block 2 twice");
  checkRefused(send, group(false), "rank 1 ends its call without having heard of it");
}

TEST_CASE("packets that a port moves are read when they have come, and not before") {
  auto const packed = [](PackedTold told) { return [=](Builder& p) { packForPorts(p, told); }; };
  constexpr Spec oneScratch{.name = "one_scratch", .collective = dsl::sendReceive(2), .protocol = Protocol::lowLatency};
  CHECK(diagnosticOf(oneScratch, packed(PackedTold::flushed)) == "");
  CHECK(diagnosticOf(oneScratch, packed(PackedTold::answered)) == "");
  checkRefused(oneScratch, packed(PackedTold::nothing), "writes packets in scratch[1] of rank 0");
  checkRefused(oneScratch, packed(PackedTold::nothing), "the port moves data later: flush its channel between them");
  // With two halves in turn the next call's meeting comes between.
  CHECK(diagnosticOf(sendPackets, packed(PackedTold::nothing)) == "");
}

TEST_CASE("a port waits for the packets that it moves") {
  auto const forward = [](bool writes, bool asPackets) {
    return [=](Builder& p) {
      dsl::BufferRef const scratch[] = {p.rank(0).scratch(2), p.rank(1).scratch(2)};
      for (int rank = 0; rank < 2; ++rank) {
        auto const self = p.rank(rank);
        auto port = p.portChannel(1 - rank, rank);
        if (writes && asPackets) self.copyPackets(scratch[rank][1], self.input()[0]);
        if (writes && !asPackets) self.copy(scratch[rank][1], self.input()[0]);
        port.putPackets(scratch[1 - rank][0], scratch[rank][1], {.dataSync = dsl::none});
        self.unpackPackets(self.output()[0], scratch[rank][0]);
        port.flush();
      }
    };
  };
  CHECK(diagnosticOf(sendPackets, forward(true, true)) == "");
  checkRefused(sendPackets, forward(false, false), "waits for packets in scratch[1] of rank 0, which never comes");
  checkRefused(sendPackets, forward(true, false), "waits for packets in scratch[1] of rank 0, which never comes");
  // Those of others, handed on.
  constexpr Spec three{
      .name = "three", .collective = dsl::custom(3, 1, 1), .protocol = Protocol::lowLatency, .doubleScratch = true};
  auto const relay = [](bool answers) {
    return [=](Builder& p) {
      dsl::BufferRef const scratch[] = {p.rank(0).scratch(1), p.rank(1).scratch(1), p.rank(2).scratch(1)};
      auto first = p.memoryChannel(1, 0);
      auto next = p.portChannel(2, 1);
      auto back = p.memoryChannel(0, 2);
      auto there = p.memoryChannel(2, 0);
      p.expect(p.rank(2).output()[0], {p.rank(0).input()[0]});
      first.putPackets(scratch[1][0], p.rank(0).input()[0]);
      next.putPackets(scratch[2][0], scratch[1][0]);
      p.rank(2).unpackPackets(p.rank(2).output()[0], scratch[2][0]);
      if (answers) back.signal(), there.wait();
    };
  };
  CHECK(diagnosticOf(three, relay(true)) == "");
  checkRefused(three, relay(false), "of its next call before");
}

TEST_CASE("each packet that a port moves tells of itself, call by call") {
  // Rank 0 sends so many chunks, a put each, and flushes behind so many of them; rank 1 takes the last ones, and
  // answers.
  auto const sendChunks = [](int chunks, int taken, int flushed = 0) {
    return [=](Builder& p) {
      auto const packed = p.rank(0).scratch(chunks), there = p.rank(1).scratch(chunks);
      auto port = p.portChannel(1, 0);
      p.portChannel(0, 1);
      auto answer = p.memoryChannel(0, 1);
      auto answered = p.memoryChannel(1, 0);
      for (int chunk = 0; chunk < chunks; ++chunk) p.rank(0).copyPackets(packed[chunk], p.rank(0).input()[chunk]);
      for (int chunk = 0; chunk < chunks; ++chunk) {
        port.putPackets(there[chunk], packed[chunk]);
        if (chunk + 1 == flushed) port.flush();
      }
      for (int chunk = chunks - taken; chunk < chunks; ++chunk) {
        p.expect(p.rank(1).output()[chunk], {p.rank(0).input()[chunk]});
        p.rank(1).unpackPackets(p.rank(1).output()[chunk], there[chunk]);
      }
      answer.signal();
      answered.wait();
    };
  };
  auto const spec = [](int chunks) {
    return Spec{.name = "chunks", .collective = dsl::custom(2, chunks, chunks), .protocol = Protocol::lowLatency};
  };
  CHECK(diagnosticOf(spec(2), sendChunks(2, 2)) == "");
  checkRefused(spec(2), sendChunks(2, 1), "writes packets in scratch[0] of rank 0");
  CHECK(diagnosticOf(spec(40), sendChunks(40, 40)) == "");
  checkRefused(spec(40), sendChunks(40, 39), "writes packets in scratch[0] of rank 0");
  // A flush tells of those before it, also where they are more than are told apart.
  CHECK(diagnosticOf(spec(2), sendChunks(2, 1, 1)) == "");
  CHECK(diagnosticOf(spec(2), sendChunks(2, 0, 2)) == "");
  checkRefused(spec(2), sendChunks(2, 0, 1), "writes packets in scratch[1] of rank 0");
  checkRefused(spec(3), sendChunks(3, 1, 1), "writes packets in scratch[1] of rank 0");
  CHECK(diagnosticOf(spec(70), sendChunks(70, 0, 70)) == "");
  checkRefused(spec(70), sendChunks(70, 0, 69), "writes packets in scratch[69] of rank 0");
}

TEST_CASE("the flush of a block that has not heard of another's asking tells nothing of its packets") {
  auto const flushedBy = [](int block) {
    return [=](Builder& p) {
      auto const packed = p.rank(0).scratch(1), there = p.rank(1).scratch(1);
      auto port = p.portChannel(1, 0);
      p.portChannel(0, 1);
      auto flushed = p.semaphore(0);
      p.rank(0).copyPackets(packed[0], p.rank(0).input()[0], {.tb = 0});
      port.putPackets(there[0], packed[0], {.tb = 0});
      port.flush({.tb = block});
      flushed.release({.tb = block});
      flushed.acquire({.tb = 0});
      auto answer = p.memoryChannel(0, 1);
      auto answered = p.memoryChannel(1, 0);
      answer.signal();
      answered.wait({.tb = 0});
    };
  };
  constexpr Spec spec{.name = "flushed", .collective = dsl::custom(2, 1, 1), .protocol = Protocol::lowLatency};
  CHECK(diagnosticOf(spec, flushedBy(0)) == "");
  checkRefused(spec, flushedBy(1), "writes packets in scratch[0] of rank 0");
}

TEST_CASE("who waits may have the port move at once what it waited for") {
  CHECK(diagnosticOf({.name = "relay", .collective = dsl::custom(3, 1, 1)}, [](Builder& p) {
          auto const scratch = p.rank(1).scratch(1);
          auto to = p.memoryChannel(1, 0), from = p.memoryChannel(0, 1);
          auto on = p.portChannel(2, 1), end = p.portChannel(1, 2);
          p.expect(p.rank(2).output()[0], {p.rank(0).input()[0]});
          from.signal();
          to.wait();
          to.put(scratch[0], p.rank(0).input()[0]);
          to.signal();
          from.wait();
          end.signal();
          on.wait();
          on.putWithSignalAndFlush(p.rank(2).output()[0], scratch[0], {.dataSync = dsl::none});
          end.wait();
        }) == "");
}

TEST_CASE("what ports and packets cannot be") {
  checkRefused(sendPackets, bothPorts([](Builder& p, int rank, int peer, dsl::PortChannelRef) {
                 auto const from = p.rank(rank).scratch(1);
                 auto to = p.rank(peer).input()[0];
                 p.add(rank, {},
                       {.kind = dsl::StepKind::move,
                        .link = dsl::ChannelKind::port,
                        .sources = {dsl::asPackets(from[0])},
                        .targets = {to},
                        .objects = {0}});
               }),
               "a port moves packets as packets and plain data as such");
  // One place has one packet in a call.
  checkRefused(
      sendPackets,
      [](Builder& p) {
        dsl::BufferRef const scratch[] = {p.rank(0).scratch(2), p.rank(1).scratch(2)};
        for (int rank = 0; rank < 2; ++rank) {
          auto const self = p.rank(rank);
          auto port = p.portChannel(1 - rank, rank);
          self.copyPackets(scratch[rank][1], self.input()[0]);
          port.putPackets(scratch[1 - rank][1], scratch[rank][1]);
          self.unpackPackets(self.output()[0], scratch[rank][1]);
          port.flush();
        }
      },
      "ends with input[0] of rank 0, which does not belong there");
  checkRefused(
      sendPackets,
      [](Builder& p) {
        dsl::BufferRef const scratch[] = {p.rank(0).scratch(2), p.rank(1).scratch(2)};
        for (int rank = 0; rank < 2; ++rank) {
          auto const self = p.rank(rank);
          auto port = p.portChannel(1 - rank, rank);
          self.copyPackets(scratch[rank][1], self.input()[0]);
          port.putPackets(scratch[1 - rank][0], scratch[rank][1]);
          port.signal();
          port.flush();
          port.wait();
          self.copy(self.output()[0], scratch[rank][0]);
        }
      },
      "which rank 0 block 0 step 1 (readPutPackets) writes, and nothing orders the two");
  checkRefused(
      send,
      [](Builder& p) {
        auto port = p.portChannel(1, 0);
        p.portChannel(0, 1);
        port.put(p.rank(0).output()[0], p.rank(1).input()[0]);
      },
      "it has one source of the own rank");
  checkRefused(
      reduce,
      [](Builder& p) {
        p.portChannel(1, 0);
        p.portChannel(0, 1);
        p.add(0, {},
              {.kind = dsl::StepKind::move,
               .link = dsl::ChannelKind::port,
               .sources = {p.rank(0).input()[0], p.rank(0).input()[1]},
               .targets = {p.rank(1).output()[0]},
               .objects = {0}});
      },
      "it has one source of the own rank");
  checkRefused(
      send,
      [](Builder& p) {
        auto channel = p.memoryChannel(1, 0);
        p.memoryChannel(0, 1);
        p.add(0, {}, {.kind = dsl::StepKind::flush, .objects = {0}});
        channel.put(p.rank(1).output()[0], p.rank(0).input()[0]);
      },
      "flushes channel 0, which is no port channel");
  checkRefused(
      send,
      [](Builder& p) {
        p.memoryChannel(1, 0);
        p.memoryChannel(0, 1);
        p.add(0, {}, {.kind = dsl::StepKind::signal, .link = dsl::ChannelKind::port, .objects = {0}});
      },
      "uses channel 0 as one of another kind");
  checkRefused(
      Spec{.name = "three", .collective = dsl::sendReceive(3)},
      [](Builder& p) {
        auto port = p.portChannel(1, 0);
        p.portChannel(2, 0);
        port.put(p.rank(2).output()[0], p.rank(0).input()[0]);
      },
      "writes output[0] of rank 2 over a port channel to rank 1");
  checkRefused(
      send,
      [](Builder& p) {
        auto port = p.portChannel(1, 0);
        port.signal();
        port.put(p.rank(1).output()[0], p.rank(0).input()[0]);
      },
      "for which rank 1 has none back: make one there");
  checkRefused(
      send, [](Builder& p) { p.portChannel(0, 0); }, "a port channel of rank 0 to itself");
}

// ---- what packets tell, piece by piece ------------------------------------------------------------------------------

TEST_CASE("a packet of one chunk tells nothing of another chunk of its step") {
  // Rank 0 sends two chunks; rank 1 hands both on to rank 2, which answers rank 0 once it has the one, or both.
  constexpr Spec spec{.name = "relay", .collective = dsl::custom(3, 2, 2), .protocol = Protocol::lowLatency};
  auto const relay = [](int taken, bool byPort) {
    return [=](Builder& p) {
      dsl::BufferRef const scratch[] = {p.rank(0).scratch(2), p.rank(1).scratch(2), p.rank(2).scratch(2)};
      auto first = p.memoryChannel(1, 0);
      auto back = p.memoryChannel(0, 2);
      auto there = p.memoryChannel(2, 0);
      for (int chunk = 0; chunk < taken; ++chunk) p.expect(p.rank(2).output()[chunk], {p.rank(0).input()[chunk]});
      first.putPackets(scratch[1](0, 2), p.rank(0).input()(0, 2));
      if (byPort) {
        p.portChannel(2, 1).putPackets(scratch[2](0, 2), scratch[1](0, 2));
      } else {
        p.memoryChannel(2, 1).readPutPackets(scratch[2](0, 2), scratch[1](0, 2));
      }
      p.rank(2).unpackPackets(p.rank(2).output()(0, taken), scratch[2](0, taken));
      back.signal();
      there.wait();
    };
  };
  CHECK(diagnosticOf(spec, relay(2, false)) == "");
  checkRefused(spec, relay(1, false), "writes packets in scratch[1] of rank 1");
  CHECK(diagnosticOf(spec, relay(2, true)) == "");
  checkRefused(spec, relay(1, true), "writes packets in scratch[1] of rank 1");
}

TEST_CASE("a chunk is overwritten when its own packet has come, not when another chunk's has") {
  constexpr Spec spec{.name = "bounce",
                      .collective = dsl::custom(2, 2, 2),
                      .inPlace = true,
                      .protocol = Protocol::lowLatency,
                      .doubleScratch = true};
  // Rank 0 sends two chunks as packets, crossed or not; rank 1 writes back into both in one step as they come.
  auto const inTurn = [](bool crossed) {
    return [=](Builder& p) {
      auto const scratch = p.rank(1).scratch(2);
      auto to = p.memoryChannel(1, 0);
      auto back = p.memoryChannel(0, 1);
      p.expect(p.rank(0).output()[0], {p.rank(0).input()[crossed ? 1 : 0]});
      p.expect(p.rank(0).output()[1], {p.rank(0).input()[crossed ? 0 : 1]});
      to.signal({.relaxed = true});
      back.wait({.relaxed = true});
      to.putPackets(scratch[0], p.rank(0).input()[crossed ? 1 : 0]);
      to.putPackets(scratch[1], p.rank(0).input()[crossed ? 0 : 1]);
      back.put(p.rank(0).output()(0, 2), dsl::asPackets(scratch(0, 2)));
      back.signal();
      to.wait();
    };
  };
  CHECK(diagnosticOf(spec, inTurn(false)) == "");
  checkRefused(spec, inTurn(true), "and nothing orders the two");
}

// ---- switches -------------------------------------------------------------------------------------------------------

namespace {

// As the seeds print it: all meet, each has the switch reduce its part and write it everywhere, all meet.
struct SwitchParts {
  bool begins = true, ends = true;  // meetings
  bool relaxedEnd = false;
  bool crossed = false;  // the one part is reduced, the other written
  int ranks = 2;         // of the switch
  dsl::ReduceKind second = dsl::ReduceKind::asCalled;
};
auto bySwitch(SwitchParts parts) {
  return [=](Builder& p) {
    std::vector<int> all;
    for (int rank = 0; rank < parts.ranks; ++rank) all.push_back(rank);
    auto nvls = p.switchChannel(all, dsl::BufferKind::input);
    forBoth(p, [&](int rank, int peer, dsl::MemoryChannelRef channel) {
      auto const self = p.rank(rank);
      if (parts.begins) channel.signal({.relaxed = true});
      if (parts.begins) channel.wait({.relaxed = true});
      if (rank < parts.ranks) {
        nvls.atRank(rank).reduce(self.input()[rank], rank, 1);
        nvls.atRank(rank).broadcast(parts.crossed ? peer : rank, self.input()[parts.crossed ? peer : rank]);
      }
      if (parts.ends) channel.signal({.relaxed = parts.relaxedEnd});
      if (parts.ends) channel.wait({.relaxed = parts.relaxedEnd});
    });
  };
}

}  // namespace

TEST_CASE("switches") {
  CHECK(diagnosticOf(reduce, bySwitch({})) == "");
  checkRefused(reduce, bySwitch({.begins = false}), "must first tell that its call has begun");
  checkRefused(reduce, bySwitch({.ends = false}), "output[0] of rank 1 ends without input[0] of rank 0");
  checkRefused(reduce, bySwitch({.relaxedEnd = true}), "the relaxed signal and wait between them hand over no data");
  checkRefused(reduce, bySwitch({.crossed = true}), "and nothing orders the two");
  checkRefused(reduce, bySwitch({.ranks = 1}), "ends");
  // Both write one chunk everywhere.
  checkRefused(
      reduce,
      [](Builder& p) {
        auto nvls = p.switchChannel({0, 1}, dsl::BufferKind::input);
        forBoth(p, [&](int rank, int, dsl::MemoryChannelRef channel) {
          channel.signal({.relaxed = true});
          channel.wait({.relaxed = true});
          nvls.atRank(rank).broadcast(0, p.rank(rank).input()[1]);
          channel.signal();
          channel.wait();
        });
      },
      "and nothing orders the two");
  // What the switch reads was written by each rank before they met, or not.
  auto const overScratch = [](bool meets) {
    return [=](Builder& p) {
      dsl::BufferRef const scratch[] = {p.rank(0).scratch(2), p.rank(1).scratch(2)};
      auto nvls = p.switchChannel({0, 1}, dsl::BufferKind::scratch);
      forBoth(p, [&](int rank, int, dsl::MemoryChannelRef channel) {
        auto const self = p.rank(rank);
        self.copy(scratch[rank](0, 2), self.input()(0, 2));
        if (meets) channel.signal();
        if (meets) channel.wait();
        nvls.atRank(rank).reduce(self.output()[0], 0, 1);
        nvls.atRank(rank).reduce(self.output()[1], 1, 1);
        channel.signal();
        channel.wait();
      });
    };
  };
  CHECK(diagnosticOf(reduce, overScratch(true)) == "");
  checkRefused(reduce, overScratch(false), "where nothing has been written before it");
  checkRefused(
      reduce,
      [](Builder& p) {
        auto nvls = p.switchChannel({0}, dsl::BufferKind::input);
        nvls.atRank(1).reduce(p.rank(1).input()[0], 0, 1);
      },
      "a switch channel at rank 1, which is not one of its ranks");
  checkRefused(
      reduce,
      [](Builder& p) {
        auto nvls = p.switchChannel({0, 1}, dsl::BufferKind::input);
        nvls.atRank(0).reduce(p.rank(0).input()[0], 2, 1);
      },
      "input[2] of rank 0 is not inside the buffer");
  checkRefused(
      reducePackets,
      [](Builder& p) {
        auto nvls = p.switchChannel({0, 1}, dsl::BufferKind::output);
        nvls.atRank(0).broadcastPackets(0, p.rank(0).scratch(1)[0]);
      },
      "packets live in scratch");
  checkRefused(
      reduce,
      [](Builder& p) {
        p.switchChannel({0, 1}, dsl::BufferKind::output);
        p.add(0, {}, {.kind = dsl::StepKind::signal, .link = dsl::ChannelKind::switched, .objects = {0}});
      },
      "a switch channel, which has no signals");
}

TEST_CASE("packets that a switch takes and writes to everybody are the same ones where they lay") {
  Spec const spec{
      .name = "again", .collective = dsl::custom(2, 1, 1), .protocol = Protocol::lowLatency, .doubleScratch = true};
  CHECK(diagnosticOf(spec, [](Builder& p) {
          dsl::BufferRef const scratch[] = {p.rank(0).scratch(3), p.rank(1).scratch(3)};
          auto nvls = p.switchChannel({0, 1}, dsl::BufferKind::scratch);
          p.rank(0).copyPackets(scratch[0][0], p.rank(0).input()[0]);
          // Another block may read them before or after they are written once more.
          p.rank(0).unpackPackets(p.rank(0).output()[0], scratch[0][0], {.tb = 1});
          nvls.atRank(0).broadcastPackets(0, scratch[0][0], {.tb = 2});
          p.rank(1).unpackPackets(p.rank(1).output()[0], scratch[1][0]);
          for (int rank = 0; rank < 2; ++rank) p.expect(p.rank(rank).output()[0], {p.rank(0).input()[0]});
          // Rank 0 hears that they were read.
          p.memoryChannel(0, 1).putPackets(scratch[0][1], p.rank(1).output()[0]);
          p.rank(0).unpackPackets(scratch[0][2], scratch[0][1]);
        }) == "");
}

TEST_CASE("more packets in one step's time than are told apart") {
  constexpr int chunks = 70;
  Spec const spec{.name = "many",
                  .collective = dsl::custom(2, chunks, chunks),
                  .protocol = Protocol::lowLatency,
                  .doubleScratch = true};
  CHECK(diagnosticOf(spec, [](Builder& p) {
          dsl::BufferRef const scratch[] = {p.rank(0).scratch(chunks), p.rank(1).scratch(chunks)};
          forBoth(p, [&](int rank, int peer, dsl::MemoryChannelRef channel) {
            for (int i = 0; i < chunks; ++i) channel.putPackets(scratch[peer][i], p.rank(rank).input()[i]);
            for (int i = 0; i < chunks; ++i) {
              auto const output = p.rank(rank).output()[chunks - 1 - i];
              p.rank(rank).unpackPackets(output, scratch[rank][i]);
              p.expect(output, {p.rank(peer).input()[i]});
            }
          });
        }) == "");
}

TEST_CASE("plain data copied onto themselves are written all the same") {
  checkRefused(
      {.name = "itself", .collective = dsl::custom(1, 1, 1)},
      [](Builder& p) {
        auto const self = p.rank(0);
        auto const scratch = self.scratch(1);
        auto filled = p.semaphore(0);
        p.expect(self.output()[0], {self.input()[0]});
        self.copy(scratch[0], self.input()[0], {.tb = 0});
        filled.release({.tb = 0});
        self.copy(self.output()[0], scratch[0], {.tb = 0});
        filled.acquire({.tb = 1});
        self.copy(scratch[0], scratch[0], {.tb = 1});
      },
      "and nothing orders the two");
}

TEST_CASE("who waits for packets that never come is told so, not of those that have come") {
  Spec const spec{
      .name = "never", .collective = dsl::custom(3, 1, 1), .protocol = Protocol::lowLatency, .doubleScratch = true};
  auto const diagnostic = diagnosticOf(spec, [](Builder& p) {
    auto const scratch = p.rank(0).scratch(2), answer = p.rank(1).scratch(1);
    p.memoryChannel(0, 1).putPackets(scratch[0], p.rank(1).input()[0]);
    p.rank(0).reducePackets(p.rank(0).output()[0], p.rank(0).input()[0], {scratch[0], scratch[1]});
    p.memoryChannel(1, 0).putPackets(answer[0], p.rank(0).output()[0]);
    p.rank(1).unpackPackets(p.rank(1).output()[0], answer[0]);
  });
  CHECK(diagnostic.find("waits") != std::string::npos);
  CHECK_MESSAGE(diagnostic.find("next call") == std::string::npos, diagnostic);
}

// ---- relaxed steps --------------------------------------------------------------------------------------------------

namespace {

std::string proved(Spec const& spec, std::function<void(Builder&)> const& define, int& promoted) {
  Builder builder(spec);
  define(builder);
  auto program = dsl::finish(builder);
  auto const verdict = dsl::prove(program);
  promoted = verdict.promoted;
  return verdict.diagnostic.str();
}

// An all-gather that meets relaxed at its begin, and as told at its end.
auto gatherEnding(bool relaxedSignal, bool relaxedWait) {
  return [=](Builder& p) {
    forBoth(p, [&](int rank, int peer, dsl::MemoryChannelRef channel) {
      channel.signal({.relaxed = true});
      channel.wait({.relaxed = true});
      channel.put(p.rank(peer).output()[rank], p.rank(rank).output()[rank]);
      channel.signal({.relaxed = relaxedSignal});
      channel.wait({.relaxed = relaxedWait});
    });
  };
}

// Rank 0's input goes to rank 2's output; word of it goes by way of rank 1.
auto wordByWay(bool relaxedFirst, bool relaxedSecond) {
  return [=](Builder& p) {
    p.expect(p.rank(2).output()[0], {p.rank(0).input()[0]});
    auto direct = p.memoryChannel(2, 0);
    auto begun = p.memoryChannel(0, 2);
    auto first = p.memoryChannel(1, 0);
    auto firstEnd = p.memoryChannel(0, 1);
    auto second = p.memoryChannel(2, 1);
    auto secondEnd = p.memoryChannel(1, 2);
    begun.signal({.relaxed = true});
    direct.wait({.relaxed = true});
    direct.put(p.rank(2).output()[0], p.rank(0).input()[0]);
    first.signal({.relaxed = relaxedFirst});
    firstEnd.wait({.relaxed = relaxedFirst});
    second.signal({.relaxed = relaxedSecond});
    secondEnd.wait({.relaxed = relaxedSecond});
  };
}

}  // namespace

TEST_CASE("relaxed steps are made ordered ones where data are handed over, and only there") {
  int promoted = 0;
  CHECK(proved(gather, gatherEnding(false, false), promoted) == "");
  CHECK(promoted == 0);
  CHECK(proved(gather, gatherEnding(true, true), promoted) == "");
  CHECK(promoted == 4);
  CHECK(proved(gather, gatherEnding(true, false), promoted) == "");
  CHECK(promoted == 2);
  CHECK(proved(gather, gatherEnding(false, true), promoted) == "");
  CHECK(promoted == 2);
  CHECK(proved(reduce, bySwitch({.relaxedEnd = true}), promoted) == "");
  CHECK(promoted == 4);
  constexpr Spec three{.name = "three", .collective = dsl::custom(3, 1, 1)};
  CHECK(proved(three, wordByWay(true, true), promoted) == "");
  CHECK(promoted == 4);
  CHECK(proved(three, wordByWay(false, true), promoted) == "");
  CHECK(promoted == 2);
  CHECK(proved(three, wordByWay(true, false), promoted) == "");
  CHECK(promoted == 2);
  // By another block of the rank.
  CHECK(proved(
            gather,
            [](Builder& p) {
              forBoth(p, [&](int rank, int peer, dsl::MemoryChannelRef channel) {
                auto told = p.semaphore(rank);
                auto const scratch = p.rank(rank).scratch(1);
                channel.signal({.relaxed = true});
                channel.wait({.relaxed = true});
                channel.put(p.rank(peer).output()[rank], p.rank(rank).output()[rank]);
                channel.signal({.relaxed = true});
                channel.wait({.relaxed = true});
                told.release({.tb = 0});
                told.acquire({.tb = 1});
                p.rank(rank).copy(scratch[0], p.rank(rank).output()[peer], {.tb = 1});
              });
            },
            promoted) == "");
  CHECK(promoted == 4);
}

TEST_CASE("of the blocks that were told, the one that reads has its relaxed steps made ordered ones") {
  // Rank 1's blocks hear of rank 0's packets in turn, block 1 last; it alone reads what was put.
  auto const told = [](Builder& p) {
    auto const scratch = p.rank(1).scratch(1);
    p.expect(p.rank(1).output()[0], {p.rank(0).input()[0]});
    auto to = p.memoryChannel(1, 0), of = p.memoryChannel(0, 1);
    auto toOther = p.memoryChannel(1, 0), ofOther = p.memoryChannel(0, 1);
    of.signal({.tb = 0, .relaxed = true});
    to.wait({.tb = 0, .relaxed = true});
    to.put(scratch[0], p.rank(0).input()[0], {.tb = 0});
    to.signal({.tb = 0, .relaxed = true});
    of.wait({.tb = 0, .relaxed = true});
    toOther.signal({.tb = 0, .relaxed = true});
    ofOther.wait({.tb = 1, .relaxed = true});
    p.rank(1).copy(p.rank(1).output()[0], scratch[0], {.tb = 1});
    // The next call comes after the copy.
    ofOther.signal({.tb = 1, .relaxed = true});
    toOther.wait({.tb = 0, .relaxed = true});
  };
  int promoted = 0;
  CHECK(proved({.name = "told", .collective = dsl::custom(2, 1, 1)}, told, promoted) == "");
  CHECK(promoted == 2);

  // Rank 1 hears twice, relaxed and then not, before it tells rank 2: its own first hearing hands over nothing.
  constexpr Spec three{.name = "three", .collective = dsl::custom(3, 1, 1)};
  auto const twice = [](Builder& p) {
    p.expect(p.rank(2).output()[0], {p.rank(0).input()[0]});
    auto direct = p.memoryChannel(2, 0), begun = p.memoryChannel(0, 2);
    auto relaxed = p.memoryChannel(1, 0), relaxedEnd = p.memoryChannel(0, 1);
    auto ordered = p.memoryChannel(1, 0), orderedEnd = p.memoryChannel(0, 1);
    auto last = p.memoryChannel(2, 1), lastEnd = p.memoryChannel(1, 2);
    begun.signal({.relaxed = true});
    direct.wait({.relaxed = true});
    direct.put(p.rank(2).output()[0], p.rank(0).input()[0]);
    relaxed.signal({.relaxed = true});
    relaxedEnd.wait({.relaxed = true});
    ordered.signal();
    orderedEnd.wait();
    last.signal({.relaxed = true});
    lastEnd.wait({.relaxed = true});
  };
  CHECK(proved(three, twice, promoted) == "");
  CHECK(promoted == 2);
}

TEST_CASE("a strict program's relaxed steps stay so") {
  int promoted = 0;
  auto strict = gather;
  strict.strict = true;
  CHECK(proved(strict, gatherEnding(true, true), promoted).find("hand over no data") != std::string::npos);
  CHECK(promoted == 0);
  CHECK(proved(strict, gatherEnding(false, false), promoted) == "");
}

TEST_CASE("relaxed steps that are not what is wrong") {
  for (auto const& [signal, wait] : {std::pair(true, true), std::pair(true, false), std::pair(false, true)}) {
    checkRefused(gather, gatherEnding(signal, wait), "the relaxed signal and wait between them hand over no data");
  }
  constexpr Spec three{.name = "three", .collective = dsl::custom(3, 1, 1)};
  checkRefused(three, wordByWay(true, false), "the relaxed signal and wait between them hand over no data");
  checkRefused(three, wordByWay(false, true), "the relaxed signal and wait between them hand over no data");
  int promoted = 0;
  CHECK(proved(
            gather,
            [](Builder& p) {
              forBoth(p, [&](int rank, int peer, dsl::MemoryChannelRef channel) {
                channel.put(p.rank(peer).output()[rank], p.rank(rank).output()[rank]);
                channel.signal({.relaxed = true});
                channel.wait({.relaxed = true});
              });
            },
            promoted)
            .find("must first tell that its call has begun") != std::string::npos);
}
