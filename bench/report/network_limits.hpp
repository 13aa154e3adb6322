// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The figures of a network between hosts, measured over port channels as collectives use them: ranks of two hosts each
// are pairs, which send at the same time in both directions, so that what pairs share they share here too.
#pragma once

#include <utility>
#include <vector>

#include "machine/machine.hpp"
#include "mscclpp/collectives/network_model.hpp"
#include "mscclpp/host/communicator.hpp"

namespace mscclpp::bench {

// The ranks that measure with each other, by hostsOf() the communicator: the i-th of the first host and of the second,
// of the third and the fourth, and so on. Ranks that nobody is left for are in none.
std::vector<std::pair<int, int>> networkPairs(std::vector<int> const& hosts);

// Collective; the same on all ranks: of each figure the slowest pair's. Throws UsageError where all ranks are on one
// host or pairs have different transports, and internalError where not all came that was sent.
NetworkModel measureNetwork(Machine const& machine, Communicator& communicator);

}  // namespace mscclpp::bench
