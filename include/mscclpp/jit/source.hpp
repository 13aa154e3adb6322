// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is compiled at run time.
#pragma once

#include <string>
#include <vector>

namespace mscclpp::jit {

struct Source {
  std::string text;
  std::string name = "kernel.cpp";  // in the compiler's messages

  // Throws systemError.
  static Source fromFile(std::string const& path);
};

struct Options {
  std::vector<std::string> definitions{};  // of macros: "NAME" or "NAME=VALUE"
  std::vector<std::string> folders{};      // of headers, behind the library's own, which need not be installed
};

}  // namespace mscclpp::jit
