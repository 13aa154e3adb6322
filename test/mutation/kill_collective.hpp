// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One algorithm under many schedules, in the small shapes that reach each of its branches.
#pragma once

#include "check/shipped.hpp"
#include "explored.hpp"
#include "support/allreduce.hpp"

namespace mscclpp_test {

template <FixedName A, class T, int Ranks = 0>
void explored(AllReduceCase const& test, int schedules = 5) {
  CAPTURE(A.view());
  everySchedule(
      test.ranks, [&](Rank& rank) { checkRank<NamedAllReduce<A, Sum, Ranks>, T, Sum>(rank, test); }, schedules);
}

// Launches that overlap: none is awaited before the next. Blocks have data, have none, and have some again; a call
// takes a second round for a few threads only; one has nothing to do.
template <FixedName A>
void exploreOverlap() {
  check_test::CallSequence const sequence{{{120, 0, false, 2},
                                           {9, 0, false, 2},
                                           {120, 0, false, 2},
                                           {150, 0, false, 2},
                                           {120, 0, false, 1},
                                           {0, 0, false, 2},
                                           {61, 0, false, 2}},
                                          32,
                                          true,
                                          1024};
  everySchedule(3, [&](Rank& rank) { check_test::allReduceCalls<NamedAllReduce<A, Sum>, float>(rank, sequence); });
}

// Several calls of a few elements, in one round and in several; a block that ends in the middle of a warp; a fixed
// number of ranks; misaligned and in place.
template <FixedName A>
void exploreAlgorithm() {
  explored<A, float>({.ranks = 3, .counts = {250, 1, 250, 700}, .blocks = 2, .threads = 64, .regionBytes = 2048});
  explored<A, float, 3>({.ranks = 3, .counts = {90, 400}, .blocks = 2, .threads = 40, .overlap = true});
  explored<A, BFloat16, 2>(
      {.ranks = 2, .counts = {333, 40}, .blocks = 2, .threads = 64, .inPlace = true, .offset = 1, .regionBytes = 1024});
  explored<A, float>({.ranks = 1, .counts = {100}, .blocks = 2, .threads = 32}, 1);
  explored<A, float, 1>({.ranks = 1, .counts = {100}, .blocks = 2, .threads = 32}, 1);
}

// Collectives of different counts in one kernel, where nothing else joins its blocks: the last one has data in the
// first call and in the last, and in between only its exchange keeps it from overtaking the peers.
template <class Collective>
struct CountsKernel {
  MSCCLPP_DEVICE void operator()(float const* in, float* out, DeviceTeam const& team) const {
    std::size_t begin = 0;
    for (std::size_t const count : {128, 9, 128}) {
      Collective{team}(thisGrid(), View{in + begin, count}, View{out + begin, count});
      begin += count;
    }
  }
};

template <FixedName A>
void exploreCounts() {
  constexpr std::size_t count = 128 + 9 + 128;
  constexpr int ranks = 2;
  everySchedule(ranks, [](Rank& rank) {
    using Collective = NamedAllReduce<A, Sum>;
    Team team(rank.communicator, Collective::requirement(ranks, 2, 32));
    std::vector<std::vector<float>> inputs;
    for (int r = 0; r < ranks; ++r) inputs.push_back(randomInput<float>(5, r, count));
    GpuBuffer<float> in(rank.device, count);
    GpuBuffer<float> out(rank.device, count);
    copyToDevice(in, std::span<float const>(inputs[static_cast<std::size_t>(rank.rank)]));
    launch(rank.stream, {.blocks = 2, .threads = 32}, CountsKernel<Collective>{}, in.data(), out.data(),
           team.deviceHandle());
    rank.synchronize();
    CHECK(countDifferent(copyToHost(out), reduceInRankOrder<float, Sum>(inputs)) == 0);
  });
}

// A call without elements ends before the peers have made it, and the calls around it are as if it were not there.
template <FixedName A>
void exploreEmpty() {
  constexpr int ranks = 2;
  constexpr std::size_t count = 10;
  everySchedule(
      ranks,
      [](Rank& rank) {
        using Collective = NamedAllReduce<A, Sum>;
        Team team(rank.communicator, Collective::requirement(ranks, 2, 32));
        std::vector<std::vector<float>> inputs;
        for (int r = 0; r < ranks; ++r) inputs.push_back(randomInput<float>(9, r, count));
        GpuBuffer<float> in(rank.device, count);
        GpuBuffer<float> out(rank.device, count);
        copyToDevice(in, std::span<float const>(inputs[static_cast<std::size_t>(rank.rank)]));
        auto const call = [&](std::size_t elements) {
          launch(rank.stream, {.blocks = 2, .threads = 32}, AllReduceKernel<Collective, float>{}, in.data(), out.data(),
                 elements, team.deviceHandle());
          rank.communicator.synchronize(rank.stream);
        };
        for (int turn = 0; turn < ranks; ++turn) {
          if (turn == rank.rank) call(0);
          rank.communicator.bootstrap()->barrier();
        }
        CHECK(countDifferent(copyToHost(out), std::vector<float>(count, 0)) == 0);
        call(count);
        CHECK(countDifferent(copyToHost(out), reduceInRankOrder<float, Sum>(inputs)) == 0);
        rank.communicator.bootstrap()->barrier();
      },
      1);
}

}  // namespace mscclpp_test
