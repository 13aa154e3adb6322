// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compiled for each machine.
#include "machine/port_probe.hpp"

#include "mscclpp/launch/launch.hpp"
#include "port/port_kernels.hpp"

namespace mscclpp::bench {

template <>
void startPortProbe<kernelDevice>(Stream const& stream, PortProbe const& probe) {
  LaunchShape const shape{.blocks = 1, .threads = 1};
  PortChannelDeviceHandle const channel(probe.channel);
  if (probe.kind == PortProbe::Kind::pingPong) {
    launch(stream, shape, port_bench::PingPong{}, channel, probe.first, probe.bytes, probe.count, probe.ns);
  } else {
    launch(stream, shape, port_bench::Send{}, channel, probe.bytes, probe.count, probe.ns);
  }
}

}  // namespace mscclpp::bench
