// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// NVRTC takes every public header of kernels, alone for one generation of GPUs, all at once for the others.
#include <doctest/doctest.h>

#include <array>
#include <cstdlib>
#include <span>
#include <sstream>
#include <string>

#include "jit/nvrtc.hpp"
#include "mscclpp/layout/team_handle.hpp"

using namespace mscclpp;

namespace {

// What the compiler says of a kernel after these lines.
std::string compiled(std::string const& includes, int architecture) {
  jit::Source const source{includes + "struct Nothing { __device__ void operator()() const {} };\n"};
  std::string const type = "Nothing";
  jit::Options const options;
  try {
    auto const image = jit::Nvrtc::instance().compile({source, type, options, {}}, architecture);
    return image.bytes.empty() ? "no code" : "";
  } catch (Error const& error) {
    return error.what();
  }
}

}  // namespace

// NVRTC declares nothing by itself, so that it finds whatever a header lacks.
TEST_CASE("every header of kernels compiles alone, and all of them for every generation") {
  auto const* const named = std::getenv("MSCCLPP_TEST_HEADERS");  // by test/jit/CMakeLists.txt
  REQUIRE(named != nullptr);
  std::istringstream names(named);
  int cases = 0;
  std::string all;
  for (std::string name; std::getline(names, name, ':');) {
    CAPTURE(name);
    std::string const line = "#include \"" + name + "\"\n";
    CHECK(compiled(line + line, 90) == "");
    all += line;
    ++cases;
  }
  CHECK(cases > 80);
  for (int const architecture : {80, 100}) {
    CAPTURE(architecture);
    CHECK(compiled(all, architecture) == "");
  }
}

TEST_CASE("a norm of whole rows compiles: functions of <cmath>, reductions, quantisation") {
  jit::Source const source{R"(
#include <cmath>
#include "mscclpp/algorithms/rows/all_reduce_rows.hpp"
using namespace mscclpp;
template <class Transport>
struct Norm {
  __device__ void operator()(MatrixView<BFloat16> x, MatrixView<Float8E4M3> q, MatrixView<float> s,
                             DeviceTeam const& team) const {
    AllReduceRows<RowOneShot, Transport, Sum>{team}(thisGrid(), x, [&](auto& row) {
      float const norm = 1 / std::sqrt(row.sum([](float v) { return v * v; }) / row.columns());
      row.map([=](float v) { return v * norm; });
      row.store(x);
      row.quantise(q, s);
    });
  }
};)"};
  for (std::string const type : {"Norm<PacketTransport<LL128, 2>>", "Norm<MemoryTransport<2>>"}) {
    std::array const parameters{jit::Extent{32, 8}, jit::Extent{32, 8}, jit::Extent{32, 8},
                                jit::Extent{sizeof(layout::TeamHandle), alignof(layout::TeamHandle)}};
    jit::Options const options;
    CHECK(!jit::Nvrtc::instance().compile({source, type, options, parameters}, 90).bytes.empty());
  }
}

TEST_CASE("an error is the user's, by line; parameters are compared") {
  std::string const type = "Add";
  jit::Options const options;
  auto const said = [&](std::string const& text, std::span<jit::Extent const> parameters) -> std::string {
    jit::Source const source{text, "mine.cu"};
    try {
      (void)jit::Nvrtc::instance().compile({source, type, options, parameters}, 90);
      return "";
    } catch (Error const& error) {
      return error.what();
    }
  };
  std::array const two{jit::Extent{8, 8}, jit::Extent{4, 4}};
  std::string const right = "struct Add {\n  __device__ void operator()(float* to, int by) const { *to += by; }\n};\n";
  CHECK(said(right, two) == "");
  CHECK(said(right, std::span(two).first(1)).find("are not as many, or not as long") != std::string::npos);
  auto const wrong =
      said("struct Add {\n  __device__ void operator()(float* to, int by) const { *to += buy; }\n};\n", two);
  CHECK(wrong.find("kernel Add of mine.cu, for sm_90, does not compile:\nmine.cu(2): error: identifier \"buy\"") !=
        std::string::npos);
}
