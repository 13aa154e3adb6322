// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Without a compiler.
#include <doctest/doctest.h>

#include "jit/kernels.hpp"

using namespace mscclpp_test;

namespace {
OwnCache const ownCache;
}

TEST_CASE("who has no compiler is told which, and what to do") {
  ::setenv("MSCCLPP_CXX", "/nowhere/c++", 1);
  auto const text = said({DeviceKind::sim, 0}, scaleSource(), "Scale<2>");
  CHECK(text.find("/nowhere/c++") != std::string::npos);
  CHECK(text.find("name a C++20 compiler in MSCCLPP_CXX") != std::string::npos);
}
