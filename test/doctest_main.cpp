// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The main function of every test program.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdlib>

int main(int argc, char** argv) {
  // Ranks may share a GPU; see mscclpp/host/ranks.hpp. CUDA reads these when it is first used.
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  return doctest::Context(argc, argv).run();
}
