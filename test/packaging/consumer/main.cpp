// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs one kernel on the machine that this project was built for, through what the installed headers offer.
#include <mscclpp/host/gpu_buffer.hpp>
#include <mscclpp/launch/launch.hpp>
#include <mscclpp/mscclpp.hpp>
#include <mscclpp/version.hpp>

#include <cstdio>

struct Square {
  MSCCLPP_DEVICE void operator()(unsigned* values, unsigned count) const {
    auto const grid = mscclpp::thisGrid();
    for (unsigned i = grid.rank(); i < count; i += grid.size()) values[i] = i * i;
  }
};

int main() {
  mscclpp::Device const device{mscclpp::DeviceKind::CONSUMER_MACHINE, 0};
  std::printf("mscclpp %s\n", mscclpp::versionText);
  if (device.kind == mscclpp::DeviceKind::cuda && mscclpp::Device::count(device.kind) == 0) {
    std::printf("compiled and linked; no GPU to run on\n");
    return 0;
  }
  constexpr unsigned count = 1000;
  mscclpp::GpuBuffer<unsigned> values(device, count);
  mscclpp::Stream stream(device);
  mscclpp::launch(stream, {.blocks = 2, .threads = 96}, Square{}, values.data(), count);
  stream.synchronize();
  unsigned wrong = 0;
  auto const result = mscclpp::copyToHost(values);
  for (unsigned i = 0; i < count; ++i) wrong += result[i] != i * i;
  std::printf("%u of %u wrong\n", wrong, count);
  return wrong == 0 ? 0 : 1;
}
