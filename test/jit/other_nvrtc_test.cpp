// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An NVRTC that is loaded already and has no headers beside it, as PyTorch's, does not hide the toolkit's.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>

#include "jit/nvrtc.hpp"
#include "support/temporary_folder.hpp"

using namespace mscclpp;
namespace fs = std::filesystem;

TEST_CASE("the NVRTC of another library of the process") {
  auto const* const toolkit = std::getenv("MSCCLPP_TEST_TOOLKIT");
  REQUIRE(toolkit != nullptr);
  mscclpp_test::TemporaryFolder const folder;
  auto const lone = folder.file("lib") + "/libnvrtc.so.13";
  fs::create_directory(folder.file("lib"));
  fs::copy_file(fs::canonical(std::string(toolkit) + "/lib64/libnvrtc.so"), lone);
  REQUIRE(::dlopen(lone.c_str(), RTLD_NOW) != nullptr);
  ::setenv("CUDA_HOME", toolkit, 1);
  CHECK(jit::Nvrtc::instance().version().find(folder.path().string()) == std::string::npos);
  jit::Source const source{"#include <cstdint>\nstruct Nothing { __device__ void operator()() const {} };\n"};
  std::string const type = "Nothing";
  jit::Options const options;
  CHECK_FALSE(jit::Nvrtc::instance().compile({source, type, options, {}}, 90).bytes.empty());
}
