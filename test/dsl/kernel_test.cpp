// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Programs compiled into kernels do what they were proved to do, for any size, call after call.
#include <doctest/doctest.h>

#include <atomic>
#include <string>

#include "dsl/programs.hpp"
#include "dsl/run.hpp"
#include "support/rounds.hpp"

using namespace dsl_test;

namespace {

struct AtRunTime : TwoShotPackets<4> {
  static constexpr dsl::Spec spec{.name = "at_run_time",
                                  .collective = dsl::allReduce(4),
                                  .inPlace = true,
                                  .protocol = dsl::Protocol::lowLatency,
                                  .compiled = false};
};

// The block that talks to the rank behind this one copies the rank's own part, too, when all else is done.
struct UnevenAllGather {
  static constexpr dsl::Spec spec{.name = "uneven_allgather", .collective = dsl::allGather(3)};
  static constexpr void define(dsl::Builder& p) {
    for (int rank = 0; rank < 3; ++rank) {
      for (int block = 0; block < 2; ++block) {
        int const peer = (rank + block + 1) % 3;
        auto channel = p.memoryChannel(peer, rank);
        channel.signal({.tb = block, .relaxed = true});
        channel.wait({.tb = block, .relaxed = true});
        channel.put(p.rank(peer).output()[rank], p.rank(rank).input()[0], {.tb = block});
        channel.signal({.tb = block});
        channel.wait({.tb = block});
      }
      p.rank(rank).copy(p.rank(rank).output()[rank], p.rank(rank).input()[0], {.tb = 1});
    }
  }
};

// Blocks that meet, and no more.
struct TenSlices {
  static constexpr auto image = [] {
    constexpr dsl::detail::ImageRoom room{10, 10, 0, 0};
    dsl::detail::Image<room> made;
    made.sizes = room;
    for (unsigned i = 0; i < 10; ++i) {
      made.slices[i].firstStep = static_cast<int>(i);
      made.slices[i].steps = 1;
      made.steps[i].kind = static_cast<std::uint8_t>(dsl::StepKind::sync);
    }
    return made;
  }();
};

}  // namespace

TEST_CASE("all-gathers") {
  checkRun<SimpleAllGather>();
  checkRun<RingAllGather<4>>();
  checkRun<AllPairsAllGather<3, 2>, std::int8_t>({.offset = 1});
}

TEST_CASE("all-reduces") {
  checkRun<OneShotPackets<2>>();
  checkRun<OneShotPackets<4>, BFloat16, Max>({.offset = 3});
  checkRun<TwoShotPackets<4>, std::int32_t, Prod, LL8>();
  checkRun<TwoShotPackets<3, 2>, double, Avg>();
  checkRun<PullPushAllReduce<4, 2>, float, Min>({.offset = 1});
}

// Blocks that talk to other peers, or of other ranks, but do the same.
TEST_CASE("slices that differ in numbers alone share their code") {
  using Pairs = dsl::detail::ProgramCode<AllPairsAllGather<4>>;
  CHECK(dsl::detail::sliceCount<Pairs>() == 3);
  CHECK(dsl::detail::twinsOf<Pairs>(0).count == 1);  // copies its own part, too
  CHECK(dsl::detail::twinsOf<Pairs>(1).count == 2);
  CHECK(dsl::detail::twinsOf<Pairs>(2).count == 0);
  checkRun<AllPairsAllGather<4>>();
  // No more than eight, so that numbers are looked for among few.
  CHECK(dsl::detail::twinsOf<TenSlices>(0).count == 8);
  CHECK(dsl::detail::twinsOf<TenSlices>(7).count == 0);
  CHECK(dsl::detail::twinsOf<TenSlices>(8).count == 2);
  CHECK(dsl::detail::twinsOf<TenSlices>(9).count == 0);
}

TEST_CASE("a slice that ends early shares the code of one that goes on") {
  using Uneven = dsl::detail::ProgramCode<UnevenAllGather>;
  CHECK(dsl::detail::sliceCount<Uneven>() == 2);
  CHECK(dsl::detail::onlyCode<Uneven>() == 1);
  CHECK(dsl::detail::nextEnd<Uneven, 1>(0) < dsl::detail::sliceOf<Uneven, 1>().steps);
  checkRun<UnevenAllGather>();
  checkRun<UnevenAllGather, BFloat16>({.offset = 1});
}

// A slot's steps are done by one thread, whatever the number of threads, which decides where the next step begins.
TEST_CASE("steps that are done together, in blocks of any size") {
  for (unsigned const threads : {32u, 96u, 128u, 416u}) {
    checkRun<TwoShotPackets<4>, BFloat16, Sum>({.counts = {33, 1000, 4}, .offset = 1, .threads = threads});
    checkRun<OneShotPackets<3>>({.counts = {100, 1}, .threads = threads});
  }
}

// Chunks differ by a unit, and who hands packets on does not know which are the longer ones.
TEST_CASE("packets handed on from scratch to scratch, of chunks of any length") {
  checkRun<RelayAllGather<3, 2>>({.counts = {1, 5, 33, 1000, 1003}});
  checkRun<RelayAllGather<4, 3>, BFloat16, Sum, LL8>({.counts = {7, 100, 1001}, .offset = 1});
}

TEST_CASE("small messages get few threads") {
  if (!canRun(4)) return;
  forEachRank(4, [](Rank& rank) {
    auto const oneShot = dsl::makeContext<OneShotPackets<4>>(rank.communicator, 1 << 20);
    CHECK(oneShot.launchShape().threads == 1024);
    CHECK(oneShot.launchShape(1 << 20).threads == 1024);
    CHECK(oneShot.launchShape(0).threads == 32);  // one chunk, since no step takes it apart
    CHECK(oneShot.launchShape(1024).threads == 4 * 32);
    CHECK(oneShot.launchShape(1025).threads == 5 * 32);
    CHECK(oneShot.launchShape(1025).blocks == oneShot.launchShape().blocks);
    // Four chunks of a message; steps get threads of their own while all are a few warps.
    auto const twoShot = dsl::makeContext<TwoShotPackets<4>>(rank.communicator, 1 << 20);
    CHECK(twoShot.launchShape(0).threads == 4 * 32);
    CHECK(twoShot.launchShape(4096).threads == 4 * 32);
    CHECK(twoShot.launchShape(8192).threads == 8 * 32);
    CHECK(twoShot.launchShape(1 << 20).threads == 1024);
  });
}

TEST_CASE("a message longer than its context is refused by the kernel") {
  if (!canRun(2)) return;
  forEachRank(2, [](Rank& rank) {
    using P = TwoShotPackets<2>;
    auto const context = dsl::makeContext<P>(rank.communicator, 64);
    GpuBuffer<float> const data(rank.device, 17);
    std::string refusal;
    try {
      launch(rank.stream, context.launchShape(), dsl::Kernel<P, float>{}, data.data(), data.data(), data.size(),
             context.deviceHandle(), layout::WindowHandle{}, layout::WindowHandle{});
      rank.communicator.synchronize(rank.stream);
    } catch (Error const& error) {
      refusal = error.what();
    }
    CHECK(refusal.find("a message of 68 bytes: the program's context was made for at most 64") != std::string::npos);
  });
}

TEST_CASE("a context whose packets have no new flags says so, and serves no further call") {
  if (!canRun(2)) return;
  std::atomic<int> told{0};
  forEachRank(2, [&](Rank& rank) {
    using P = TwoShotPackets<2>;
    auto const context = dsl::makeContext<P>(rank.communicator, 64);
    auto const& plan = context.deviceHandle();
    setRounds(rank, plan.calls, plan.shape.blocks, layout::flagPeriod - 2);
    GpuBuffer<float> const data(rank.device, 16);
    auto const call = [&] {
      rank.meet();
      launch(rank.stream, context.launchShape(), dsl::Kernel<P, float>{}, data.data(), data.data(), data.size(), plan,
             layout::WindowHandle{}, layout::WindowHandle{});
      try {
        rank.communicator.synchronize(rank.stream);
      } catch (Error const& error) {
        return std::string(error.what());
      }
      return std::string();
    };
    CHECK(call() == "");
    // The first to find it leads the others astray.
    for (int more = 0; more < 2; ++more) {
      auto const error = call();
      bool const names = error.find("call 2147483648 of one context of a program") != std::string::npos;
      told += names ? 1 : 0;
      CHECK_MESSAGE((names || error.find("refused to go on") != std::string::npos), error);
    }
  });
  CHECK(told > 0);
}

TEST_CASE("other collectives") {
  checkRun<ScratchAllToAll<3>>();
  checkRun<UnevenAllToAll>({.counts = {360, 36, 3600}});
  checkRun<TwoLevelReduceScatter, Half>();
  checkRun<PipelinedSendReceive, std::uint8_t>({.counts = {5000, 1, 600}});
}

TEST_CASE("a program that is proved and interpreted when it runs") { checkRun<AtRunTime, float, Max>(); }
