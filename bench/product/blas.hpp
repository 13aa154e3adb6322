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

// Products by the same w. The next one's rows of x and of y begin so many rows further.
struct Batch {
  std::uint32_t count = 1;
  std::uint32_t rowsOfX = 0, rowsOfY = 0;
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
  void multiply(mscclpp::bf16 const* x, mscclpp::bf16 const* w, mscclpp::bf16* y, Extent const& extent,
                Batch const& batch = {}) const {
    if (batch.count == 0) return;
    float const one = 1, none = 0;
    auto const rows = static_cast<int>(extent.rows), columns = static_cast<int>(extent.columns),
               inner = static_cast<int>(extent.inner);
    if (batch.count == 1) {
      check(cublasGemmEx(handle_.get(), CUBLAS_OP_T, CUBLAS_OP_N, columns, rows, inner, &one, w, CUDA_R_16BF, inner, x,
                         CUDA_R_16BF, inner, &none, y, CUDA_R_16BF, columns, CUBLAS_COMPUTE_32F,
                         CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_SUCCESS,
            "cublasGemmEx");
      return;
    }
    auto const strideOfX = static_cast<long long>(batch.rowsOfX) * inner;
    auto const strideOfY = static_cast<long long>(batch.rowsOfY) * columns;
    check(cublasGemmStridedBatchedEx(handle_.get(), CUBLAS_OP_T, CUBLAS_OP_N, columns, rows, inner, &one, w,
                                     CUDA_R_16BF, inner, 0, x, CUDA_R_16BF, inner, strideOfX, &none, y, CUDA_R_16BF,
                                     columns, strideOfY, static_cast<int>(batch.count), CUBLAS_COMPUTE_32F,
                                     CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_SUCCESS,
          "cublasGemmStridedBatchedEx");
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
