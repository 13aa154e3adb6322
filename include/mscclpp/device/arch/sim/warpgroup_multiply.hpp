// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products by a warpgroup, on the simulated machine. Twin of arch/cuda/warpgroup_multiply.hpp.
//
// Each thread makes the sums that it would have in its registers, one element after the other, from the very bytes that
// the descriptors name. As a plain access it needs no fence of the async proxy, and the checker misses none.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/base/config.hpp"
#include "mscclpp/device/arch/sim/bulk_copy.hpp"
#include "mscclpp/device/arch/sim/thread.hpp"
#include "mscclpp/device/number.hpp"
#include "mscclpp/device/tiles/swizzled_rows.hpp"
#include "mscclpp/device/vector.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace arch {

MSCCLPP_DEVICE constexpr bool hasWarpgroupMultiply() { return true; }

// A row's elements, in the order in which the descriptors of its four steps name them.
struct RowElements {
  float of[64];
};

// All of it is one access, which costs the simulated machine least.
MSCCLPP_DEVICE RowElements loadSwizzled(std::byte const* rows, unsigned row) {
  constexpr unsigned n = SwizzledRows::chunkBytes / sizeof(BFloat16);
  auto const begin = sharedAddress(rows);
  auto const placeOf = [&](unsigned chunk) {
    auto const descriptor = SwizzledRows::descriptor(begin, chunk / 2 * 2 * SwizzledRows::chunkBytes);
    return SwizzledRows::place(descriptor, row, chunk % 2 * SwizzledRows::chunkBytes);
  };
  auto const line = placeOf(0) / SwizzledRows::rowBytes * SwizzledRows::rowBytes;
  auto const* const shared = dynamicShared() - sharedAddress(dynamicShared());
  auto const found = unpack<BFloat16>(*reinterpret_cast<Payload<SwizzledRows::rowBytes / 4> const*>(shared + line));
  RowElements elements;
  for (unsigned chunk = 0; chunk < SwizzledRows::chunks; ++chunk) {
    auto const first = (placeOf(chunk) - line) / static_cast<unsigned>(sizeof(BFloat16));
    for (unsigned k = 0; k < n; ++k) elements.of[chunk * n + k] = static_cast<float>(found[first + k]);
  }
  return elements;
}

template <unsigned Parts>
MSCCLPP_DEVICE void multiplySwizzled(float (&sums)[Parts][64], std::byte const* a, std::byte const* b) {
  auto const lane = threadIndex() % warpSize;
  auto const firstRow = threadIndex() / warpSize % 4 * 16 + lane / 4;
  RowElements const rows[2] = {loadSwizzled(a, firstRow), loadSwizzled(a, firstRow + 8)};
  for (unsigned part = 0; part < Parts; ++part) {
    for (unsigned i = 0; i < 64; i += 4) {
      for (unsigned second = 0; second < 2; ++second) {
        auto const column = loadSwizzled(b, part * 128 + i * 2 + lane % 4 * 2 + second);
        for (unsigned row = 0; row < 2; ++row) {
          for (unsigned k = 0; k < 64; ++k) sums[part][i + row * 2 + second] += rows[row].of[k] * column.of[k];
        }
      }
    }
  }
}

}  // namespace arch
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
