// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A communicator as choices see it: all but `rank` is the same on every rank, so ranks that go by it choose alike.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mscclpp/host/communicator.hpp"

namespace mscclpp {

struct World {
  DeviceKind machine = DeviceKind::cuda;
  int rank = 0;
  int ranks = 1;
  std::string device{};    // product name; empty where the ranks' differ, or ranks share one: nothing was tuned there
  bool wholeLines = true;  // all links deliver 128-byte lines whole
  std::uint32_t maxBlocks = 1;  // of the library's own grids: those of all ranks of a device are resident together
  int ranksPerDevice = 1;       // the most of any device
  int nodes = 1;                // as a HierarchicalTeam has; 1: all ranks reach each other's memory
  std::vector<int> hosts{};     // hostsOf() the communicator; empty: all are on one
  std::string noMulticast{};    // why the ranks cannot go through a switch between their devices; empty where they can
  bool planned = false;  // set by who resolves calls without making them: addresses only tell how buffers lie to each
                         // other, and memory that a switch could not be bound to will not be there

  // maxBlocks where GPUs of so many multiprocessors have so many ranks each.
  static std::uint32_t mostBlocks(unsigned multiprocessors, unsigned ranksPerDevice = 1);
  // Kept with the communicator; collective at the first call.
  static World const& of(Communicator const& communicator);
};

}  // namespace mscclpp
