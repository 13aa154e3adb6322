// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the fuzz targets share. A target is one function over arbitrary bytes; whatever they are, the library must
// refuse them with an Error that is not its own defect, or take them, and touch nothing that it must not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>

#include "mscclpp/host/error.hpp"
#include "mscclpp/host/log.hpp"

namespace mscclpp::test {

using Bytes = std::span<std::byte const>;

inline Bytes bytesOfInput(std::uint8_t const* data, std::size_t size) {
  return {reinterpret_cast<std::byte const*>(data), size};
}

[[noreturn]] inline void complain(char const* what) {
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

inline void require(bool condition, char const* what) {
  if (!condition) complain(what);
}

// Calls a parser, which may throw any Error but internalError.
template <class Call>
void attempt(Call&& call) {
  try {
    call();
  } catch (Error const& error) {
    if (error.code() == ErrorCode::internalError || error.what()[0] == '\0') complain(error.what());
  }
}

}  // namespace mscclpp::test

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size);
