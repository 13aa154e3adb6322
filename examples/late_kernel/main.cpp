// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A kernel whose source is known only while the program runs: a polynomial that is typed in, say.
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/jit/kernel.hpp"
#include "mscclpp/launch/launch.hpp"

using namespace mscclpp;

int main(int argc, char** argv) {
  std::string const polynomial = argc > 1 ? argv[1] : "3 * x * x - 2 * x + 1";
  jit::Source const source{R"(#include "mscclpp/device/group.hpp"
struct Polynomial {
  MSCCLPP_DEVICE void operator()(float const* in, float* out, std::uint32_t count) const {
    auto const grid = mscclpp::thisGrid();
    for (auto i = grid.rank(); i < count; i += grid.size()) {
      float const x = in[i];
      out[i] = )" + polynomial +
                               R"(;
    }
  }
};
)",
                           "polynomial.cpp"};
  try {
    Device const device{kernelDevice, 0};
    jit::Kernel<void(float const*, float*, std::uint32_t)> const kernel(device, source, "Polynomial");
    std::vector<float> const values{0, 1, 2, 3, 4, 5, 6, 7};
    Stream const stream(device);
    GpuBuffer<float> in(device, values.size()), out(device, values.size());
    copyToDevice(in, std::span<float const>(values));
    kernel.launch(stream, {.blocks = 1, .threads = 32}, in.data(), out.data(), std::uint32_t{8});
    stream.synchronize();
    bool right = true;
    auto const results = copyToHost(out);
    for (std::size_t i = 0; i < values.size(); ++i) {
      float const x = values[i];
      std::printf("%s of %g: %g\n", polynomial.c_str(), static_cast<double>(x), static_cast<double>(results[i]));
      right = right && (argc > 1 || results[i] == 3 * x * x - 2 * x + 1);
    }
    return right ? 0 : 1;
  } catch (Error const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
