// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The host's C++ compiler, which makes kernels of the simulated machine as shared objects. The program that loads one
// lends it the library's symbols.
#pragma once

#include <filesystem>
#include <string>

#include "jit/request.hpp"

namespace mscclpp::jit {

// The function of the shared object: void(Stream const&, LaunchShape const&, void const* arguments).
inline constexpr char const* lateFunction = "mscclppLateKernel";

// Its name and version, and whether it compiles kernels for the checker; throws unsupported where it does not run.
// MSCCLPP_CXX, else c++.
std::string hostCompiler();
// The shared object: with the checker's hooks where the program has them. Throws invalidUsage with the compiler's
// messages.
std::string compileForHost(Request const& request);

struct HostBuild {
  std::string source;  // a file
  std::string what;    // in messages
  std::filesystem::path into;
  bool hooked;  // with the options of mscclpp_add_check()
};
// Any source as a shared object, whose path this returns; the library's headers come first. Throws the same.
std::string buildForHost(HostBuild const& build, Options const& options);

}  // namespace mscclpp::jit
