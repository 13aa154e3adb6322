// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/jit/kernel.hpp"

#include <map>
#include <mutex>

#include "base/format.hpp"
#include "jit/cache.hpp"
#include "jit/machine.hpp"

namespace mscclpp::jit {
namespace {

struct Known {
  std::mutex mutex;
  std::map<std::pair<Key128, int>, std::shared_ptr<AnyKernel::Loaded const>> kernels;  // by fingerprint and device

  static Known& instance() {
    // Not destroyed: kernels may be unloaded only while their device is there.
    static auto* const known = new Known;
    return *known;
  }
};

}  // namespace

AnyKernel::AnyKernel(Device device, Source const& source, std::string const& type, std::span<Extent const> parameters,
                     Options const& options) {
  Request const request{source, type, options, parameters};
  auto& machine = machineOf(device.kind);
  auto const key = fingerprintOf(request).add(machine.compiler(device)).value();
  auto& known = Known::instance();
  std::lock_guard const lock(known.mutex);
  auto& kernel = known.kernels[{key, device.ordinal}];
  if (kernel == nullptr) {
    auto const compiled = Cache::instance().get(key, [&] { return machine.compile(request, device); });
    kernel = machine.load(compiled, device, type);
  }
  loaded_ = kernel;
}

void AnyKernel::launch(Stream const& stream, LaunchShape const& shape, void const* arguments) const {
  loaded_->launch(stream, shape, arguments);
}

}  // namespace mscclpp::jit
