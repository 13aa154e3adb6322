// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cstddef>

struct AccessForm {
  char const* name;
  std::size_t read;     // bytes of `from`
  std::size_t written;  // bytes of `to`
  long (*run)(char* to, char const* from, std::size_t n);
};

extern "C" AccessForm const accessForms[];  // ends with one without a name
