// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cstdint>

#include "mscclpp/base/config.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace arch {

MSCCLPP_DEVICE std::uint64_t notEarlier(std::uint64_t value) { return value; }
MSCCLPP_DEVICE std::uint32_t notAnew(std::uint32_t value) { return value; }

}  // namespace arch
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
