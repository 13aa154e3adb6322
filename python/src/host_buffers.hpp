// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Buffers of a call that may be anybody's memory: on the simulated machine what is no device memory, such as a CPU
// tensor, takes the call's bytes through memory that is. Elsewhere, and for device memory, it is the call's own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "bindings.hpp"
#include "mscclpp/collectives/algorithm.hpp"
#include "mscclpp/host/gpu_buffer.hpp"

namespace mscclpp::python {

bool isDeviceMemory(Runtime const& runtime, void const* pointer);

class HostBuffers {
 public:
  // Copies the input where it must be. `call` is changed to what the device can use, and outlives this. `keeper`: the
  // name of an algorithm that keeps what it makes for a buffer by its address, which memory that is new in each call
  // has not; throws invalidUsage there. Empty: none.
  HostBuffers(Communicator const& communicator, CollectiveCall& call, std::string const& keeper = {});
  bool used() const { return memory_.has_value(); }
  // Once the call is done: the output, to where the caller wants it.
  void finish() const;

 private:
  Device device_;
  std::optional<DeviceMemory> memory_;
  void* callersOut_ = nullptr;
  void const* out_ = nullptr;
  std::size_t outBytes_ = 0;
};

// start(stream) in the stream of that handle. Where `buffers` took part, as used() says, the call is done then, and
// finish() of them too.
template <class Buffers, class Start>
void runInStream(Communicator const& communicator, std::uintptr_t handle, Buffers const& buffers, Start const& start) {
  CallStream const in(communicator, handle);
  start(*in);
  in.finish(communicator);
  if (!buffers.used()) return;
  communicator.synchronize(*in);
  buffers.finish();
}

}  // namespace mscclpp::python
