// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The instructions behind a port channel: a trigger is one store, with release order for the whole system.
#include "mscclpp/mscclpp.hpp"

using namespace mscclpp;

// ptx: pushKernel : atom\.relaxed\.gpu\.global\.add\.u64
// ptx: pushKernel : ld\.acquire\.gpu\.global\.b64
// ptx: pushKernel : st\.release\.sys\.global\.b128
// ptx-not: pushKernel : st\.relaxed
__global__ void pushKernel(layout::FifoHandle fifo, layout::Trigger trigger) { FifoDeviceHandle(fifo).push(trigger); }

// ptx: signalKernel : st\.release\.sys\.global\.b128
// ptx-not: signalKernel : red\.|fence
__global__ void signalKernel(layout::PortChannelHandle channel) { PortChannelDeviceHandle(channel).signal(); }

// ptx: waitKernel : ld\.acquire\.sys\.global\.b64
__global__ void waitKernel(layout::PortChannelHandle channel) { PortChannelDeviceHandle(channel).wait(); }

// ptx: flushKernel : st\.release\.sys\.global\.b128
// ptx: flushKernel : ld\.acquire\.sys\.global\.b64
__global__ void flushKernel(layout::PortChannelHandle channel) { PortChannelDeviceHandle(channel).flush(); }

// ptx: blockKernel : bar\.red\.popc|barrier(\.cta)?\.red\.popc
// ptx: blockKernel : st\.release\.sys\.global\.b128
// ptx: blockKernel : ld\.acquire\.sys\.global\.b64
// ptx: blockKernel : bar\.red\.popc|barrier(\.cta)?\.red\.popc
__global__ void blockKernel(layout::PortChannelHandle channel) {
  PortChannelDeviceHandle const port(channel);
  port.putWithSignal(thisBlock(), 0, 0, 64);
  port.wait(thisBlock());
}
