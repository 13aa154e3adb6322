// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compilers that are programs.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace mscclpp::jit {

struct CommandResult {
  int status;        // 127 where it does not run
  std::string said;  // what it printed, of both kinds
};
// No shell sees the arguments. `work`: a folder, for what it prints.
CommandResult runCommand(std::vector<std::string> const& command, std::filesystem::path const& work);

// The library's headers, for those who read files.
void writeHeaders(std::filesystem::path const& folder);

}  // namespace mscclpp::jit
