// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Names of files that the user gives for several processes: %p stands for the process id.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <string>

namespace mscclpp {

inline std::string ofThisProcess(std::string file) {
  auto const id = std::to_string(::getpid());
  for (std::size_t at = file.find("%p"); at != std::string::npos; at = file.find("%p", at + id.size())) {
    file.replace(at, 2, id);
  }
  return file;
}

}  // namespace mscclpp
