// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Words of block-shared memory that other blocks of a cluster write, on the simulated machine. Twin of
// arch/cuda/shared_words.hpp.
#pragma once

#include <cstdint>

#include "mscclpp/base/config.hpp"
#include "mscclpp/base/order.hpp"
#include "mscclpp/device/arch/sim/memory.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace arch {

// Relaxed, whole, between the blocks of a cluster; in blockShared() of this block, or as ofClusterBlock() says.
MSCCLPP_DEVICE void storeSharedWord(std::uint64_t* address, std::uint64_t value) {
  store<Order::relaxed, Scope::device>(address, value);
}
MSCCLPP_DEVICE std::uint64_t loadSharedWord(std::uint64_t const* address) {
  return load<Order::relaxed, Scope::device>(address);
}

}  // namespace arch
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
