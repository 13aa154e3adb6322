// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compilers that are programs.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace mscclpp::jit {

// The exit status, 127 where it does not run; what it prints goes to the file. No shell sees the arguments.
int runCommand(std::vector<std::string> const& command, std::filesystem::path const& output);

// The library's headers, for those who read files.
void writeHeaders(std::filesystem::path const& folder);

}  // namespace mscclpp::jit
