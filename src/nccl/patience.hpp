// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How long ranks wait for each other. Programs written for NCCL let ranks be minutes apart, as while one of them reads
// data or compiles, and have watchdogs of their own.
#pragma once

#include <chrono>
#include <optional>

#include "mscclpp/host/env.hpp"

namespace mscclpp::nccl {

// Nothing where the environment sets `variable`, which then holds.
inline std::optional<std::chrono::nanoseconds> patience(char const* variable) {
  if (processVariable(variable)) return std::nullopt;
  return std::chrono::minutes(30);
}

}  // namespace mscclpp::nccl
