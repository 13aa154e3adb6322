// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How long collectives in two levels take (algorithms/collective/hierarchical.hpp, hierarchical_alltoall.hpp): nodes of
// GPUs that a MachineModel describes, and a network between them. For planning machines of any number of nodes.
// docs/cost_model.md has the formulas.
//
// All rails alike, each rank with an adapter of its own, and a network that carries what all adapters send.
#pragma once

#include <cstdint>
#include <optional>

#include "mscclpp/algorithms/core/traits.hpp"
#include "mscclpp/collectives/cost_model.hpp"

namespace mscclpp {

// Times in seconds, bandwidths in bytes a second. mscclpp-bench-port measures such figures.
struct NetworkModel {
  double messageTime = 0;   // from a kernel's putWithSignal of few bytes until the peer's kernel has seen the signal
  double transferTime = 0;  // of each further transfer that a proxy starts
  double railRate = 0;      // out of one rank, and at the same time into it
};

// One collective over nodes * rails ranks, of which the time is asked for, and the launch of its kernels.
struct TwoLevelQuery {
  int nodes = 1;
  int rails = 1;  // ranks of a node
  Collective collective = Collective::allReduce;
  std::uint64_t bytes = 0;  // the whole buffer, as in CostQuery
  unsigned blocks = 1;
  unsigned threads = 1;
};

// What one call takes, in seconds.
struct TwoLevelTime {
  double seconds = 0;  // from one call to the next
  double network = 0;  // of which nothing but the network is at work
};

// Nothing for collectives that there are not in two levels. Throws invalidUsage where a figure cannot be.
std::optional<TwoLevelTime> predictTwoLevel(MachineModel const& machine, NetworkModel const& network,
                                            TwoLevelQuery const& query);

}  // namespace mscclpp
