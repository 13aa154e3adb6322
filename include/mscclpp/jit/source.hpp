// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is compiled at run time.
#pragma once

#include <string>
#include <vector>

#include "mscclpp/device/data_type.hpp"

namespace mscclpp::jit {

struct Source {
  std::string text;
  std::string name = "kernel.cpp";  // in the compiler's messages

  // Throws systemError.
  static Source fromFile(std::string const& path);
};

// What the compiler gets beside a source.
struct Options {
  std::vector<std::string> definitions{};  // of macros: "NAME" or "NAME=VALUE"
  std::vector<std::string> folders{};      // of headers, behind the library's own, which need not be installed
};

// The name of an instance of a template over an element type, or over that and an operation: "Mine<float,
// mscclpp::Sum>". `none` stands for a sum, where nothing is reduced.
std::string instanceName(std::string const& type, DataType element);
std::string instanceName(std::string const& type, DataType element, ReduceOp op);

}  // namespace mscclpp::jit
