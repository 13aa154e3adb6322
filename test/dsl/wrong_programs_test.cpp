// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Wrong programs, each refused with the sentence that says what is wrong: who, which step, what is missing.
#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "dsl/refusals.hpp"

using namespace dsl_test;

namespace {

std::vector<dsl::SemaphoreRef> semaphoresOf(Builder& p, int rank, int count) {
  std::vector<dsl::SemaphoreRef> all;
  for (int i = 0; i < count; ++i) all.push_back(p.semaphore(rank));
  return all;
}

constexpr Spec gather{.name = "gather", .collective = dsl::allGather(2), .inPlace = true};
constexpr Spec gatherCopy{.name = "gather_copy", .collective = dsl::allGather(2)};
constexpr Spec gatherByHand{
    .name = "gather_by_hand", .collective = dsl::allGather(2), .inPlace = true, .autoSync = false};
constexpr Spec reduce{.name = "reduce", .collective = dsl::allReduce(2), .inPlace = true};
constexpr Spec reducePackets{
    .name = "reduce_packets", .collective = dsl::allReduce(2), .inPlace = true, .protocol = Protocol::lowLatency};
constexpr Spec reduceDouble{.name = "reduce_double",
                            .collective = dsl::allReduce(2),
                            .inPlace = true,
                            .protocol = Protocol::lowLatency,
                            .doubleScratch = true};
constexpr Spec scatter{.name = "scatter", .collective = dsl::reduceScatter(2)};
constexpr Spec exchange{.name = "exchange", .collective = dsl::allToAll(2)};
constexpr Spec send{.name = "send", .collective = dsl::sendReceive(2)};
constexpr Spec local{.name = "local", .collective = dsl::custom(1, 2, 2)};

// Steps of a right all-gather of two ranks, any of which may be left out.
enum Part : unsigned { ready = 1, awaitReady = 2, put = 4, done = 8, awaitDone = 16, allParts = 31 };
auto gatherWith(unsigned parts, bool relaxedDone = false, bool relaxedAwait = false) {
  return [=](Builder& p) {
    forBoth(p, [&](int rank, int peer, dsl::MemoryChannelRef channel) {
      if (parts & ready) channel.signal({.relaxed = true});
      if (parts & awaitReady) channel.wait({.relaxed = true});
      if (parts & put) channel.put(p.rank(peer).output()[rank], p.rank(rank).output()[rank]);
      if (parts & done) channel.signal({.relaxed = relaxedDone});
      if (parts & awaitDone) channel.wait({.relaxed = relaxedAwait});
    });
  };
}

}  // namespace

TEST_CASE("the program that the wrong ones are made from is right") {
  CHECK(diagnosticOf(gather, gatherWith(allParts)) == "");
}

TEST_CASE("signals and waits") {
  checkRefused(gather, gatherWith(allParts & ~awaitReady),
               "rank 0 signals rank 1 over channel 0 2 times, rank 1 waits for it 1 time");
  checkRefused(gather, gatherWith(allParts & ~done),
               "rank 0 signals rank 1 over channel 0 1 time, rank 1 waits for it 2 times");
  checkRefused(gather, gatherWith(put | done | awaitDone), "must first tell that its call has begun: signal from it");
  checkRefused(gather, gatherWith(put), "must first tell that its call has begun");
  checkRefused(gather, gatherWith(ready | awaitReady | put),
               "output[0] of rank 1 ends as it began: nothing writes input[0] of rank 0 there");
  for (auto const& [signal, wait] : {std::pair(true, true), std::pair(true, false), std::pair(false, true)}) {
    checkRefused(gather, gatherWith(allParts, signal, wait),
                 "the relaxed signal and wait between them hand over no data");
  }
  checkRefused(gather, gatherWith(allParts & ~put),
               "output[1] of rank 0 ends as it began: nothing writes input[0] of rank 1 there");
  checkRefused(gather, gatherWith(0), "no rank has a step");
  // The wait comes first at both.
  checkRefused(
      gather,
      [](Builder& p) {
        forBoth(p, [&](int rank, int peer, dsl::MemoryChannelRef channel) {
          channel.wait({.relaxed = true});
          channel.signal({.relaxed = true});
          channel.put(p.rank(peer).output()[rank], p.rank(rank).output()[rank]);
          channel.signal();
          channel.wait();
        });
      },
      "none of them can go on");
  // Signalled before the put.
  checkRefused(
      gather,
      [](Builder& p) {
        forBoth(p, [&](int rank, int peer, dsl::MemoryChannelRef channel) {
          channel.signal({.relaxed = true});
          channel.wait({.relaxed = true});
          channel.signal();
          channel.put(p.rank(peer).output()[rank], p.rank(rank).output()[rank]);
          channel.wait();
        });
      },
      "ends its call without having heard of it");
  // Two blocks signal over one channel.
  checkRefused(
      gather,
      [](Builder& p) {
        forBoth(p, [&](int rank, int peer, dsl::MemoryChannelRef channel) {
          channel.signal({.tb = 0, .relaxed = true});
          channel.wait({.tb = 0, .relaxed = true});
          channel.put(p.rank(peer).output()[rank], p.rank(rank).output()[rank], {.tb = 0});
          channel.signal({.tb = 1});
          channel.wait({.tb = 0});
        });
      },
      "rank 0 signals rank 1 over channel 0 from block 0 and from block 1");
  checkRefused(
      gather,
      [](Builder& p) {
        forBoth(p, [&](int rank, int peer, dsl::MemoryChannelRef channel) {
          channel.signal({.tb = 0, .relaxed = true});
          channel.wait({.tb = 1, .relaxed = true});
          channel.put(p.rank(peer).output()[rank], p.rank(rank).output()[rank], {.tb = 0});
          channel.signal({.tb = 0});
          channel.wait({.tb = 0});
        });
      },
      "rank 0 waits for rank 1 over channel 0 from block 0 and from block 1");
  // A channel for which the peer has none.
  checkRefused(
      gather, [](Builder& p) { p.memoryChannel(1, 0).signal(); }, "rank 1 has none back: make one there");
  // The waiter of permission is another block than the one that puts.
  checkRefused(
      gather,
      [](Builder& p) {
        for (int rank = 0; rank < 2; ++rank) {
          auto first = p.memoryChannel(1 - rank, rank), second = p.memoryChannel(1 - rank, rank);
          first.signal({.tb = 0, .relaxed = true});
          first.wait({.tb = 0, .relaxed = true});
          second.put(p.rank(1 - rank).output()[rank], p.rank(rank).output()[rank], {.tb = 1});
          second.signal({.tb = 1});
          second.wait({.tb = 1});
        }
      },
      "must first tell that its call has begun");
}

TEST_CASE("syncs within a block, put by hand") {
  auto const byHand = [](dsl::DataSync beforeSignal, dsl::DataSync afterWait) {
    return [=](Builder& p) {
      forBoth(p, [&](int rank, int peer, dsl::MemoryChannelRef channel) {
        channel.signal({.relaxed = true, .dataSync = dsl::none});
        channel.wait({.relaxed = true, .dataSync = afterWait});
        channel.put(p.rank(peer).output()[rank], p.rank(rank).output()[rank]);
        channel.signal({.dataSync = beforeSignal});
        channel.wait({.dataSync = dsl::none});
      });
    };
  };
  CHECK(diagnosticOf(gatherByHand, byHand(dsl::before, dsl::after)) == "");
  checkRefused(gatherByHand, byHand(dsl::none, dsl::after), "ends its call without having heard of it");
  checkRefused(gatherByHand, byHand(dsl::before, dsl::none), "must first tell that its call has begun");
  auto constexpr copies = Spec{.name = "copies", .collective = dsl::custom(1, 2, 2), .autoSync = false, .fuse = false};
  checkRefused(
      copies,
      [](Builder& p) {
        auto const rank = p.rank(0);
        auto const scratch = rank.scratch(1);
        rank.copy(scratch[0], rank.input()[0]);
        rank.copy(rank.output()[0], scratch[0]);
        p.expect(rank.output()[0], {rank.input()[0]});
      },
      "rank 0 block 0 step 1 (copy) reads scratch[0] of rank 0, which rank 0 block 0 step 0 (copy) writes, and nothing "
      "orders "
      "the two: a sync of the block between them is missing");
  checkRefused(
      copies,
      [](Builder& p) {
        auto const rank = p.rank(0);
        rank.copy(rank.output()[0], rank.input()[0]);
        rank.copy(rank.output()[0], rank.input()[1]);
      },
      "step 1 (copy) writes output[0] of rank 0, which rank 0 block 0 step 0 (copy) writes");
  checkRefused(
      copies,
      [](Builder& p) {
        auto const rank = p.rank(0);
        rank.copy(rank.output()[0], rank.input()[0]);
        rank.copy(rank.input()[0], rank.input()[1]);
      },
      "step 1 (copy) writes input[0] of rank 0, which rank 0 block 0 step 0 (copy) reads");
  // Within one step: shifted by a chunk.
  checkRefused(
      Spec{.name = "shift", .collective = dsl::custom(1, 3, 3), .inPlace = true},
      [](Builder& p) { p.rank(0).copy(p.rank(0).output()(1, 2), p.rank(0).output()(0, 2)); },
      "(copy) reads output[1] of rank 0, which rank 0 block 0 step 0 (copy) writes");
}

TEST_CASE("blocks of one rank") {
  checkRefused(
      local,
      [](Builder& p) {
        auto const rank = p.rank(0);
        rank.copy(rank.output()[0], rank.input()[0], {.tb = 0});
        rank.copy(rank.output()[0], rank.input()[1], {.tb = 1});
      },
      "a barrier or semaphore between blocks 0 and 1 is missing");
  checkRefused(
      local,
      [](Builder& p) {
        auto const rank = p.rank(0);
        auto const scratch = rank.scratch(1);
        rank.copy(scratch[0], rank.input()[0], {.tb = 0});
        rank.copy(rank.output()[0], scratch[0], {.tb = 1});
      },
      "rank 0 block 1 step 0 (copy) reads scratch[0] of rank 0");
  // The semaphore is released before the copy.
  checkRefused(
      local,
      [](Builder& p) {
        auto const rank = p.rank(0);
        auto const scratch = rank.scratch(1);
        auto const semaphore = p.semaphore(0);
        semaphore.release({.tb = 0});
        rank.copy(scratch[0], rank.input()[0], {.tb = 0});
        semaphore.acquire({.tb = 1});
        rank.copy(rank.output()[0], scratch[0], {.tb = 1});
      },
      "a barrier or semaphore between blocks 0 and 1 is missing");
  // The scratch is used again by the next call before it has been read.
  checkRefused(
      Spec{.name = "once", .collective = dsl::custom(1, 1, 1)},
      [](Builder& p) {
        auto const rank = p.rank(0);
        auto const semaphore = p.semaphore(0, 1);
        rank.copy(rank.output()[0], rank.input()[0], {.tb = 0});
        semaphore.acquire({.tb = 0});
      },
      "rank 0 releases semaphore 0 0 times and acquires it 1 time: the next call would find another value");
  checkRefused(
      local,
      [](Builder& p) {
        auto const semaphore = p.semaphore(0);
        semaphore.acquire({.tb = 0});
        semaphore.release({.tb = 0});
      },
      "dead-lock: rank 0 block 0 step 0 (acquire) waits for a release of semaphore 0");
  checkRefused(
      local,
      [](Builder& p) {
        auto const one = p.semaphore(0), two = p.semaphore(0);
        one.acquire({.tb = 0});
        two.release({.tb = 0});
        two.acquire({.tb = 1});
        one.release({.tb = 1});
      },
      "rank 0 block 1 step 0 (acquire) waits for a release of semaphore 1: none of them can go on");
  checkRefused(
      local,
      [](Builder& p) {
        auto const semaphore = p.semaphore(0);
        semaphore.release({.tb = 0});
        semaphore.release({.tb = 1});
        semaphore.acquire({.tb = 2});
        semaphore.acquire({.tb = 2});
      },
      "rank 0 releases semaphore 0 from block 0 and from block 1");
  checkRefused(
      local, [](Builder& p) { p.add(0, {.tb = 0}, {.kind = dsl::StepKind::barrier, .objects = {0}, .blocks = 2}); },
      "rank 0 barrier 0 is of 2 blocks, and 1 come to it");
  checkRefused(
      local,
      [](Builder& p) {
        p.rank(0).barrier({0, 1});
        p.add(0, {.tb = 0}, {.kind = dsl::StepKind::barrier, .objects = {0}, .blocks = 2});
      },
      "block 0 comes to it 2 times, block 1 1 time");
  checkRefused(
      local,
      [](Builder& p) {
        p.add(0, {.tb = 0}, {.kind = dsl::StepKind::barrier, .objects = {0}, .blocks = 2});
        p.add(0, {.tb = 1}, {.kind = dsl::StepKind::barrier, .objects = {0}, .blocks = 3});
      },
      "barrier 0 is of 2 blocks in one step and of 3 in another");
  // A barrier and a semaphore that wait for each other.
  checkRefused(
      local,
      [](Builder& p) {
        auto const semaphore = p.semaphore(0);
        semaphore.acquire({.tb = 0});
        p.rank(0).barrier({0, 1});
        semaphore.release({.tb = 1});
      },
      "rank 0 block 1 step 0 (barrier) waits for the other blocks of barrier 0: none of them can go on");
  // Parts of a group that overlap with another group's.
  checkRefused(
      local,
      [](Builder& p) {
        auto const rank = p.rank(0);
        auto const scratch = rank.scratch(1);
        rank.copy(scratch[0], rank.input()[0], {.group = {0, 2}});
        rank.copy(rank.output()[0], scratch[0], {.group = {0, 4}});
      },
      "a barrier or semaphore between blocks 0 and 1 is missing");
}

// Who waits for whom: of several blocks that could help, the one that must.
TEST_CASE("diagnostics of dead-locks") {
  constexpr Spec ring{.name = "ring", .collective = dsl::custom(3, 1, 1)};
  // Each waits for the next one around the ring first.
  CHECK(diagnosticOf(ring,
                     [](Builder& p) {
                       for (int rank = 0; rank < 3; ++rank) {
                         auto const next = p.memoryChannel((rank + 1) % 3, rank),
                                    last = p.memoryChannel((rank + 2) % 3, rank);
                         next.wait();
                         next.signal();
                         last.signal();
                         last.wait();
                       }
                     }) ==
        "dead-lock: rank 0 block 0 step 0 (wait) waits for a signal of rank 1 over channel 0; rank 1 block 0 step 0 "
        "(wait) "
        "waits for a signal of rank 2 over channel 0; rank 2 block 0 step 0 (wait) waits for a signal of rank 0 over "
        "channel 0: none of them can go on");
  // One wait for two signals, of which one has come, and its sender has another to send later.
  CHECK(diagnosticOf(ring,
                     [](Builder& p) {
                       auto const first = p.memoryChannel(1, 0), second = p.memoryChannel(2, 0);
                       auto const of1 = p.memoryChannel(0, 1), of2 = p.memoryChannel(0, 2);
                       p.add(0, {}, {.kind = dsl::StepKind::wait, .objects = {0, 1}});
                       first.signal();
                       second.signal();
                       first.wait();
                       of1.signal();
                       of1.wait();
                       of1.signal();
                       of2.wait();
                       of2.signal();
                     }) ==
        "dead-lock: rank 0 block 0 step 0 (wait) waits for a signal of rank 2 over channel 1; rank 2 block 0 step 0 "
        "(wait) "
        "waits for a signal of rank 0 over channel 0: none of them can go on");
  // The block that signals over the channel: not one that waits over it, nor one that signals over another.
  constexpr Spec two{.name = "two", .collective = dsl::custom(2, 1, 1)};
  CHECK(diagnosticOf(two,
                     [](Builder& p) {
                       auto const to1 = p.memoryChannel(1, 0), to0 = p.memoryChannel(0, 1);
                       auto const again1 = p.memoryChannel(1, 0), again0 = p.memoryChannel(0, 1);
                       auto const heard = p.semaphore(1);
                       to1.wait();
                       to1.signal();
                       again1.wait();
                       to0.wait({.tb = 0});
                       heard.release({.tb = 0});
                       again0.signal({.tb = 0});
                       heard.acquire({.tb = 1});
                       to0.signal({.tb = 1});
                     }) ==
        "dead-lock: rank 0 block 0 step 0 (wait) waits for a signal of rank 1 over channel 0; rank 1 block 1 step 0 "
        "(acquire) waits for a release of semaphore 0; rank 1 block 0 step 0 (wait) waits for a signal of rank 0 over "
        "channel 0: none of them can go on");
  // The shortest, though the other rank's blocks come first and have semaphores of the same numbers.
  CHECK(
      diagnosticOf(two,
                   [](Builder& p) {
                     for (int rank = 0; rank < 2; ++rank) {
                       int const blocks = 3 - rank;
                       auto const semaphores = semaphoresOf(p, rank, blocks);
                       for (int b = 0; b < blocks; ++b) {
                         semaphores[static_cast<std::size_t>(b)].acquire({.tb = b});
                         semaphores[static_cast<std::size_t>((b + 1) % blocks)].release({.tb = b});
                       }
                     }
                   }) ==
      "dead-lock: rank 1 block 0 step 0 (acquire) waits for a release of semaphore 0; rank 1 block 1 step 0 (acquire) "
      "waits for a release of semaphore 1: none of them can go on");
  // A barrier of the own rank.
  CHECK(diagnosticOf(two,
                     [](Builder& p) {
                       for (int rank = 0; rank < 2; ++rank) {
                         int const blocks = 3 - rank;
                         auto const semaphores = semaphoresOf(p, rank, blocks);
                         for (int b = rank; b < blocks; ++b) semaphores[static_cast<std::size_t>(b)].acquire({.tb = b});
                         p.rank(rank).barrier(rank == 0 ? std::vector{0, 1, 2} : std::vector{0, 1});
                         for (int b = rank; b < blocks; ++b) {
                           semaphores[static_cast<std::size_t>(b)].release({.tb = rank == 0 ? (b + 1) % blocks : 0});
                         }
                       }
                     }) ==
        "dead-lock: rank 1 block 0 step 0 (barrier) waits for the other blocks of barrier 0; rank 1 block 1 step 0 "
        "(acquire) waits for a release of semaphore 1: none of them can go on");
  // Whoever waits for those that wait for each other is not part of the diagnostic.
  CHECK(
      diagnosticOf(local,
                   [](Builder& p) {
                     auto const first = p.semaphore(0), second = p.semaphore(0), third = p.semaphore(0);
                     first.acquire({.tb = 0});
                     second.acquire({.tb = 1});
                     first.release({.tb = 1});
                     third.release({.tb = 1});
                     third.acquire({.tb = 2});
                     second.release({.tb = 2});
                   }) ==
      "dead-lock: rank 0 block 1 step 0 (acquire) waits for a release of semaphore 1; rank 0 block 2 step 0 (acquire) "
      "waits for a release of semaphore 2: none of them can go on");
  // At a barrier: not who has come to it, nor who is to come to another one.
  CHECK(diagnosticOf(local,
                     [](Builder& p) {
                       auto const early = p.semaphore(0), late = p.semaphore(0);
                       early.acquire({.tb = 2});
                       late.acquire({.tb = 3});
                       p.rank(0).barrier({0, 1, 3});
                       p.rank(0).barrier({1, 2});
                       early.release({.tb = 0});
                       late.release({.tb = 0});
                     }) ==
        "dead-lock: rank 0 block 0 step 0 (barrier) waits for the other blocks of barrier 0; rank 0 block 3 step 0 "
        "(acquire) waits for a release of semaphore 1: none of them can go on");
  // Packets into the chunk that is waited for, not into those beside it.
  CHECK(diagnosticOf(
            Spec{.name = "beside",
                 .collective = dsl::custom(3, 1, 1),
                 .protocol = Protocol::lowLatency,
                 .fuse = false,
                 .doubleScratch = true},
            [](Builder& p) {
              dsl::BufferRef const scratch[] = {p.rank(0).scratch(3), p.rank(1).scratch(1), p.rank(2).scratch(1)};
              auto const to1 = p.memoryChannel(1, 0), to2 = p.memoryChannel(2, 0);
              dsl::MemoryChannelRef const from[] = {p.memoryChannel(0, 1), p.memoryChannel(0, 2)};
              auto const self = p.rank(0);
              self.unpackPackets(self.output()[0], scratch[0][1]);
              to1.putPackets(scratch[1][0], self.input()[0]);
              to2.putPackets(scratch[2][0], self.input()[0]);
              for (int rank : {1, 2}) {
                p.rank(rank).unpackPackets(p.rank(rank).output()[0], scratch[rank][0]);
                for (int chunk = 0; chunk < 3; ++chunk) {
                  if ((chunk == 1) == (rank == 2)) {
                    from[rank - 1].putPackets(scratch[0][chunk], p.rank(rank).input()[0]);
                  }
                }
              }
            }) ==
        "dead-lock: rank 0 block 0 step 0 (unpackPackets) waits for packets in scratch[1] of rank 0; rank 2 block 0 "
        "step 0 (unpackPackets) "
        "waits for packets in scratch[0] of rank 2: none of them can go on");
}

TEST_CASE("results") {
  checkRefused(
      gatherCopy,
      [](Builder& p) {
        for (int rank = 0; rank < 2; ++rank) p.rank(rank).copy(p.rank(rank).output()[rank], p.rank(rank).input()[0]);
      },
      "output[1] of rank 0 ends as it began: nothing writes input[0] of rank 1 there");
  checkRefused(
      gatherCopy,
      [](Builder& p) {
        for (int rank = 0; rank < 2; ++rank)
          p.rank(rank).copy(p.rank(rank).output()[1 - rank], p.rank(rank).input()[0]);
      },
      "output[0] of rank 0 ends as it began");
  // The wrong chunk, and added twice.
  auto const pull = [](int chunk, int times) {
    return [=](Builder& p) {
      forBoth(p, [&](int rank, int peer, dsl::MemoryChannelRef channel) {
        auto const self = p.rank(rank);
        auto const scratch = self.scratch(2);
        channel.signal({.relaxed = true});
        channel.wait({.relaxed = true});
        channel.get(scratch[0], p.rank(peer).input()[rank * (1 - chunk) + peer * chunk]);
        channel.signal();
        channel.wait();
        std::vector<dsl::Chunks> others(static_cast<std::size_t>(times), scratch[0]);
        self.reduce(self.output()[0], self.input()[rank], others);
      });
    };
  };
  CHECK(diagnosticOf(scatter, pull(0, 1)) == "");
  checkRefused(scatter, pull(1, 1), "output[0] of rank 0 ends with input[1] of rank 1, which does not belong there");
  checkRefused(scatter, pull(0, 2), "output[0] of rank 0 ends with input[0] of rank 1 added 2 times");
  checkRefused(
      scatter,
      [](Builder& p) {
        for (int rank = 0; rank < 2; ++rank) p.rank(rank).copy(p.rank(rank).output()[0], p.rank(rank).input()[rank]);
      },
      "output[0] of rank 0 ends without input[0] of rank 1");
  checkRefused(
      send,
      [](Builder& p) {
        for (int rank = 0; rank < 2; ++rank) p.rank(rank).copy(p.rank(rank).output()[0], p.rank(rank).input()[0]);
      },
      "output[0] of rank 0 ends with input[0] of rank 0, which does not belong there");
  checkRefused(
      exchange,
      [](Builder& p) {
        for (int rank = 0; rank < 2; ++rank) p.rank(rank).copy(p.rank(rank).output()(0, 2), p.rank(rank).input()(0, 2));
      },
      "output[1] of rank 0 ends with input[1] of rank 0, which does not belong there");
  checkRefused(
      local,
      [](Builder& p) {
        p.rank(0).copy(p.rank(0).output()[0], p.rank(0).input()[1]);
        p.expect(p.rank(0).output()[0], {p.rank(0).input()[0]});
      },
      "ends with input[1] of rank 0, which does not belong there");
  // What is demanded differs by rank and by chunk.
  for (bool swapped : {false, true}) {
    Spec const pairs{.name = "pairs", .collective = dsl::custom(2, 2, 2)};
    auto const define = [=](Builder& p) {
      for (int rank = 0; rank < 2; ++rank) {
        for (int chunk = 0; chunk < 2; ++chunk) {
          p.rank(rank).copy(p.rank(rank).output()[chunk],
                            p.rank(rank).input()[swapped && rank == 1 ? 1 - chunk : chunk]);
          p.expect(p.rank(rank).output()[chunk], {p.rank(rank).input()[chunk]});
        }
      }
    };
    if (swapped) checkRefused(pairs, define, "output[0] of rank 1 ends with input[1] of rank 1, which does not belong");
    if (!swapped) CHECK(diagnosticOf(pairs, define) == "");
  }
  // Read before anything is there.
  checkRefused(
      local,
      [](Builder& p) {
        auto const scratch = p.rank(0).scratch(1);
        p.rank(0).copy(p.rank(0).output()[0], scratch[0]);
      },
      "reads scratch[0] of rank 0, where nothing has been written before it");
  checkRefused(
      local, [](Builder& p) { p.rank(0).copy(p.rank(0).input()[0], p.rank(0).output()[0]); },
      "reads output[0] of rank 0, where nothing has been written before it");
  // Two operations in one result.
  checkRefused(
      Spec{.name = "mixed", .collective = dsl::custom(1, 3, 1), .fuse = false},
      [](Builder& p) {
        auto const rank = p.rank(0);
        rank.reduce(rank.output()[0], rank.input()[0], {rank.input()[1]}, {.reduce = dsl::ReduceKind::max});
        rank.reduce(rank.output()[0], rank.output()[0], {rank.input()[2]}, {.reduce = dsl::ReduceKind::sum});
      },
      "reduces by sum what was reduced by max");
  // An instance that is lost.
  checkRefused(
      Spec{.name = "lost", .collective = dsl::allGather(1, 2)},
      [](Builder& p) { p.rank(0).copy(p.rank(0).output()[0], p.rank(0).input()[0]); },
      "output[1] of rank 0 ends as it began");
}

TEST_CASE("packets") {
  auto const packets = [](bool swapped, bool twice, bool sends) {
    return [=](Builder& p) {
      dsl::BufferRef const scratch[] = {p.rank(0).scratch(2), p.rank(1).scratch(2)};
      forBoth(p, [&](int rank, int peer, dsl::MemoryChannelRef channel) {
        auto const self = p.rank(rank);
        if (!swapped && sends) channel.putPackets(scratch[peer](0, 2), self.input()(0, 2));
        if (twice) channel.putPackets(scratch[peer](0, 2), self.input()(0, 2));
        self.reducePackets(self.output()(0, 2), self.input()(0, 2), {scratch[rank](0, 2)});
        if (swapped) channel.putPackets(scratch[peer](0, 2), self.input()(0, 2));
      });
    };
  };
  CHECK(diagnosticOf(reduceDouble, packets(false, false, true)) == "");
  checkRefused(reducePackets, packets(false, false, true),
               "has read those of this one: let its call wait for an answer, or use doubleScratch");
  checkRefused(reducePackets, packets(true, false, true), "waits for packets in scratch[0..1] of rank 1");
  checkRefused(reducePackets, packets(true, false, true), "none of them can go on");
  checkRefused(reducePackets, packets(false, false, false), "which never comes");
  checkRefused(Spec{.name = "twice",
                    .collective = dsl::allReduce(2),
                    .inPlace = true,
                    .protocol = Protocol::lowLatency,
                    .fuse = false},
               packets(false, true, true), "both packets carry the call's flag");
  checkRefused(reduce, packets(false, false, true), "moves packets; the program's protocol must be lowLatency");
  // Without a second half of scratch, nothing tells the sender of the next call that this one's packets were read.
  checkRefused(
      Spec{.name = "reused", .collective = dsl::sendReceive(2), .protocol = Protocol::lowLatency},
      [](Builder& p) {
        dsl::BufferRef const scratch[] = {p.rank(0).scratch(1), p.rank(1).scratch(1)};
        forBoth(p, [&](int rank, int peer, dsl::MemoryChannelRef channel) {
          channel.putPackets(scratch[peer][0], p.rank(rank).input()[0], {.tb = 0});
          if (rank == 0) p.rank(0).unpackPackets(p.rank(0).output()[0], scratch[0][0], {.tb = 1});
          if (rank == 1) p.rank(1).unpackPackets(p.rank(1).output()[0], scratch[1][0], {.tb = 1});
        });
      },
      "from one call to the next");
  checkRefused(
      reducePackets,
      [](Builder& p) {
        forBoth(p, [&](int rank, int peer, dsl::MemoryChannelRef channel) {
          channel.putPackets(p.rank(peer).output()[0], p.rank(rank).input()[0]);
        });
      },
      "has packets in the output buffer; packets live in scratch");
  checkRefused(
      reducePackets,
      [](Builder& p) {
        dsl::BufferRef const scratch[] = {p.rank(0).scratch(1), p.rank(1).scratch(1)};
        forBoth(p, [&](int rank, int peer, dsl::MemoryChannelRef channel) {
          channel.readPutPackets(scratch[rank][0], scratch[peer][0]);
        });
      },
      "reads packets of rank 1; only that rank itself can");
  checkRefused(
      Spec{.name = "both", .collective = dsl::custom(1, 1, 1), .protocol = Protocol::lowLatency},
      [](Builder& p) {
        auto const rank = p.rank(0);
        auto const scratch = rank.scratch(1);
        rank.copyPackets(scratch[0], rank.input()[0]);
        rank.unpackPackets(rank.output()[0], scratch[0]);
        rank.sync(0);
        rank.copy(scratch[0], rank.input()[0]);
      },
      "what is left of one could pass for the other");
  checkRefused(
      Spec{.name = "plain", .collective = dsl::custom(1, 1, 1), .protocol = Protocol::lowLatency},
      [](Builder& p) {
        auto const rank = p.rank(0);
        auto const scratch = rank.scratch(1);
        rank.copyPackets(scratch[0], rank.input()[0]);
        rank.copy(rank.output()[0], scratch[0]);
      },
      "as plain data");
  // Plain data are no packets.
  checkRefused(
      Spec{.name = "unpacked", .collective = dsl::custom(1, 1, 1), .protocol = Protocol::lowLatency},
      [](Builder& p) {
        auto const rank = p.rank(0);
        auto const scratch = rank.scratch(1);
        rank.copy(scratch[0], rank.input()[0]);
        rank.unpackPackets(rank.output()[0], scratch[0]);
      },
      "waits for packets in scratch[0] of rank 0, which never comes");
}

// Rank 0 sends a packet and reads a chunk of its input, into which rank 1 puts something behind what it has been told:
// it must not, where the packet was sent before the chunk was read. Syncs are put by hand.
TEST_CASE("what packets tell") {
  constexpr Spec told{.name = "told",
                      .collective = dsl::custom(2, 66, 66),
                      .protocol = Protocol::lowLatency,
                      .autoSync = false,
                      .fuse = false,
                      .doubleScratch = true};
  constexpr dsl::At unordered{.relaxed = true, .dataSync = dsl::none};
  struct Sides {
    dsl::RankRef reader, writer;
    dsl::MemoryChannelRef toWriter, toReader;
    dsl::Chunks packets;

    void send() const { toWriter.putPackets(packets, reader.input()[65]); }
    void read(int first, int count = 1) const {
      for (int i = first; i < first + count; ++i) reader.copy(reader.output()[i], reader.input()[i]);
    }
  };
  auto const program = [&](int chunk, std::function<void(Sides const&)> const& reads,
                           std::function<void(Sides const&)> const& hears) {
    return [=](Builder& p) {
      Sides const sides{p.rank(0), p.rank(1), p.memoryChannel(1, 0), p.memoryChannel(0, 1), p.rank(1).scratch(1)[0]};
      sides.toWriter.signal(unordered);  // the call has begun
      reads(sides);
      sides.toWriter.wait();
      sides.toReader.wait(unordered);
      hears(sides);
      sides.writer.sync(0);
      sides.toReader.put(sides.reader.input()[chunk], sides.writer.input()[0]);
      sides.toReader.signal();
    };
  };
  auto const unpack = [](Sides const& sides) { sides.writer.unpackPackets(sides.writer.output()[0], sides.packets); };
  auto const unpackAndWait = [&](Sides const& sides) {
    unpack(sides);
    sides.toReader.wait(unordered);
  };
  auto const waitAndUnpack = [&](Sides const& sides) {
    sides.toReader.wait(unordered);
    sides.writer.sync(0);
    unpack(sides);
  };
  auto const race = [](int chunk) {
    return "writes input[" + std::to_string(chunk) + "] of rank 0, which rank 0 block 0 step ";
  };

  auto const readFirst = [](Sides const& sides) {
    sides.read(1);
    sides.reader.sync(0);
    sides.send();
  };
  CHECK(diagnosticOf(told, program(1, readFirst, unpack)) == "");
  // In the phase behind the packet's.
  checkRefused(told,
               program(
                   1,
                   [](Sides const& sides) {
                     sides.send();
                     sides.reader.sync(0);
                     sides.read(1);
                   },
                   unpack),
               race(1));
  // In the packet's phase, before it and behind it.
  for (bool before : {false, true}) {
    checkRefused(told,
                 program(
                     1,
                     [=](Sides const& sides) {
                       if (before) sides.read(1);
                       sides.send();
                       if (!before) sides.read(1);
                     },
                     unpack),
                 race(1));
    // So many steps from it.
    checkRefused(told,
                 program(
                     before ? 0 : 64,
                     [=](Sides const& sides) {
                       if (before) sides.read(0, 64);
                       sides.send();
                       if (!before) sides.read(1, 64);
                     },
                     unpack),
                 race(before ? 0 : 64));
  }
  // A signal tells of the packet's phase as well, before the packet and behind it.
  auto const signalBetween = [&](Sides const& sides) {
    sides.send();
    sides.reader.sync(0);
    sides.toWriter.signal(unordered);
    sides.read(1);
  };
  checkRefused(told, program(1, signalBetween, waitAndUnpack), race(1));
  checkRefused(told, program(1, signalBetween, unpackAndWait), race(1));
}

TEST_CASE("bounds and use of the builder") {
  checkRefused(
      local, [](Builder& p) { p.rank(0).copy(p.rank(0).output()[2], p.rank(0).input()[0]); },
      "output[2] of rank 0 is not inside the buffer");
  checkRefused(
      local, [](Builder& p) { p.rank(0).copy(p.rank(0).output()[0], p.rank(0).input()[-1]); },
      "input[-1] of rank 0 is not inside the buffer");
  checkRefused(
      local, [](Builder& p) { p.rank(0).copy(p.rank(0).output()(0, 2), p.rank(0).input()[0]); },
      "moves 1 chunks of input[0] of rank 0 but 2 of output[0..1] of rank 0");
  checkRefused(
      local, [](Builder& p) { p.rank(3).copy(p.rank(0).output()[0], p.rank(0).input()[0]); },
      "use of rank 3: the collective has ranks 0 to 0");
  checkRefused(
      gather, [](Builder& p) { p.memoryChannel(0, 0).signal(); }, "a memory channel of rank 0 to itself");
  checkRefused(
      gather, [](Builder& p) { p.memoryChannel(2, 0).signal(); }, "memory channel of rank 2");
  checkRefused(
      gather, [](Builder& p) { p.rank(0).copy(p.rank(1).output()[0], p.rank(0).output()[0]); },
      "to which the rank has no memory channel");
  checkRefused(
      local, [](Builder& p) { p.rank(0).copy(p.rank(0).output()[0], p.rank(0).input()[0], {.tb = -1}); },
      "blocks count from 0");
  checkRefused(
      local, [](Builder& p) { p.loop(100, 1, [] {}); }, "a loop of 100 bytes of 1 chunks");
  checkRefused(
      local, [](Builder& p) { p.loop(1024, 1, [&] { p.loop(1024, 1, [] {}); }); }, "loops do not nest");
  checkRefused(
      local,
      [](Builder& p) {
        for (std::uint64_t unit : {1024, 2048}) {
          p.loop(unit, 1,
                 [&] { p.rank(0).copy(p.rank(0).output()[0], p.rank(0).input()[0], {.tb = unit == 1024 ? 0 : 1}); });
        }
      },
      "they would not have equally many");
  checkRefused(
      local,
      [](Builder& p) {
        p.rank(0).move({p.rank(0).input()[0]}, {p.rank(0).output()[0], p.rank(0).output()[0]});
      },
      "writes output[0] of rank 0 twice");
  checkRefused(
      Spec{.name = "none", .collective = dsl::allGather(0)}, [](Builder&) {}, "a collective of 0 ranks");
  checkRefused(
      Spec{.name = "many", .collective = dsl::custom(1, 1, 1), .instances = 65}, [](Builder&) {},
      "65 instances; 1 to 64");
  checkRefused(
      Spec{.name = "threads", .collective = dsl::custom(1, 1, 1), .threads = 100}, [](Builder&) {},
      "blocks of 100 threads");
}

TEST_CASE("turns of loops") {
  // The signal is inside, the wait outside.
  checkRefused(
      send,
      [](Builder& p) {
        forBoth(p, [&](int rank, int peer, dsl::MemoryChannelRef channel) {
          p.loop(1024, 1, [&] {
            channel.put(p.rank(peer).output()[0], p.rank(rank).input()[0]);
            channel.signal();
          });
          channel.wait();
        });
      },
      "times in each turn of its loop");
  // One block takes from scratch what the other has not brought yet in this turn.
  checkRefused(
      Spec{.name = "turns", .collective = dsl::custom(1, 1, 1)},
      [](Builder& p) {
        auto const rank = p.rank(0);
        auto const scratch = rank.scratch(1);
        p.loop(1024, 1, [&] {
          rank.copy(scratch[0], rank.input()[0], {.tb = 0});
          rank.copy(rank.output()[0], scratch[0], {.tb = 1});
        });
      },
      "a barrier or semaphore between blocks 0 and 1 is missing");
}
