// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Elements times a factor, for sums that multiply their inputs first, which rounds once, to the element's type; and
// integers divided, towards zero.
#pragma once

#include <array>
#include <cstddef>

#include "mscclpp/device/data_type.hpp"
#include "mscclpp/host/stream.hpp"

namespace mscclpp::nccl {

struct Factor {
  DataType type = DataType::float32;
  void const* device = nullptr;      // where it is read when the kernel runs; null: it is `value`
  std::array<std::byte, 8> value{};  // of `type`
};

// Throws unsupported for a machine whose kernels this program has not. `in` and `out` may be the same.
void scale(Stream const& stream, Factor const& factor, void const* in, void* out, std::size_t count);
void divide(Stream const& stream, DataType type, void* data, std::size_t count, int by);

// Loads the kernels of both for a device: a GPU loads one at its first launch, and waits with that until those that run
// have ended, which may in turn wait for what the caller does next.
void prepareScaling(Device device);

// The kernels of one machine, which scale.cpp has, compiled for each.
struct ScaleKernels {
  void (*scale)(Stream const& stream, Factor const& factor, void const* in, void* out, std::size_t count);
  void (*divide)(Stream const& stream, DataType type, void* data, std::size_t count, int by);
};
// Before main(); returns true.
bool haveScaling(DeviceKind kind, ScaleKernels const& kernels);

}  // namespace mscclpp::nccl
