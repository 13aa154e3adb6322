// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "jit/cuda_compiler.hpp"

#include "base/format.hpp"
#include "jit/nvcc.hpp"
#include "jit/nvrtc.hpp"
#include "mscclpp/host/env.hpp"

namespace mscclpp::jit {

CudaCompiler const& CudaCompiler::instance() {
  static CudaCompiler const& chosen = []() -> CudaCompiler const& {
    if (!processVariable("MSCCLPP_NVCC").value_or("").empty()) return Nvcc::instance();
    try {
      return Nvrtc::instance();
    } catch (Error const& noLibrary) {
      // Whoever names one wants that.
      if (noLibrary.code() != ErrorCode::unsupported || !processVariable("MSCCLPP_NVRTC").value_or("").empty()) throw;
      try {
        return Nvcc::instance();
      } catch (Error const& noProgram) {
        fail(ErrorCode::unsupported, "{}\n{}", noLibrary.what(), noProgram.what());
      }
    }
  }();
  return chosen;
}

}  // namespace mscclpp::jit
