// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// nvcc in NVRTC's place; needs no GPU.
#include <doctest/doctest.h>

#include <array>

#include "jit/kernels.hpp"
#include "jit/nvcc.hpp"
#include "mscclpp/layout/team_handle.hpp"

using namespace mscclpp_test;

TEST_CASE("a kernel is compiled, and its entry found; errors are the user's, by line") {
  auto source = scaleSource();
  std::string const type = "Scale<3>";
  jit::Options const options;
  std::array const parameters{jit::Extent{8, 8}, jit::Extent{8, 8}, jit::Extent{4, 4}, jit::Extent{8, 8}};
  jit::Request const request{source, type, options, parameters};
  auto const image = jit::CudaCompiler::instance().compile(request, 90);
  CHECK(image.bytes.substr(1, 3) == "ELF");
  CHECK(image.entry.find("lateEntry") != std::string::npos);
  CHECK(image.entry.find("Scale") != std::string::npos);
  CHECK(jit::CudaCompiler::instance().version() == jit::Nvcc::instance().version());
  source.text.replace(source.text.find("in[i]"), 5, "im[i]");
  CHECK_THROWS_WITH_AS((void)jit::Nvcc::instance().compile(request, 90),
                       doctest::Contains("scale.cpp(6): error: identifier \"im\""), Error);
}
