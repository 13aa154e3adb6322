// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All-reduces of rows with a residual and a norm behind them, what a tensor-parallel transformer does between layers:
// kept = all-reduce(in) + residual, y = kept / rms(kept) * weight, computed in float.
//
// Few rows take one kernel, in which every rank makes every row: one exchange, the sum is not rounded before the
// residual is added. Where that would send too much, an all-reduce of the library, which rounds its sum, goes ahead of
// a norm; and a single rank takes the norm alone. Kernels are compiled when they are first needed.
#pragma once

#include <cstddef>

#include "torch/engine.hpp"

namespace mscclpp::torch {

struct NormCall {
  void const* in = nullptr;        // rows * columns elements, as `residual`, `y` and `kept`
  void const* residual = nullptr;  // may be null
  void const* weight = nullptr;    // columns
  void* y = nullptr;
  void* kept = nullptr;
  std::size_t rows = 0;  // neither is 0
  std::size_t columns = 0;
  DataType type = DataType::float32;
  float epsilon = 0;
};

// Puts it into the stream, as Engine::start() does. The type is float16, bfloat16 or float32.
void startNorm(Engine& engine, NormCall const& call, void* stream);

}  // namespace mscclpp::torch
