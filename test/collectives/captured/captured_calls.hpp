// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Calls captured into graphs: contexts made while capturing, and kept for replays while later calls need larger ones;
// on either machine, whose class of graphs is G. `capture` captures work, into a graph that may come to nothing.
#pragma once

#include "collectives/allreduce.hpp"

namespace mscclpp_test {

template <class G, class Capture>
void checkCapturedCalls(Communicator& communicator, Capture&& capture) {
  auto const algorithms = AlgorithmCollection::defaults();
  Stream stream(communicator.device());
  auto const replay = [&](G const& graph, Sums<float, Sum> const& sums) {
    for (int i = 0; i < 3; ++i) {
      sums.out.fill(0);
      communicator.bootstrap()->barrier();
      graph.launch(stream);
      communicator.synchronize(stream);
      CHECK(sums.wrong() == 0);
      communicator.bootstrap()->barrier();
    }
  };
  Sums<float, Sum> const small(communicator, 1000, 1);
  auto const named = algorithms.at(Collective::allReduce, "oneshot_ll16");
  G const first(stream, [&] {
    for (int i = 0; i < 5; ++i) named->execute(communicator, stream, small.call());
  });
  CHECK(contextCounts(communicator).teams == 1);
  replay(first, small);

  // A larger call replaces the workspace, but not for the graph.
  bool const simulated = communicator.device().kind == DeviceKind::sim;
  Sums<float, Sum> const large(communicator, simulated ? 100'000 : 5'000'000, 2);
  algorithms.at(Collective::allReduce, simulated ? "twoshot_ll16" : "twoshot_memory")
      ->execute(communicator, stream, large.call());
  communicator.synchronize(stream);
  CHECK(large.wrong() == 0);
  CHECK(contextCounts(communicator).retiredTeams == 1);
  replay(first, small);

  // Algorithms that use the peers' buffers, their windows made while capturing.
  auto symmetric = small.call();
  symmetric.symmetric = true;
  auto const direct = algorithms.at(Collective::allReduce, "pull");
  G const second(stream, [&] { direct->execute(communicator, stream, symmetric); });
  CHECK(contextCounts(communicator).windows == 2);
  replay(second, small);
  replay(first, small);
  capture(stream, [&] {
    checkContains(errorOf([&] { releaseContexts(communicator); }, ErrorCode::invalidUsage), "end the capture first");
  });
  replay(first, small);
  releaseContexts(communicator);
  CHECK(contextCounts(communicator) == ContextCounts{});
}

}  // namespace mscclpp_test
