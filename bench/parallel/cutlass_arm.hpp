// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A product with its collective by CUTLASS's kernels, as in examples/cutlass, where the program was built with them.
#pragma once

#include <functional>

#include "mscclpp/device/number.hpp"
#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/stream.hpp"
#include "parallel/parallel_bench.hpp"

namespace parallel_bench {

// Of a shape of one rank, whose buffers are the same on all; `side` is for what goes beside the product.
struct CutlassOperands {
  mscclpp::Communicator const& communicator;
  mscclpp::Stream const& stream;
  mscclpp::Stream const& side;
  mscclpp::bf16 const* x;
  mscclpp::bf16 const* w;
  mscclpp::GpuBuffer<mscclpp::bf16> const& between;  // the gathered rows, or the owner's slots
  mscclpp::bf16* y;
};

// Puts one operation into the stream. Collective. Empty without CUTLASS, for other numbers of ranks than 2 and 4, and
// where a rank's rows are no whole clusters of tiles.
std::function<void()> cutlassArm(Shape const& shape, CutlassOperands const& operands);

}  // namespace parallel_bench
