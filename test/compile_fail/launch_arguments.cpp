// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// cuda
// expect: launch: give one argument for each parameter of the kernel
#include "mscclpp/launch/launch.hpp"

using namespace mscclpp;

struct Kernel {
  MSCCLPP_DEVICE void operator()(int*, int) const {}
};

void start(Stream const& stream, int* words) {
#if defined(MSCCLPP_EXPECT_FAILURE)
  launch(stream, {.blocks = 1}, Kernel{}, words);
#else
  launch(stream, {.blocks = 1}, Kernel{}, words, 3);
#endif
}
