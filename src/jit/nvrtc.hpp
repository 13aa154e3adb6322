// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// NVIDIA's compiler as a library, where it is there. It is opened when it is first needed: no program links it.
#pragma once

#include <string>

#include "jit/cuda_compiler.hpp"

namespace mscclpp::jit {

class Nvrtc final : public CudaCompiler {
 public:
  // Throws unsupported with where it was looked for: MSCCLPP_NVRTC, the loader's folders, CUDA_HOME. Headers of CUDA's
  // own standard library for kernels have to be beside it.
  static Nvrtc const& instance();

  std::string const& version() const noexcept override { return version_; }
  Image compile(Request const& request, int architecture) const override;

 private:
  Nvrtc();
  template <class Function>
  void find(char const* name, Function*& function);

  struct Program;
  void* library_ = nullptr;
  std::string version_;
  std::string standard_;  // folder of <cuda/std/...>
  int (*getVersion_)(int*, int*) = nullptr;
  int (*create_)(Program**, char const*, char const*, int, char const* const*, char const* const*) = nullptr;
  int (*destroy_)(Program**) = nullptr;
  int (*addName_)(Program*, char const*) = nullptr;
  int (*compile_)(Program*, int, char const* const*) = nullptr;
  int (*logSize_)(Program*, std::size_t*) = nullptr;
  int (*log_)(Program*, char*) = nullptr;
  int (*cubinSize_)(Program*, std::size_t*) = nullptr;
  int (*cubin_)(Program*, char*) = nullptr;
  int (*loweredName_)(Program*, char const*, char const**) = nullptr;
  char const* (*errorString_)(int) = nullptr;
  int (*setFlowCallback_)(Program*, int (*)(void*, void*), void*) = nullptr;  // newer ones have it
};

}  // namespace mscclpp::jit
