// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is compiled and run, on either machine.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "mscclpp/host/error.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/ranks.hpp"
#include "mscclpp/host/team.hpp"
#include "mscclpp/jit/kernel.hpp"
#include "mscclpp/mscclpp.hpp"
#include "support/temporary_folder.hpp"

namespace mscclpp_test {

using namespace mscclpp;

// Before the first kernel: what is compiled here stays out of the user's cache.
struct OwnCache {
  TemporaryFolder folder;
  OwnCache() { ::setenv("MSCCLPP_CACHE_DIR", folder.path().c_str(), 1); }
};

inline jit::Source scaleSource() {
  return {R"(#include "mscclpp/device/group.hpp"
template <int Factor>
struct Scale {
  MSCCLPP_DEVICE void operator()(float const* in, float* out, std::uint32_t count, double plus) const {
    auto const grid = mscclpp::thisGrid();
    for (auto i = grid.rank(); i < count; i += grid.size()) out[i] = in[i] * Factor + static_cast<float>(plus);
  }
};
)",
          "scale.cpp"};
}

using Scale = jit::Kernel<void(float const*, float*, std::uint32_t, double)>;

inline void checkScale(Device device) {
  constexpr std::uint32_t count = 1000;
  Stream const stream(device);
  GpuBuffer<float> in(device, count), out(device, count);
  std::vector<float> values(count);
  for (std::uint32_t i = 0; i < count; ++i) values[i] = static_cast<float>(i);
  copyToDevice(in, std::span<float const>(values));
  for (int const factor : {2, 5}) {
    Scale const scale(device, scaleSource(), "Scale<" + std::to_string(factor) + ">");
    scale.launch(stream, {.blocks = 2, .threads = 64}, in.data(), out.data(), count, 0.5);
    stream.synchronize();
    auto const got = copyToHost(out);
    bool right = true;
    for (std::uint32_t i = 0; i < count; ++i) right = right && got[i] == values[i] * static_cast<float>(factor) + 0.5f;
    CHECK(right);
  }
}

// A collective of the library's templates in the kernel, between ranks.
inline void checkCollective(DeviceKind kind) {
  jit::Source const source{R"(#include "mscclpp/mscclpp.hpp"
using namespace mscclpp;
struct Sum2 {
  MSCCLPP_DEVICE void operator()(float const* in, float* out, std::size_t count, DeviceTeam const& team) const {
    AllReduce<OneShot, PacketTransport<LL16>, Sum>{team}(thisGrid(), View{in, count}, View{out, count});
  }
};
)",
                           "sum2.cpp"};
  runRanks(devicesInTurn(kind, 2), [&](Communicator& communicator) {
    constexpr std::size_t count = 500;
    jit::Kernel<void(float const*, float*, std::size_t, layout::TeamHandle)> const sum(communicator.device(), source,
                                                                                       "Sum2");
    Team const team(communicator, AllReduce<OneShot, PacketTransport<LL16>, Sum>::requirement(2, 2, 64));
    Stream const stream(communicator.device());
    GpuBuffer<float> in(communicator.device(), count), out(communicator.device(), count);
    copyToDevice(in, std::span<float const>(std::vector<float>(count, static_cast<float>(communicator.rank() + 1))));
    sum.launch(stream, {.blocks = 2, .threads = 64}, in.data(), out.data(), count, team.deviceHandle());
    communicator.synchronize(stream);
    CHECK(copyToHost(out) == std::vector<float>(count, 3));
    communicator.bootstrap()->barrier();
  });
}

inline std::string said(Device device, jit::Source const& source, std::string const& type,
                        jit::Options const& options = {}) {
  try {
    Scale const kernel(device, source, type, options);
    return "";
  } catch (Error const& error) {
    return error.what();
  }
}

}  // namespace mscclpp_test
