// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a test asks of the library that stands in for NVIDIA's.
#pragma once

#include "nccl/abi.hpp"

struct FakeCalls {
  int made = 0;  // communicators
  int destroyed = 0;
  int aborted = 0;
  int collectives = 0;
  float factor = 0;
};

inline constexpr float fakeResult = 77;
