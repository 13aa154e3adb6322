// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What NCCL's interface does on the device beside collectives and messages: elements times a factor, for sums that
// multiply their inputs first, which rounds once, to the element's type; integers divided, towards zero; and signals.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "mscclpp/device/data_type.hpp"
#include "mscclpp/host/stream.hpp"
#include "mscclpp/layout/watch.hpp"

namespace mscclpp::nccl {

struct Factor {
  DataType type = DataType::float32;
  void const* device = nullptr;      // where it is read when the kernel runs; null: it is `value`
  std::array<std::byte, 8> value{};  // of `type`
};

// One of another rank's, and how many of them this one has waited for.
struct SignalWait {
  std::uint64_t const* arrived;
  std::uint64_t* awaited;
  std::uint64_t count;  // more
  layout::Watch* watch;
  std::int32_t peer;
  std::uint32_t id;  // for the report of a wait that did not end
};

// Throws unsupported for a machine whose kernels this program has not. `in` and `out` may be the same.
void scale(Stream const& stream, Factor const& factor, void const* in, void* out, std::size_t count);
void divide(Stream const& stream, DataType type, void* data, std::size_t count, int by);
// One more there, behind all that is in the stream.
void signal(Stream const& stream, std::uint64_t* arrived);
void waitForSignals(Stream const& stream, SignalWait const& wait);

// Loads the kernels of all for a device: a GPU loads one at its first launch, and waits with that until those that run
// have ended, which may in turn wait for what the caller does next.
void prepareKernels(Device device);

// The kernels of one machine, which kernels.cpp has, compiled for each.
struct OwnKernels {
  void (*scale)(Stream const& stream, Factor const& factor, void const* in, void* out, std::size_t count);
  void (*divide)(Stream const& stream, DataType type, void* data, std::size_t count, int by);
  void (*signal)(Stream const& stream, std::uint64_t* arrived);  // null: nothing
  void (*wait)(Stream const& stream, SignalWait const& wait);
};
// Before main(); returns true.
bool haveKernels(DeviceKind kind, OwnKernels const& kernels);

}  // namespace mscclpp::nccl
