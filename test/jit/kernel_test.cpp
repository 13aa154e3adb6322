// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels of the simulated machine, compiled while this runs.
#include "mscclpp/jit/kernel.hpp"

#include <doctest/doctest.h>

#include <fstream>

#include "jit/cache.hpp"
#include "jit/kernels.hpp"

using namespace mscclpp_test;

namespace {

OwnCache const ownCache;
Device const device{DeviceKind::sim, 0};

}  // namespace

TEST_CASE("a kernel type is compiled, instances of a template too, and once each") {
  checkScale(device);
  auto const made = jit::Cache::instance().counts().made;
  CHECK(made == 2);
  checkScale(device);
  CHECK(jit::Cache::instance().counts().made == made);
  CHECK(jit::Cache::instance().counts().found == 0);  // it is in memory
}

TEST_CASE("kernels take teams, and call the library's collectives") { checkCollective(DeviceKind::sim); }

TEST_CASE("errors are the compiler's, by the user's lines") {
  auto wrong = scaleSource();
  wrong.text.replace(wrong.text.find("in[i]"), 5, "im[i]");
  auto const text = said(device, wrong, "Scale<3>");
  CHECK(text.find("kernel Scale<3> of scale.cpp, for the simulated machine, does not compile:") != std::string::npos);
  CHECK(text.find("scale.cpp:6:") != std::string::npos);
  CHECK(text.find("im") != std::string::npos);
  CHECK(said(device, scaleSource(), "Skale<3>").find("Skale") != std::string::npos);
  // Other parameters than the host's.
  jit::Source const shorter{"struct Short { void operator()(float const*, float*, int) const {} };\n", "short.cpp"};
  CHECK(said(device, shorter, "Short").find("are not as many, or not as long, as those that jit::Kernel names") !=
        std::string::npos);
}

TEST_CASE("macros, and headers of the user's folders, which are looked at each time") {
  TemporaryFolder const folder;
  auto const writeHeader = [&](std::string const& value) {
    std::ofstream(folder.file("value.hpp")) << "constexpr float value = " << value << ";\n";
  };
  jit::Source const source{
      "#include \"value.hpp\"\nstruct Fill { void operator()(float* to) const { *to = value + MORE; } };\n"};
  auto const filled = [&](std::string const& more) {
    jit::Kernel<void(float*)> const fill(device, source, "Fill",
                                         {.definitions = {"MORE=" + more}, .folders = {folder.path().string()}});
    Stream const stream(device);
    GpuBuffer<float> to(device, 1);
    fill.launch(stream, {}, to.data());
    stream.synchronize();
    return copyToHost(to)[0];
  };
  writeHeader("1");
  CHECK(filled("10") == 11);
  CHECK(filled("20") == 21);
  writeHeader("2");
  CHECK(filled("10") == 12);
}

TEST_CASE("impossible launches are refused as elsewhere") {
  jit::Kernel<void()> const nothing(device, {"struct Nothing { void operator()() const {} };"}, "Nothing");
  Stream const stream(device);
  nothing.launch(stream, {.blocks = 3, .threads = 32});
  stream.synchronize();
  CHECK_THROWS_AS(nothing.launch(stream, {.blocks = 0, .threads = 32}), Error);
  CHECK_THROWS_AS(nothing.launch(stream, {.blocks = 1, .threads = 2000}), Error);
}
