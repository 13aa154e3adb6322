// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a waiting simulated thread waits for, as the dead-lock report prints it.
#pragma once

#include <cstdint>
#include <string>

#include "mscclpp/layout/watch.hpp"

namespace mscclpp::sim {

struct WaitDescription {
  layout::WaitKind kind = layout::WaitKind::none;
  std::int32_t rank = -1;  // who waits; -1: unknown
  std::int32_t peer = -1;  // for whom; -1: nobody in particular
  std::uint64_t channel = 0;
  std::uint64_t expected = 0;
  std::uint64_t seen = 0;
};

std::string toString(WaitDescription const& wait);

}  // namespace mscclpp::sim
