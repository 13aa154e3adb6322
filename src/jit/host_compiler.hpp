// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The host's C++ compiler, which makes kernels of the simulated machine as shared objects. The program that loads one
// lends it the library's symbols.
#pragma once

#include <string>

#include "jit/request.hpp"

namespace mscclpp::jit {

// The function of the shared object: void(Stream const&, LaunchShape const&, void const* arguments).
inline constexpr char const* lateFunction = "mscclppLateKernel";

// Its name and version; throws unsupported where it does not run. MSCCLPP_CXX, else c++.
std::string hostCompiler();
// By which name it is called.
std::string hostCompilerName();
// The shared object. Throws invalidUsage with the compiler's messages.
std::string compileForHost(Request const& request);

}  // namespace mscclpp::jit
