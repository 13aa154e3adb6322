// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// NVRTC takes every public header of kernels, alone, for each generation of GPUs.
#include <doctest/doctest.h>

#include <array>
#include <span>
#include <string>
#include <string_view>

#include "jit/embedded.hpp"
#include "jit/nvrtc.hpp"
#include "mscclpp/layout/team_handle.hpp"

using namespace mscclpp;

namespace {

// Of kernels, and not of the simulated machine's.
bool isOfDevices(std::string_view name) {
  for (std::string_view const folder : {"mscclpp/base/", "mscclpp/layout/", "mscclpp/device/", "mscclpp/algorithms/"}) {
    if (name.starts_with(folder)) return name.find("/arch/sim/") == std::string_view::npos;
  }
  return name == "mscclpp/mscclpp.hpp" || name == "mscclpp/launch/late.hpp";
}

// What the compiler says.
std::string compiled(std::string_view header, int architecture) {
  jit::Source const source{"#include \"" + std::string(header) +
                           "\"\nstruct Nothing { __device__ void operator()() const {} };\n"};
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

TEST_CASE("every header of kernels compiles alone, for sm_80, sm_90 and sm_100") {
  int cases = 0;
  for (auto const& header : jit::embeddedHeaders()) {
    if (!isOfDevices(header.name)) continue;
    CAPTURE(header.name);
    for (int const architecture : {80, 90, 100}) {
      CAPTURE(architecture);
      CHECK(compiled(header.name, architecture) == "");
      ++cases;
    }
  }
  CHECK(cases > 3 * 80);
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
