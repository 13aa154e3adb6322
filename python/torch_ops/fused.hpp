// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All-reduces whose kernel also scales, adds a residual and converts: out = scale * all-reduce(in) + residual.
//
// The sum is rounded to the type of the inputs, as without the rest; the rest is in the type that sums are kept in
// (float; for double double), and rounded once. It is the epilogue of the collective, in registers before the store.
// Where `out` has another type, the kernel stores the sum, too. Kernels are compiled when they are first needed.
#pragma once

#include <cstddef>

#include "torch/engine.hpp"

namespace mscclpp::torch {

struct FusedCall {
  void const* in = nullptr;
  void* out = nullptr;
  void* sum = nullptr;  // as many elements of `type`: `out` itself where that has the same type
  void const* residual = nullptr;
  std::size_t count = 0;
  DataType type = DataType::float32;
  DataType outType = DataType::float32;
  DataType residualType = DataType::float32;
  ReduceOp op = ReduceOp::sum;
  double scale = 1;
};

// Puts it into the stream, as Engine::start() does. The types are of floating numbers.
void startFused(Engine& engine, FusedCall const& fused, void* stream);

}  // namespace mscclpp::torch
