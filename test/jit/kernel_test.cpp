// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels of the simulated machine, compiled while this runs.
#include "mscclpp/jit/kernel.hpp"

#include <doctest/doctest.h>

#include <fstream>
#include <string>

#include <fmt/format.h>

#include "jit/cache.hpp"
#include "jit/kernels.hpp"
#include "mscclpp/sim/run.hpp"

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

TEST_CASE("plain accesses that a GPU refuses fail the kernel, by the user's lines") {
  jit::Source const source{R"(#include "mscclpp/device/vector.hpp"
using namespace mscclpp;
template <unsigned Words>
struct Copy {
  MSCCLPP_DEVICE void operator()(std::uint32_t const* from, std::uint32_t* to) const {
    auto const value = *reinterpret_cast<Payload<Words> const*>(from);
    *reinterpret_cast<Payload<Words>*>(to) = value;
  }
};
)",
                           "copy.cpp"};
  // What is said of a copy of so many words from one word to another.
  auto const copied = [&](unsigned each, unsigned from, unsigned to) -> std::string {
    try {
      sim::run({.ranks = 1}, [&](sim::RankContext&) {
        Stream const stream(device);
        GpuBuffer<std::uint32_t> words(device, 32);
        jit::Kernel<void(std::uint32_t const*, std::uint32_t*)> const copy(device, source,
                                                                           fmt::format("Copy<{}>", each));
        copy.launch(stream, {.blocks = 1, .threads = 64}, words.data() + from, words.data() + to);
        stream.synchronize();
      });
      return "";
    } catch (Error const& error) {
      return error.what();
    }
  };
  for (unsigned const each : {1u, 2u, 4u}) CHECK(copied(each, each, 2 * each).empty());
  for (unsigned const each : {2u, 4u}) {
    auto const half = each / 2;
    auto const names = [&](std::string const& text, unsigned line, unsigned word) {
      auto const begin = text.find(fmt::format("copy.cpp:{} accesses ", line));
      auto const end = fmt::format("at offset {} of 128 bytes on simulated device 0, which is not aligned to {}",
                                   word * 4, each * 4);
      CHECK_MESSAGE((begin != std::string::npos && text.find(end, begin) != std::string::npos), text);
    };
    names(copied(each, half, 8), 6, half);
    names(copied(each, 8, half), 7, half);
  }
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
