// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Words of block-shared memory that other blocks of a cluster write, and when they may, on the simulated machine. Twin
// of arch/cuda/shared_words.hpp.
#pragma once

#include <cstdint>

#include "mscclpp/base/config.hpp"
#include "mscclpp/base/order.hpp"
#include "mscclpp/device/arch/sim/memory.hpp"
#include "mscclpp/sim/backend/device_calls.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace arch {

// Relaxed, whole, between the blocks of a cluster. Stores: in blockShared() of this block, or as ofClusterBlock() says;
// loads: of this block's.
MSCCLPP_DEVICE void storeSharedWord(std::uint64_t* address, std::uint64_t value) {
  store<Order::relaxed, Scope::device>(address, value);
}
MSCCLPP_DEVICE std::uint64_t loadSharedWord(std::uint64_t const* address) {
  return load<Order::relaxed, Scope::device>(address);
}

// A barrier of the cluster in two parts, with other work between them. What any of its threads wrote before the first
// is there behind the second. Every thread that arrives awaits before it arrives again, or leaves the kernel.
MSCCLPP_DEVICE void arriveAtCluster() { sim::arriveAtCluster(); }
MSCCLPP_DEVICE void awaitCluster() { sim::awaitCluster(); }

}  // namespace arch
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
