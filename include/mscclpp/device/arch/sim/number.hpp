// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Float conversion on the simulated machine: the integer form itself. Twin of arch/cuda/number.hpp.
#pragma once

#include <cstdint>

#include "mscclpp/base/number_codec.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace arch {

template <class F>
std::uint32_t encode(float value) {
  return encodeSmallFloat<F>(value);
}

template <class F>
float decode(std::uint32_t code) {
  return decodeSmallFloat<F>(code);
}

}  // namespace arch
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
