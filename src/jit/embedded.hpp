// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The library's own headers, which travel in it: what is compiled at run time needs none installed.
#pragma once

#include <span>

namespace mscclpp::jit {

struct Embedded {
  char const* name;  // as it is included: "mscclpp/device/packet.hpp"
  char const* text;
};

// All of include/, and the generated ones. The source is written by cmake/EmbedHeaders.cmake.
std::span<Embedded const> embeddedHeaders();

}  // namespace mscclpp::jit
