// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host_buffers.hpp"

#include <algorithm>
#include <cstdint>

#include "mscclpp/base/bits.hpp"

namespace mscclpp::python {

bool isDeviceMemory(Runtime const& runtime, void const* pointer) {
  try {
    (void)runtime.allocationOf(pointer);
    return true;
  } catch (Error const&) {
    return false;
  }
}

HostBuffers::HostBuffers(Communicator const& communicator, CollectiveCall& call, std::string const& keeper)
    : device_(communicator.device()) {
  if (device_.kind != DeviceKind::sim) return;
  auto& runtime = device_.runtime();
  bool const hasIn = call.inBytes != 0 && call.in != nullptr, hasOut = call.outBytes != 0 && call.out != nullptr;
  bool const inIsThere = !hasIn || isDeviceMemory(runtime, call.in);
  bool const outIsThere = !hasOut || isDeviceMemory(runtime, call.out);
  if (inIsThere && outIsThere) return;
  if (inIsThere != outIsThere && hasIn && hasOut) {
    refuse("rank " + std::to_string(communicator.rank()) +
           ": one buffer of a call is memory of the simulated device and the other one is not; give two of a "
           "kind, such as two CPU tensors or two of RawGpuBuffer");
  }
  if (!keeper.empty()) {
    refuse("rank " + std::to_string(communicator.rank()) + ": '" + keeper +
           "' may keep what it makes for a buffer, by its address; give it memory of the device, such as "
           "GpuBuffer or RawGpuBuffer, and keep that");
  }
  auto const in = reinterpret_cast<std::uintptr_t>(call.in), out = reinterpret_cast<std::uintptr_t>(call.out);
  // Where they overlap, as in calls in place, they do so here.
  bool const together = hasIn && hasOut && in < out + call.outBytes && out < in + call.inBytes;
  constexpr std::size_t apart = 256;
  std::size_t inAt = 0, outAt = 0, bytes = 0;
  if (together) {
    auto const first = std::min(in, out);
    inAt = in - first;
    outAt = out - first;
    bytes = std::max(inAt + call.inBytes, outAt + call.outBytes);
  } else {
    outAt = roundUp(call.inBytes, apart);
    bytes = outAt + call.outBytes;
  }
  memory_.emplace(device_, bytes, MemoryKind::shareable);
  auto* const base = static_cast<std::byte*>(memory_->data());
  callersOut_ = call.out;
  // What a call does not write stays the caller's.
  if (hasOut) runtime.copy(base + outAt, call.out, call.outBytes);
  if (hasIn) {
    runtime.copy(base + inAt, call.in, call.inBytes);
    call.in = base + inAt;
  }
  if (hasOut) {
    call.out = base + outAt;
    out_ = call.out;
    outBytes_ = call.outBytes;
  }
}

void HostBuffers::finish() const {
  if (outBytes_ != 0) device_.runtime().copy(callersOut_, out_, outBytes_);
}

}  // namespace mscclpp::python
