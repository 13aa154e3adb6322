// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Bulk copies and the barriers that count their bytes, on the simulated machine. Twin of arch/cuda/bulk_copy.hpp.
#pragma once

#include <cstdint>

#include "mscclpp/base/config.hpp"
#include "mscclpp/device/vector.hpp"
#include "mscclpp/sim/backend/bulk_copy.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace arch {

MSCCLPP_DEVICE constexpr bool hasBulkCopies() { return true; }

MSCCLPP_DEVICE std::uint32_t sharedAddress(void const* address) { return sim::sharedOffset(address); }

MSCCLPP_DEVICE void bulkStore(void* dst, void const* src, std::uint32_t bytes) { sim::bulkStore(dst, src, bytes); }
MSCCLPP_DEVICE void bulkCommit() { sim::bulkCommit(); }

template <unsigned N = 0>
MSCCLPP_DEVICE void bulkWait() {
  sim::bulkWait(N);
}

template <unsigned N = 0>
MSCCLPP_DEVICE void bulkWaitRead() {
  sim::bulkWaitRead(N);
}

MSCCLPP_DEVICE void bulkFence() { sim::bulkFence(); }

MSCCLPP_DEVICE void bulkLoad(void* dst, void const* src, std::uint32_t bytes, std::uint64_t* barrier) {
  sim::bulkLoad(dst, src, bytes, barrier);
}

template <class T>
MSCCLPP_DEVICE void putCounted(T* dst, T const& value, std::uint64_t* barrier) {
  sim::putCounted(dst, &value, sizeof value, barrier);
}

MSCCLPP_DEVICE void initBarrier(std::uint64_t* barrier, unsigned count) { sim::initBarrier(barrier, count); }
MSCCLPP_DEVICE void invalidateBarrier(std::uint64_t* barrier) { sim::invalidateBarrier(barrier); }
MSCCLPP_DEVICE void arriveBarrier(std::uint64_t* barrier, std::uint32_t bytes = 0) {
  sim::arriveBarrier(barrier, bytes);
}

// There when it returns.
MSCCLPP_DEVICE void copyChunk(void* dst, void const* src, unsigned bytes) {
  Payload<4> chunk{};
  if (bytes == sizeof chunk) {
    chunk = *static_cast<Payload<4> const*>(src);
  } else {
    Vector<std::uint16_t, 8> values{};
    for (unsigned i = 0; i < bytes / 2; ++i) values[i] = static_cast<std::uint16_t const*>(src)[i];
    chunk = pack(values);
  }
  *static_cast<Payload<4>*>(dst) = chunk;
}
MSCCLPP_DEVICE void arriveBehindCopies(std::uint64_t* barrier) { sim::arriveBarrier(barrier, 0); }

MSCCLPP_DEVICE bool testBarrier(std::uint64_t* barrier, unsigned parity) { return sim::testBarrier(barrier, parity); }

}  // namespace arch
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
