// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels that take handles of channels made in Python, by value; exchange.py compiles and calls them.
#include <cstdint>
#include <cstring>
#include <mscclpp/launch/launch.hpp>
#include <mscclpp/mscclpp.hpp>
#include <stdexcept>
#include <string>

#include <pybind11/pybind11.h>

using namespace mscclpp;

// One block puts the first `bytes` of its memory behind as many of the peer's, and waits for the peer's.
struct ByThreads {
  MSCCLPP_DEVICE void operator()(DeviceHandle<MemoryChannel> const& channel, std::uint64_t bytes) const {
    auto const block = thisBlock();
    channel.put(block, /*dstOffset=*/bytes, /*srcOffset=*/0, bytes);
    block.sync();
    if (block.rank() == 0) {
      channel.signal();
      channel.wait();
    }
  }
};

// The same by the host's proxy.
struct ByProxy {
  MSCCLPP_DEVICE void operator()(DeviceHandle<PortChannel> const& channel, std::uint64_t bytes) const {
    auto const block = thisBlock();
    channel.putWithSignal(block, /*dstOffset=*/bytes, /*srcOffset=*/0, bytes);
    channel.wait(block);
    channel.flush(block);
  }
};

template <class Kernel, class Channel>
void run(std::string const& raw, std::uint64_t bytes, int device, std::uintptr_t stream) {
  DeviceHandle<Channel> handle;
  if (raw.size() != sizeof handle) throw std::invalid_argument("these are not the bytes of such a channel's handle");
  std::memcpy(static_cast<void*>(&handle), raw.data(), sizeof handle);
  auto const queue = Stream::borrow({kernelDevice, device}, reinterpret_cast<void*>(stream));
  launch(queue, {.blocks = 1, .threads = 128}, Kernel{}, handle, bytes);
}

PYBIND11_MODULE(exchange, binding) {
  binding.def("by_threads", &run<ByThreads, MemoryChannel>);
  binding.def("by_proxy", &run<ByProxy, PortChannel>);
}
