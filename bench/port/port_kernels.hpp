// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels of one thread that time a port channel.
#pragma once

#include <cstdint>

#include "mscclpp/device/port_channel.hpp"

namespace port_bench {
inline namespace MSCCLPP_BACKEND {

using namespace mscclpp;

// Messages there and back: `rounds` of them after a tenth as many. Both ends run it, one as `first`.
struct PingPong {
  MSCCLPP_DEVICE void operator()(PortChannelDeviceHandle const& channel, bool first, std::uint64_t bytes,
                                 unsigned rounds, std::uint64_t* ns) const {
    std::uint64_t begin = 0;
    for (unsigned i = 0; i < rounds + rounds / 10; ++i) {
      if (i == rounds / 10) begin = arch::nanoseconds();
      if (first) {
        channel.putWithSignal(0, 0, bytes);
        channel.wait();
      } else {
        channel.wait();
        channel.putWithSignal(0, 0, bytes);
      }
    }
    *ns = arch::nanoseconds() - begin;
    channel.flush();
  }
};

// Puts one behind the other, until the last is complete.
struct Send {
  MSCCLPP_DEVICE void operator()(PortChannelDeviceHandle const& channel, std::uint64_t bytes, unsigned count,
                                 std::uint64_t* ns) const {
    auto const begin = arch::nanoseconds();
    for (unsigned i = 0; i < count; ++i) channel.put(0, 0, bytes);
    channel.flush();
    *ns = arch::nanoseconds() - begin;
  }
};

}  // namespace MSCCLPP_BACKEND
}  // namespace port_bench
