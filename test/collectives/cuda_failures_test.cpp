// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Collectives after a time-out, on GPUs. Takes a second for each algorithm.
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "collectives/failing_calls.hpp"

using namespace mscclpp_test;

TEST_CASE("after a late rank, every all-reduce is right again or throws on all ranks") {
  using namespace std::chrono_literals;
  constexpr int ranks = 2;
  constexpr auto limit = 300ms;
  auto const algorithms = AlgorithmCollection::defaults();
  for (auto const& name : algorithms.names(Collective::allReduce)) {
    std::vector<Outcomes> all(ranks);
    forEachRankOn(DeviceKind::cuda, ranks, [&](Communicator& communicator) {
      communicator.setTimeLimit(limit);
      Calls calls(communicator, *algorithms.at(Collective::allReduce, name));
      if (calls.refused()) return;
      auto& mine = all[static_cast<std::size_t>(communicator.rank())];
      for (int call = 0; call < 5; ++call) {
        meetOnGpus(communicator);
        if (call == 2 && communicator.rank() == 1) std::this_thread::sleep_for(3 * limit);
        mine.push_back(calls.make());
      }
      communicator.bootstrap()->barrier();
    });
    if (!all[0].empty()) checkRecovery(all, 2, "all-reduce by " + name);
  }
}
