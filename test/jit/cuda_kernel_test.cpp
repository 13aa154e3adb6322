// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels of a GPU, compiled by NVRTC while this runs.
#include <doctest/doctest.h>

#include "jit/cache.hpp"
#include "jit/kernels.hpp"

using namespace mscclpp_test;

namespace {

OwnCache const ownCache;
Device const device{DeviceKind::cuda, 0};

bool hasGpu() {
  if (Device::count(DeviceKind::cuda) != 0) return true;
  MESSAGE("there is no GPU here");
  return false;
}

}  // namespace

TEST_CASE("a kernel type is compiled, instances of a template too, and once each") {
  if (!hasGpu()) return;
  checkScale(device);
  CHECK(jit::Cache::instance().counts().made == 2);
  checkScale(device);
  CHECK(jit::Cache::instance().counts().made == 2);
}

TEST_CASE("kernels take teams, and call the library's collectives") {
  if (hasGpu()) checkCollective(DeviceKind::cuda);
}

TEST_CASE("errors are the compiler's, by the user's lines") {
  if (!hasGpu()) return;
  auto wrong = scaleSource();
  wrong.text.replace(wrong.text.find("in[i]"), 5, "im[i]");
  CHECK(said(device, wrong, "Scale<3>").find("scale.cpp(6): error: identifier \"im\"") != std::string::npos);
}

TEST_CASE("impossible launches are refused") {
  if (!hasGpu()) return;
  jit::Kernel<void()> const nothing(device, {"struct Nothing { __device__ void operator()() const {} };"}, "Nothing");
  Stream const stream(device);
  nothing.launch(stream, {.blocks = 3, .threads = 32});
  stream.synchronize();
  CHECK_THROWS_AS(nothing.launch(stream, {.blocks = 0, .threads = 32}), Error);
  CHECK_THROWS_AS(nothing.launch(stream, {.blocks = 1, .threads = 2000}), Error);
}
