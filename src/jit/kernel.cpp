// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/jit/kernel.hpp"

#include <map>
#include <mutex>

#include "base/format.hpp"
#include "jit/cache.hpp"
#include "jit/machine.hpp"

namespace mscclpp::jit {
namespace {

// One that is known, or being made, which those who ask for the same wait for.
struct Entry {
  std::mutex mutex;
  std::shared_ptr<AnyKernel::Loaded const> kernel;
};

Entry& entryOf(Key128 const& key, Device device) {
  struct Known {
    std::mutex mutex;
    std::map<std::pair<Key128, int>, Entry> entries;  // by fingerprint and device
  };
  // Not destroyed: kernels may be unloaded only while their device is there.
  static auto* const known = new Known;
  std::lock_guard const lock(known->mutex);
  return known->entries[{key, device.ordinal}];
}

Key128 keyOf(Request const& request, Target const& target) {
  return fingerprintOf(request).add(machineOf(target.kind).compiler(target)).value();
}

}  // namespace

Target targetOf(Device device) { return machineOf(device.kind).targetOf(device); }

bool prepareKernel(Target const& target, Source const& source, std::string const& type,
                   std::span<Extent const> parameters, Options const& options) {
  Request const request{source, type, options, parameters};
  bool found = true;
  (void)Cache::instance().get(keyOf(request, target), [&] {
    found = false;
    return machineOf(target.kind).compile(request, target);
  });
  return found;
}

AnyKernel::AnyKernel(Device device, Source const& source, std::string const& type, std::span<Extent const> parameters,
                     Options const& options) {
  Request const request{source, type, options, parameters};
  auto& machine = machineOf(device.kind);
  auto const target = machine.targetOf(device);
  auto const key = keyOf(request, target);
  auto& entry = entryOf(key, device);
  std::lock_guard const lock(entry.mutex);
  if (entry.kernel == nullptr) {
    auto const compiled = Cache::instance().get(key, [&] { return machine.compile(request, target); });
    entry.kernel = machine.load(compiled, device, type);
  }
  loaded_ = entry.kernel;
}

void AnyKernel::launch(Stream const& stream, LaunchShape const& shape, void const* arguments) const {
  loaded_->launch(stream, shape, arguments);
}

}  // namespace mscclpp::jit
