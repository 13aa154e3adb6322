// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of bfloat16 matrices by cuBLAS, both with the summed dimension along their rows, as x and the weights of a
// linear layer have. Also into a stream that is being captured.
#pragma once

#include <cublas_v2.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "mscclpp/device/number.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/stream.hpp"

namespace product_bench {

inline void check(bool good, char const* what) {
  if (!good) throw mscclpp::Error(mscclpp::ErrorCode::deviceError, what);
}

struct Extent {
  std::uint32_t rows, columns, inner;
};

class Blas {
 public:
  // On the stream's device, which is the calling thread's current one. Throws Error.
  explicit Blas(mscclpp::Stream const& stream) : memory_(stream.device(), memoryBytes) {
    cublasHandle_t handle{};
    check(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS, "cublasCreate");
    handle_.reset(handle);
    check(cublasSetStream(handle, static_cast<cudaStream_t>(stream.native())) == CUBLAS_STATUS_SUCCESS &&
              cublasSetWorkspace(handle, memory_.data(), memoryBytes) == CUBLAS_STATUS_SUCCESS,
          "cublasSetStream");
  }

  // y(row, column) = sum over k of x(row, k) * w(column, k). cuBLAS goes by columns: y transposed is w times x
  // transposed.
  void multiply(mscclpp::bf16 const* x, mscclpp::bf16 const* w, mscclpp::bf16* y, Extent const& extent) const {
    float const one = 1, none = 0;
    auto const inner = static_cast<int>(extent.inner), columns = static_cast<int>(extent.columns);
    check(cublasGemmEx(handle_.get(), CUBLAS_OP_T, CUBLAS_OP_N, columns, static_cast<int>(extent.rows), inner, &one, w,
                       CUDA_R_16BF, inner, x, CUDA_R_16BF, inner, &none, y, CUDA_R_16BF, columns, CUBLAS_COMPUTE_32F,
                       CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_SUCCESS,
          "cublasGemmEx");
  }

 private:
  struct Destroy {
    void operator()(cublasHandle_t handle) const { cublasDestroy(handle); }
  };
  static constexpr std::size_t memoryBytes = 32 << 20;  // what cuBLAS takes on Hopper

  mscclpp::GpuBuffer<std::byte> memory_;
  std::unique_ptr<std::remove_pointer_t<cublasHandle_t>, Destroy> handle_;
};

}  // namespace product_bench
