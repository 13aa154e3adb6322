// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "base/format.hpp"
#include "nccl/scale.hpp"

namespace mscclpp::nccl {
namespace {

std::map<DeviceKind, ScaleKernels>& machines() {
  static std::map<DeviceKind, ScaleKernels> all;
  return all;
}

ScaleKernels const& kernelsOf(Device device) {
  auto const found = machines().find(device.kind);
  if (found == machines().end()) {
    fail(ErrorCode::unsupported, "this build has no kernels that scale on {} devices", nameOf(device.kind));
  }
  return found->second;
}

}  // namespace

bool haveScaling(DeviceKind kind, ScaleKernels const& kernels) { return machines().emplace(kind, kernels).second; }

void prepareScaling(Device device) {
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
  stream.synchronize();
  prepared.insert({device.kind, device.ordinal});
}

void divide(Stream const& stream, DataType type, void* data, std::size_t count, int by) {
  if (count != 0) kernelsOf(stream.device()).divide(stream, type, data, count, by);
}

void scale(Stream const& stream, Factor const& factor, void const* in, void* out, std::size_t count) {
  if (count != 0) kernelsOf(stream.device()).scale(stream, factor, in, out, count);
}

}  // namespace mscclpp::nccl
