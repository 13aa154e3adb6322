// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the collectives of a communicator are chosen from: the library's own algorithms, ahead of them the plans in the
// folder `default` of MSCCLPP_CACHE_DIR, by name, where MSCCL++ installs its own, and ahead of these what the program
// has registered (registry.hpp). A plan takes the calls that it is for, by ranks, bytes, operation and in place or not;
// a file that is no right plan, or has the name of a registered one, is left out, which the log tells.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mscclpp/collectives/algorithm_collection.hpp"
#include "nccl/registry.hpp"

namespace mscclpp::nccl {

struct Algorithms {
  AlgorithmCollection collection = AlgorithmCollection::defaults();
  std::vector<std::shared_ptr<RegisteredAlgorithm const>> registered{};
  // Of names and plans' texts, in order: ranks with equal marks choose alike.
  std::uint64_t mark = 0;
};

// With the folder as it was at the first call, and the registry as it is now.
std::shared_ptr<Algorithms const> algorithms();
std::string planFolder();

}  // namespace mscclpp::nccl
