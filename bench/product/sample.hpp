// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What programs that compare products with cuBLAS's multiply, and how far theirs may be from it.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "mscclpp/device/number.hpp"
#include "mscclpp/host/device.hpp"
#include "mscclpp/host/gpu_buffer.hpp"

namespace product_bench {

// So many numbers, normally distributed.
inline mscclpp::GpuBuffer<mscclpp::bf16> randomNumbers(mscclpp::Device device, std::size_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<mscclpp::bf16> values;
  values.reserve(count);
  for (std::size_t i = 0; i < count; ++i) values.emplace_back(normal(engine));
  mscclpp::GpuBuffer<mscclpp::bf16> buffer(device, count);
  copyToDevice(buffer, std::span<mscclpp::bf16 const>(values));
  return buffer;
}

// Elements of a product of `inner` summands that are further from another's than two roundings to bfloat16. Both round
// a float, of which the order of the sum changes the last bits: an element may be the next bfloat16, and one near zero
// off by what is lost in a sum of so many.
inline std::size_t wrongElements(std::span<mscclpp::bf16 const> found, std::span<mscclpp::bf16 const> reference,
                                 std::size_t inner) {
  auto const lost = std::sqrt(static_cast<float>(inner)) / 4096;
  std::size_t count = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    auto const expected = static_cast<float>(reference[i]);
    count += std::abs(static_cast<float>(found[i]) - expected) <= std::abs(expected) / 64 + lost ? 0 : 1;
  }
  return count;
}

}  // namespace product_bench
