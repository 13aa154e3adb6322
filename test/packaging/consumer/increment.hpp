// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A kernel that counts its threads, with or without a race.
#pragma once

#include <mscclpp/host/gpu_buffer.hpp>
#include <mscclpp/launch/launch.hpp>
#include <mscclpp/mscclpp.hpp>

struct Increment {
  MSCCLPP_DEVICE void operator()(unsigned* count, bool race) const {
    if (race) {
      *count += 1;
    } else {
      mscclpp::fetchAdd<mscclpp::Order::relaxed, mscclpp::Scope::device>(count, 1u);
    }
  }
};

inline void increment(int deviceIndex, bool race) {
  mscclpp::Device const device{mscclpp::DeviceKind::sim, deviceIndex};
  mscclpp::GpuBuffer<unsigned> count(device, 1);
  mscclpp::Stream stream(device);
  mscclpp::launch(stream, {.blocks = 2, .threads = 32}, Increment{}, count.data(), race);
  stream.synchronize();
}
