// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Timed kernels of one thread over a port channel, for each machine of the build.
#pragma once

#include <cstdint>

#include "mscclpp/host/stream.hpp"
#include "mscclpp/layout/port_handle.hpp"

namespace mscclpp::bench {

struct PortProbe {
  enum class Kind : std::uint8_t {
    pingPong,  // `count` messages of `bytes` there and back, and a tenth as many before; both ends run it
    puts,      // `count` puts of `bytes`, and a flush
  };
  Kind kind{};
  layout::PortChannelHandle channel{};
  std::uint64_t bytes = 0;
  unsigned count = 0;
  bool first = false;           // of the two ends of a ping-pong
  std::uint64_t* ns = nullptr;  // in device memory: what those `count` took
};

template <DeviceKind Kind>
void startPortProbe(Stream const& stream, PortProbe const& probe);
template <>
void startPortProbe<DeviceKind::sim>(Stream const& stream, PortProbe const& probe);
template <>
void startPortProbe<DeviceKind::cuda>(Stream const& stream, PortProbe const& probe);

}  // namespace mscclpp::bench
