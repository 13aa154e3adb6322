// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Collectives without copies, and the agreement on a number.
#include "explored_collective.hpp"
#include "mscclpp/algorithms/collective/agree.hpp"
#include "mscclpp/algorithms/schedule/shares.hpp"

using namespace mscclpp_test;

namespace {

// Several turns of each thread and a ragged end; aligned, in place, and neither.
CollectiveCase const ragged{.ranks = 3, .counts = {1007, 5}, .blocks = 2, .threads = 32, .root = 1};
CollectiveCase const whole{.ranks = 2, .counts = {1024, 0, 512}, .blocks = 2, .threads = 32, .overlap = true};
CollectiveCase const shifted{.ranks = 2, .counts = {200}, .blocks = 1, .threads = 40, .inPlace = true, .offset = 1};

// Whole accesses in several turns, the last one short, up to the end of the memory. In place: what is there already
// goes nowhere.
CollectiveCase const turns{.ranks = 2, .counts = {2704}, .blocks = 1, .threads = 32, .inPlace = true};
CollectiveCase const raggedTurns{.ranks = 3, .counts = {2711}, .blocks = 1, .threads = 32, .inPlace = true, .root = 1};

using Stores = PeerMemory<2>;
using Bulk = BulkMemory<128, 3>;

// For two ranks. Counts what it is asked about others: there is nothing to tell.
struct PairPlan {
  using Element = std::uint32_t;
  static constexpr bool sameToAll = true;
  View<Element const> in;
  SymmetricView<Element> const& out;
  std::uint64_t offset;
  unsigned* strangers;

  MSCCLPP_DEVICE View<Element const> send(int peer) const {
    know(peer);
    return in;
  }
  MSCCLPP_DEVICE Element* target(int peer) const {
    know(peer);
    return out.at(peer) + offset;
  }

 private:
  MSCCLPP_DEVICE void know(int peer) const {
    if (peer < 0 || peer > 1) fetchAdd<Order::relaxed, Scope::device>(strangers, 1u);
  }
};

template <class Tr>
struct PairKernel {
  MSCCLPP_DEVICE void operator()(std::uint32_t const* in, std::size_t count, unsigned* strangers,
                                 DeviceTeam const& team, layout::WindowHandle const& window) const {
    SymmetricView<std::uint32_t> const out(window, 0, 2 * count);
    PushSchedule::run<Tr, 0>(team, thisGrid(),
                             PairPlan{{in, count}, out, static_cast<std::uint64_t>(team.rank) * count, strangers});
  }
};

template <class Tr>
void askedAboutPairs() {
  everySchedule(
      2,
      [](Rank& rank) {
        constexpr std::size_t count = 204;
        Team const team(rank.communicator, Tr::requirement(1, 32, 2));
        auto const mine = randomInput<std::uint32_t>(3, rank.rank, count);
        GpuBuffer<std::uint32_t> const in(rank.device, count);
        GpuBuffer<std::uint32_t> const out(rank.device, 2 * count);
        GpuBuffer<unsigned> const strangers(rank.device, 1);
        copyToDevice(in, std::span<std::uint32_t const>(mine));
        MemoryWindow const window(rank.communicator, out.data(), out.bytes());
        launch(rank.stream, {.blocks = 1, .threads = 32, .dynamicShared = Tr::sharedBytes}, PairKernel<Tr>{}, in.data(),
               count, strangers.data(), team.deviceHandle(), window.deviceHandle());
        rank.synchronize();
        CHECK(copyToHost(strangers)[0] == 0);
        Buffers<std::uint32_t> const inputs{randomInput<std::uint32_t>(3, 0, count),
                                            randomInput<std::uint32_t>(3, 1, count)};
        CHECK(countDifferent(copyToHost(out), concatenate(inputs)) == 0);
      },
      1);
}

// Counts for each payload of four elements how often the epilogue sees it.
struct SeenKernel {
  MSCCLPP_DEVICE void operator()(unsigned* seen, std::size_t count, DeviceTeam const& team,
                                 layout::WindowHandle const& window) const {
    SymmetricView<float> const data(window, 0, count);
    AllReduce<PullSchedule, Stores, Sum>{team}(thisGrid(), data, data, [=](auto values, std::uint64_t index) {
      fetchAdd<Order::relaxed, Scope::device>(seen + index / 4, 1u);
      return values;
    });
  }
};

struct AgreeKernel {
  MSCCLPP_DEVICE void operator()(std::uint64_t* out, std::uint64_t high, DeviceTeam const& team) const {
    auto const grid = thisGrid();
    for (std::uint64_t round = 0; round < 3; ++round) {
      auto const mine = high + (static_cast<std::uint64_t>(team.rank) * 7 + round) % 5;
      out[round * grid.size() + grid.rank()] = agreeOnLargest(team, grid, mine);
    }
  }
};

}  // namespace

TEST_CASE("stores") {
  explored<AllGather<PushSchedule, Stores>>(ragged);
  explored<AllGather<PushSchedule, Stores, 2>>(whole);
  explored<AllToAll<PushSchedule, Stores>>(ragged);
  explored<Broadcast<PushSchedule, Stores>>(ragged);
  explored<Broadcast<PushSchedule, Stores>>(shifted);
  explored<Broadcast<PushSchedule, Stores>>({.ranks = 1, .counts = {77}, .blocks = 2, .threads = 32});
  explored<Scatter<PushSchedule, Stores>>(ragged);
  explored<Gather<PushSchedule, Stores>>(shifted);
  explored<AllGather<PushSchedule, Stores>>(turns);
  explored<Broadcast<PushSchedule, Stores>>(raggedTurns);
}

TEST_CASE("bulk copies") {
  explored<AllGather<PushSchedule, Bulk>>(ragged);
  explored<AllToAll<PushSchedule, Bulk, 2>>(whole);
  explored<Gather<PushSchedule, Bulk>>(ragged);
  explored<AllGather<PushSchedule, Bulk>>(shifted);
  explored<Broadcast<PushSchedule, Bulk>>(raggedTurns);
}

TEST_CASE("a plan is asked about the ranks of the team only") {
  askedAboutPairs<Stores>();
  askedAboutPairs<Bulk>();
}

TEST_CASE("loads") {
  explored<AllReduce<PullSchedule, Stores, Sum>, BFloat16>(ragged);
  explored<ReduceScatter<PullSchedule, Stores, Avg, 2>, float>(whole);
  explored<Reduce<PullSchedule, Stores, Max>, float>(shifted);
}

TEST_CASE("an epilogue sees what there is, once") {
  everySchedule(
      2,
      [](Rank& rank) {
        constexpr std::size_t count = 100;
        Team const team(rank.communicator, AllReduce<PullSchedule, Stores, Sum>::requirement(2, 1, 32));
        GpuBuffer<float> const data(rank.device, count);
        GpuBuffer<unsigned> const seen(rank.device, 2 * count);
        MemoryWindow const window(rank.communicator, data.data(), data.bytes());
        launch(rank.stream, {.blocks = 1, .threads = 32}, SeenKernel{}, seen.data(), count, team.deviceHandle(),
               window.deviceHandle());
        rank.synchronize();
        auto const share = shareOf<float>(count, 2, static_cast<unsigned>(rank.rank));
        std::vector<unsigned> expected(2 * count);
        for (auto i = share.first; i < share.first + share.count; i += 4) expected[i / 4] = 1;
        CHECK(copyToHost(seen) == expected);
      },
      1);
}

TEST_CASE("agreement") {
  everySchedule(3, [](Rank& rank) {
    constexpr unsigned blocks = 2;
    constexpr unsigned threads = 40;
    Team const team(rank.communicator, agreementRequirement(3, blocks));
    GpuBuffer<std::uint64_t> const out(rank.device, 3 * blocks * threads);
    constexpr auto high = std::uint64_t{5} << 40;
    launch(rank.stream, {.blocks = blocks, .threads = threads}, AgreeKernel{}, out.data(), high, team.deviceHandle());
    rank.synchronize();
    auto const result = copyToHost(out);
    for (std::uint64_t i = 0; i < result.size(); ++i) {
      auto const round = i / (blocks * threads);
      std::uint64_t largest = 0;
      for (std::uint64_t r = 0; r < 3; ++r) largest = std::max(largest, (r * 7 + round) % 5);
      CHECK(result[i] == high + largest);
    }
  });
}
