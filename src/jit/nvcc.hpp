// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// NVIDIA's compiler as a program, which takes some times as long as NVRTC.
#pragma once

#include <string>

#include "jit/cuda_compiler.hpp"

namespace mscclpp::jit {

class Nvcc final : public CudaCompiler {
 public:
  // The one that MSCCLPP_NVCC names, else of CUDA_HOME, the PATH or /usr/local/cuda. Throws unsupported.
  static Nvcc const& instance();

  std::string const& version() const noexcept override { return version_; }
  Image compile(Request const& request, int architecture) const override;

 private:
  Nvcc();

  std::string path_;
  std::string version_;
};

}  // namespace mscclpp::jit
