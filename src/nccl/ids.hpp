// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// NCCL's unique ids, by which the ranks of a communicator find each other.
#pragma once

#include <memory>

#include "mscclpp/host/bootstrap/bootstrap.hpp"
#include "nccl/abi.hpp"

namespace mscclpp::nccl {

// This process need be none of the ranks.
ncclUniqueId freshId();
// Collective over the ranks.
std::shared_ptr<Bootstrap> meetBy(ncclUniqueId const& id, int rank, int ranks);

}  // namespace mscclpp::nccl
