// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A source file as the shared object that mscclpp-check loads, without a build system.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace mscclpp::tools {

bool isSource(std::string const& path);

// Compiles it into the folder by the compiler that MSCCLPP_CXX names, with the compiler's hooks and the library's
// headers, which the command holds. `definitions`: "NAME" or "NAME=VALUE"; `folders`: of the user's headers, behind the
// source's own. Returns the object's path. Throws Error with the compiler's messages.
std::string compileChecked(std::string const& source, std::vector<std::string> const& definitions,
                           std::vector<std::string> const& folders, std::filesystem::path const& into);

}  // namespace mscclpp::tools
