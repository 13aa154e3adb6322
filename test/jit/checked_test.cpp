// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The checker sees what kernels do that are compiled while it runs.
#include <doctest/doctest.h>

#include <string>

#include "jit/kernels.hpp"
#include "mscclpp/sim/explore.hpp"

using namespace mscclpp_test;

namespace {

OwnCache const ownCache;

// All threads write their own words, and `others` also that of thread 0.
sim::ExploreResult explored(bool others) {
  jit::Source const source{R"(#include "mscclpp/device/group.hpp"
struct Write {
  MSCCLPP_DEVICE void operator()(unsigned* words, bool others) const {
    auto const thread = mscclpp::arch::threadIndex();
    words[thread] = thread;
    if (others) words[0] = 1;
  }
};
)",
                           "write.cpp"};
  return sim::explore({.ranks = 1},
                      [&](sim::RankContext& rank) {
                        Device const device{DeviceKind::sim, rank.device()};
                        jit::Kernel<void(unsigned*, bool)> const write(device, source, "Write");
                        GpuBuffer<unsigned> const words(device, 32);
                        Stream const stream(device);
                        write.launch(stream, {.blocks = 1, .threads = 32}, words.data(), others);
                        stream.synchronize();
                      },
                      {.schedules = 5});
}

}  // namespace

TEST_CASE("races of kernels that are compiled late are found, by the user's lines") {
  auto const right = explored(false);
  CHECK_MESSAGE(right.ok(), sim::toText(right));
  CHECK(right.checkedAccesses > 0);
  auto const wrong = explored(true);
  REQUIRE(!wrong.ok());
  CHECK(wrong.findings[0].kind == sim::FindingKind::race);
  auto const text = sim::toText(wrong);
  CHECK_MESSAGE(text.find("kernel \"Write\"") != std::string::npos, text);
  CHECK_MESSAGE(text.find("write.cpp:6") != std::string::npos, text);
}
