// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs one all-reduce on every rank and compares it, bit for bit, with the same steps on the host.
#pragma once

#include <cstring>
#include <vector>

#include "mscclpp/algorithms/catalogue.hpp"
#include "mscclpp/algorithms/collective/allreduce.hpp"
#include "support/reference.hpp"
#include "support/world.hpp"

namespace mscclpp_test {
inline namespace MSCCLPP_BACKEND {

struct AllReduceCase {
  int ranks = 4;
  std::vector<std::size_t> counts = {1000};
  unsigned blocks = 3;
  unsigned threads = 64;
  bool inPlace = false;
  bool overlap = false;
  std::size_t offset = 0;         // elements by which input and output are off from their allocation
  std::uint64_t regionBytes = 0;  // of the workspace; 0: what the launch asks for
  std::uint64_t seed = 1;
};

template <class Collective>
layout::WorkspaceRequirement workspaceFor(AllReduceCase const& test) {
  auto need = Collective::requirement(static_cast<std::uint32_t>(test.ranks), test.blocks, test.threads);
  for (auto* bytes : {&need.packetBytes, &need.lineBytes, &need.stageBytes}) {
    if (*bytes != 0 && test.regionBytes != 0) *bytes = test.regionBytes;
  }
  return need;
}

// The part of one rank.
template <class Collective, class T, class Op, class A = DefaultAccumulator<T>>
void checkRank(Rank& rank, AllReduceCase const& test) {
  Team team(rank.communicator, workspaceFor<Collective>(test));
  std::uint64_t call = 0;
  for (auto const count : test.counts) {
    ++call;
    std::vector<std::vector<T>> inputs;
    for (int r = 0; r < test.ranks; ++r) inputs.push_back(randomInput<T>(test.seed + 100 * call, r, count));
    auto const totals = reduceInRankOrder<A, Op>(inputs);
    std::vector<T> expected(count);
    for (std::size_t i = 0; i < count; ++i) expected[i] = convertNumber<T>(totals[i]);

    // Guard elements on both sides must stay as they are.
    auto const total = count + test.offset + 8;
    GpuBuffer<T> in(rank.device, total);
    GpuBuffer<T> out(rank.device, total);
    out.fill(0x5a);
    in.fill(0x5a);
    auto const& target = test.inPlace ? in : out;
    copyToDevice(in, std::span<T const>(inputs[static_cast<std::size_t>(rank.rank)]), test.offset);
    rank.meet();
    launch(rank.stream, {.blocks = test.blocks, .threads = test.threads, .overlapPrevious = test.overlap},
           AllReduceKernel<Collective, T>{}, in.data() + test.offset, target.data() + test.offset, count,
           team.deviceHandle());
    rank.synchronize();

    auto const all = copyToHost(target);
    std::vector<T> const result(all.begin() + static_cast<std::ptrdiff_t>(test.offset),
                                all.begin() + static_cast<std::ptrdiff_t>(test.offset + count));
    // No CAPTURE here: ranks take turns, and doctest keeps one stack of captures for all.
    CHECK_MESSAGE(countDifferent(result, expected) == 0, "count ", count);
    T guard;
    std::memset(&guard, 0x5a, sizeof guard);
    std::vector<T> around(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(test.offset));
    around.insert(around.end(), all.end() - 8, all.end());
    CHECK_MESSAGE(countDifferent(around, std::vector<T>(around.size(), guard)) == 0, "count ", count);
  }
}

template <class Collective, class T, class Op, class A = DefaultAccumulator<T>>
void check(AllReduceCase const& test) {
  if (!canRun(test.ranks)) return;
  forEachRank(test.ranks, [&](Rank& rank) { checkRank<Collective, T, Op, A>(rank, test); }, {.seed = test.seed});
}

template <FixedName A, class T, class Op = Sum, int Ranks = 0>
void checkAlgorithm(AllReduceCase const& test) {
  CAPTURE(A.view());
  check<NamedAllReduce<A, Op, Ranks>, T, Op>(test);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp_test
