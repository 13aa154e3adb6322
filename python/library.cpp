// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The one source of libmscclpp.so, which otherwise is made of the compiled libraries.
#include "mscclpp/version.hpp"

// Whoever finds the library in a process can tell which one it is.
extern "C" char const* mscclppLibraryVersion() { return mscclpp::versionText; }
