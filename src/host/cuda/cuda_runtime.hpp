// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where the CUDA machine comes from. Null, with the reason in `missing`, where this build or this computer has none.
#pragma once

#include <memory>
#include <string>

#include "mscclpp/host/runtime.hpp"

namespace mscclpp {

#if defined(MSCCLPP_HAS_CUDA)
std::unique_ptr<Runtime> makeCudaRuntime(std::string& missing);
#else
inline std::unique_ptr<Runtime> makeCudaRuntime(std::string& missing) {
  missing = "this build of the library has no CUDA (MSCCLPP_USE_CUDA)";
  return nullptr;
}
#endif

}  // namespace mscclpp
