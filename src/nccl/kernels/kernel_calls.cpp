// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "base/format.hpp"
#include "nccl/kernels/kernels.hpp"

namespace mscclpp::nccl {
namespace {

std::map<DeviceKind, OwnKernels>& machines() {
  static std::map<DeviceKind, OwnKernels> all;
  return all;
}

OwnKernels const& kernelsOf(Device device) {
  auto const found = machines().find(device.kind);
  if (found == machines().end()) {
    fail(ErrorCode::unsupported, "this build has no kernels of NCCL's interface for {} devices", nameOf(device.kind));
  }
  return found->second;
}

}  // namespace

bool haveKernels(DeviceKind kind, OwnKernels const& kernels) { return machines().emplace(kind, kernels).second; }

void prepareKernels(Device device) {
  static std::mutex mutex;
  static std::set<std::pair<DeviceKind, int>> prepared;
  std::lock_guard const lock(mutex);
  if (prepared.contains({device.kind, device.ordinal})) return;
  auto const& kernels = kernelsOf(device);
  Stream const stream(device);
  for (auto const type : dataTypes) {
    kernels.scale(stream, {.type = type}, nullptr, nullptr, 0);
    kernels.divide(stream, type, nullptr, 0, 1);
  }
  kernels.signal(stream, nullptr);
  kernels.wait(stream, {});
  stream.synchronize();
  prepared.insert({device.kind, device.ordinal});
}

void divide(Stream const& stream, DataType type, void* data, std::size_t count, int by) {
  if (count != 0) kernelsOf(stream.device()).divide(stream, type, data, count, by);
}

void scale(Stream const& stream, Factor const& factor, void const* in, void* out, std::size_t count) {
  if (count != 0) kernelsOf(stream.device()).scale(stream, factor, in, out, count);
}

void signal(Stream const& stream, std::uint64_t* arrived) { kernelsOf(stream.device()).signal(stream, arrived); }

void waitForSignals(Stream const& stream, SignalWait const& wait) { kernelsOf(stream.device()).wait(stream, wait); }

}  // namespace mscclpp::nccl
