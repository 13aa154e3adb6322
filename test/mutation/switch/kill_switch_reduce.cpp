// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reductions through the switch, where the buffers lie.
#include "explored_collective.hpp"

using namespace mscclpp_test;

namespace {

static_assert(switchReduces<Half, Sum> && switchReduces<float, Avg> && switchReduces<std::int32_t, Min>);
static_assert(!switchReduces<std::int16_t, Sum> && !switchReduces<std::int16_t, Avg> && !switchReduces<Half, Avg> &&
              !switchReduces<float, Min>);

using Memory = SwitchMemory<2>;

// Several turns of each thread and ragged ends, then less than what precedes the first whole access.
CollectiveCase const ragged{.ranks = 3, .counts = {1207, 1}, .blocks = 1, .threads = 12, .offset = 1, .root = 1};
CollectiveCase const inPlace{.ranks = 2, .counts = {1030}, .blocks = 2, .threads = 12, .inPlace = true};
// The output begins elsewhere within 16 bytes, and within the 4 that are the least.
CollectiveCase const apart{.ranks = 2, .counts = {101}, .blocks = 1, .threads = 32, .outShift = 2};
CollectiveCase const oddly{.ranks = 2, .counts = {101}, .blocks = 1, .threads = 32, .outShift = 1};

using Reduced = AllReduce<SwitchSchedule, Memory, Sum>;

struct EpilogueKernel {
  MSCCLPP_DEVICE void operator()(DeviceTeam const& team, layout::WindowHandle const& window, std::size_t count) const {
    SymmetricView<BFloat16> const data(window, 0, count);
    Reduced{team}(thisGrid(), data, data, [](auto v) { return v - 1.0f; });
  }
};

}  // namespace

TEST_CASE("the switch rounds before the epilogue, wherever it can be used") {
  everySchedule(2, [](Rank& rank) {
    constexpr std::size_t count = 64;
    Team const team(rank.communicator, Reduced::requirement(2, 1, 32));
    GpuBuffer<BFloat16> const buffer(rank.device, count, MemoryKind::shareable);
    std::vector<BFloat16> const values(count, convertNumber<BFloat16>(rank.rank == 0 ? 1.0f : 1.0f / 512));
    copyToDevice(buffer, std::span<BFloat16 const>(values));
    MemoryWindow const window(rank.communicator, buffer.data(), buffer.bytes(), {}, WindowUse::multicast);
    launch(rank.stream, {.blocks = 1, .threads = 32}, EpilogueKernel{}, team.deviceHandle(), window.deviceHandle(),
           count);
    rank.synchronize();
    // A sum in float would leave 1 / 512.
    CHECK(countDifferent(copyToHost(buffer), std::vector<BFloat16>(count)) == 0);
  });
}

TEST_CASE("all-reduce") {
  explored<Reduced, BFloat16>(ragged, 1);
  explored<Reduced, BFloat16>(inPlace, 1);
  explored<Reduced, BFloat16>(apart, 1);
  explored<Reduced, BFloat16>(oddly, 1);
}

TEST_CASE("reduce-scatter of elements that the switch takes one by one") {
  explored<ReduceScatter<SwitchSchedule, Memory, Max>, std::int64_t>(inPlace, 1);
}
