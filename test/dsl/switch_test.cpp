// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Programs with switch channels run right, compiled in and as plans: through the switch where buffers have multicast
// addresses, by plain accesses where they have none and for what the switch lacks.
#include <doctest/doctest.h>

#include "dsl/channel_programs.hpp"
#include "dsl/run.hpp"
#include "mscclpp/dsl/plan_json.hpp"

using namespace dsl_test;

namespace {

template <class P>
dsl::Program asPlan() {
  return dsl::programFromJson(dsl::toJson<P>(), "of the test");
}

template <class P, class T = float, class Op = Sum>
void checkBoth(RunCase const& test = {}) {
  REQUIRE(dsl::verify<P>());
  checkRun<P, T, Op>(test);
  checkPlan<T, Op>(asPlan<P>(), test);
}

}  // namespace

TEST_CASE("through the switch") {
  checkBoth<SwitchAllReduce<2>>({.multicast = true});
  checkBoth<SwitchAllReduce<4>, BFloat16, Max>({.multicast = true});
  checkBoth<SwitchAllReduce<2>, std::int64_t, Min>({.multicast = true});
  checkPlan<double>(asPlan<SwitchAllReduce<4>>(), {.counts = {5000, 3}, .multicast = true});
}

TEST_CASE("relaxed signals that hand over data") {
  checkRun<SwitchAllReduce<4, true>>({.multicast = true});
  auto const plan = asPlan<SwitchAllReduce<4, true>>();
  CHECK(!dsl::verify(plan).right());
  checkPlan<float>(plan, {.multicast = true});
}

TEST_CASE("scratch that the switch reads and writes") { checkBoth<SwitchScratch>(); }

TEST_CASE("what the switch lacks goes by plain accesses") {
  auto const plan = asPlan<SwitchAllReduce<2>>();
  SUBCASE("buffers without multicast addresses") { checkBoth<SwitchAllReduce<2>>(); }
  SUBCASE("a type") { checkPlan<std::uint8_t>(plan, {.multicast = true}); }
  SUBCASE("an operation") { checkPlan<float, Prod>(plan, {.multicast = true}); }
  SUBCASE("an average") { checkPlan<float, Avg>(plan, {.multicast = true}); }
  SUBCASE("an alignment") { checkPlan<float>(plan, {.offset = 1, .multicast = true}); }
}

TEST_CASE("it is the switch that is asked") {
  if (!canRun(2)) return;
  forEachRank(2, [&](Rank& rank) {
    if (!isNvlsSupported(rank.device)) return;
    constexpr std::size_t count = 256;
    GpuBuffer<float> const one(rank.device, count, MemoryKind::shareable),
        other(rank.device, count, MemoryKind::shareable);
    copyToDevice(one, std::span<float const>(std::vector<float>(count, 1)));
    copyToDevice(other, std::span<float const>(std::vector<float>(count, 5)));
    MemoryWindow const window(rank.communicator, one.data(), one.bytes(), {}, WindowUse::multicast);
    MemoryWindow const elsewhere(rank.communicator, other.data(), other.bytes(), {}, WindowUse::multicast);
    auto mixed = window.deviceHandle();
    mixed.multicast = elsewhere.deviceHandle().multicast;
    auto const context = dsl::makeContext<SwitchAllReduce<2>>(rank.communicator, count * sizeof(float));
    launch(rank.stream, context.launchShape(), dsl::Kernel<SwitchAllReduce<2>, float>{}, one.data(), one.data(), count,
           context.deviceHandle(), mixed, mixed);
    rank.synchronize();
    CHECK(copyToHost(other) == std::vector<float>(count, 10));
  });
}
