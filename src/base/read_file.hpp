// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A whole file as text.
#pragma once

#include <cerrno>
#include <fstream>
#include <iterator>
#include <string>

#include "base/format.hpp"

namespace mscclpp {

// Throws systemError that names `what`, as "plan my.json".
inline std::string readFile(std::string const& path, std::string const& what) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file) throwSystemError(fmt::format("{}: it cannot be read", what), errno);
  return text;
}

}  // namespace mscclpp
