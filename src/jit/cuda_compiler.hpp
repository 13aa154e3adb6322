// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// NVIDIA's compiler in one of its two forms.
#pragma once

#include <string>

#include "jit/request.hpp"

namespace mscclpp::jit {

class CudaCompiler {
 public:
  virtual ~CudaCompiler() = default;
  // The process's: nvcc where MSCCLPP_NVCC names it, else NVRTC, else an nvcc that is found. Throws unsupported, with
  // where they were looked for.
  static CudaCompiler const& instance();

  // Of the compiler and of where its own headers are.
  virtual std::string const& version() const noexcept = 0;

  struct Image {
    std::string bytes;  // cubin
    std::string entry;  // its name there
  };
  // `architecture`: 90 for 9.0. Throws invalidUsage with the compiler's messages.
  virtual Image compile(Request const& request, int architecture) const = 0;
};

}  // namespace mscclpp::jit
