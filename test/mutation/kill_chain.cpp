// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Broadcast and reduce from rank to rank, alone and between collectives that use the same workspace.
#include <algorithm>
#include <vector>

#include "explored_collective.hpp"

using namespace mscclpp_test;

namespace {

using Chained = Broadcast<ChainSchedule, ShortPieces>;
template <int Ranks = 0>
using Staged = Broadcast<ChainSchedule, StagePieces<2, 128>, Ranks>;
template <int Ranks = 0, class Op = Sum>
using Added = Reduce<ChainSchedule, StagePieces<2, 128>, Op, Ranks>;

// Pieces: several of each block with a ragged end; fewer than blocks; whole ones only.
CollectiveCase const ragged{.ranks = 3, .counts = {1007, 5}, .blocks = 2, .threads = 32, .root = 1};
CollectiveCase const few{.ranks = 4, .counts = {129, 1}, .blocks = 3, .threads = 40, .root = 3};
CollectiveCase const whole{.ranks = 2, .counts = {1024, 0, 512}, .blocks = 2, .threads = 32, .overlap = true};
CollectiveCase const shifted{.ranks = 3, .counts = {700}, .blocks = 1, .threads = 40, .inPlace = true, .offset = 1};

static_assert(chainPiece(1, 1, 2, 65536) == 8192);
static_assert(chainPiece(1, 1, 2, 128) == 128);
static_assert(chainPiece(std::uint64_t{1} << 40, 132, 4, 65536) == 65536);
static_assert(chainPiece(std::uint64_t{1} << 40, 132, 4, 128) == 128);
// 600 KiB a signal: 8 pieces, from 7.5 on.
static_assert(chainPiece(32 * 614400, 100, 4, 65536) == 24576);
static_assert(chainPiece(32 * 614400 + 1, 100, 4, 65536) == 24576 + 128);
static_assert(chainPiece(225 * 76800, 100, 4, 65536) == 21632);
static_assert(chainPiece(225 * 76800 - 1, 100, 4, 65536) == 24704);
static_assert(chainPiece(64 * 614400, 100, 2, 65536) == 49152);
static_assert(chainPiece(64 * 614400, 100, 3, 65536) == 49152);
static_assert(chainPiece(24 * 614400, 100, 8, 65536) == 12288);
static_assert(detail::squareRoot(0) == 0 && detail::squareRoot(1) == 1 && detail::squareRoot(3) == 1);
static_assert(detail::squareRoot(8191 * 8191) == 8191 && detail::squareRoot(8191 * 8191 - 1) == 8190);
static_assert(detail::squareRoot(std::uint64_t{1} << 40) == 8191);

// Packets, the broadcast, packets again: an odd number of rounds in between brings both to the same half of the
// workspace, and nothing but the broadcast keeps a rank from writing what a slow one still reads.
struct BetweenPackets {
  MSCCLPP_DEVICE void operator()(std::uint32_t const* in, std::uint32_t* out, std::size_t count, int root,
                                 DeviceTeam const& team, layout::WindowHandle const& window) const {
    using Swap = AllGather<OneExchange, PacketTransport<LL16>>;
    auto const ranks = static_cast<std::size_t>(team.size);
    SymmetricView<std::uint32_t> const middle(window, 0, count);
    Swap{team}(thisGrid(), View{in, count}, View{out, ranks * count});
    thisBlock().sync();
    Chained{team}(thisGrid(), View{in, count}, middle, root);
    thisBlock().sync();
    Swap{team}(thisGrid(), View<std::uint32_t const>{middle.at(team.rank), count},
               View{out + ranks * count, ranks * count});
  }
};

}  // namespace

TEST_CASE("from rank to rank") {
  explored<Chained>(ragged);
  explored<Chained>(few);
  explored<Broadcast<ChainSchedule, ShortPieces, 2>>(whole);
  explored<Chained>(shifted);
  explored<Chained>({.ranks = 1, .counts = {300}, .blocks = 2, .threads = 32}, 1);
}

TEST_CASE("between packets") {
  for (std::size_t const count : {20, 90}) {  // one piece, three pieces
    for (int const root : {0, 2}) {
      everySchedule(3, [&](Rank& rank) {
        auto const ranks = static_cast<std::size_t>(rank.size);
        Team const team(rank.communicator, PacketTransport<LL16>::requirement(1, 64, 3));
        Buffers<std::uint32_t> inputs;
        for (int r = 0; r < rank.size; ++r) inputs.push_back(randomInput<std::uint32_t>(4, r, count));
        GpuBuffer<std::uint32_t> const in(rank.device, count), middle(rank.device, count);
        GpuBuffer<std::uint32_t> const out(rank.device, 2 * ranks * count);
        MemoryWindow const window(rank.communicator, middle.data(), middle.bytes());
        copyToDevice(in, std::span<std::uint32_t const>(inputs[static_cast<std::size_t>(rank.rank)]));
        launch(rank.stream, {.blocks = 1, .threads = 64}, BetweenPackets{}, in.data(), out.data(), count, root,
               team.deviceHandle(), window.deviceHandle());
        rank.synchronize();
        auto expected = concatenate(inputs);
        for (std::size_t r = 0; r < ranks; ++r) {
          auto const& sent = inputs[static_cast<std::size_t>(root)];
          expected.insert(expected.end(), sent.begin(), sent.end());
        }
        CHECK(countDifferent(copyToHost(out), expected) == 0);
      });
    }
  }
}

// Pieces past the end: what lies there differs from rank to rank.
struct ShortKernel {
  MSCCLPP_DEVICE void operator()(std::uint8_t const* in, std::size_t count, DeviceTeam const& team,
                                 layout::WindowHandle const& window) const {
    Chained{team}(thisGrid(), View{in, count}, SymmetricView<std::uint8_t>(window, 0, count), 0);
  }
};

TEST_CASE("nothing behind the end") {
  everySchedule(
      2,
      [](Rank& rank) {
        constexpr std::size_t count = 5, room = 1024;
        Team const team(rank.communicator, Chained::requirement(2, 3, 32));
        GpuBuffer<std::uint8_t> const in(rank.device, room), out(rank.device, room);
        MemoryWindow const window(rank.communicator, out.data(), out.bytes());
        in.fill(7);
        out.fill(static_cast<std::uint8_t>(10 + rank.rank));
        rank.communicator.bootstrap()->barrier();
        launch(rank.stream, {.blocks = 3, .threads = 32}, ShortKernel{}, in.data(), count, team.deviceHandle(),
               window.deviceHandle());
        rank.synchronize();
        std::vector<std::uint8_t> expected(room, static_cast<std::uint8_t>(10 + rank.rank));
        std::fill_n(expected.begin(), count, std::uint8_t{7});
        CHECK(countDifferent(copyToHost(out), expected) == 0);
      },
      1);
}

// A kernel without elements may not end before the one ahead of it: the one behind it waits for no other.
TEST_CASE("a call without elements between two that depend on each other") {
  everySchedule(2, [](Rank& rank) {
    constexpr std::size_t count = 200;
    Team const team(rank.communicator, Chained::requirement(2, 1, 32));
    auto const input = randomInput<std::uint8_t>(6, 0, count);
    GpuBuffer<std::uint8_t> const in(rank.device, count), between(rank.device, count), out(rank.device, count);
    MemoryWindow const first(rank.communicator, between.data(), between.bytes());
    MemoryWindow const second(rank.communicator, out.data(), out.bytes());
    if (rank.rank == 0) copyToDevice(in, std::span<std::uint8_t const>(input));
    auto const call = [&](auto const& from, auto const& to, std::size_t elements, auto const& window, int root) {
      launch(rank.stream, {.blocks = 1, .threads = 32, .overlapPrevious = true}, DirectKernel<Chained, std::uint8_t>{},
             from.data(), to.data(), elements, root, team.deviceHandle(), layout::WindowHandle{},
             window.deviceHandle());
    };
    call(in, between, count, first, 0);
    call(in, between, 0, first, 0);
    call(between, out, count, second, 1);
    rank.synchronize();
    CHECK(countDifferent(copyToHost(out), input) == 0);
  });
}

// More pieces of a block than slots, a ragged end; fewer pieces than blocks; whole ones only; a stage with room for the
// shortest pieces only.
CollectiveCase const addedRagged{.ranks = 3, .counts = {401, 5}, .blocks = 2, .threads = 32, .root = 1};
CollectiveCase const addedFew{.ranks = 4, .counts = {97, 1}, .blocks = 3, .threads = 40, .root = 3};
CollectiveCase const addedWhole{.ranks = 2, .counts = {384, 0, 128}, .blocks = 2, .threads = 32, .overlap = true};
CollectiveCase const addedShifted{
    .ranks = 3, .counts = {290}, .blocks = 1, .threads = 40, .inPlace = true, .offset = 1, .root = 2};
CollectiveCase const addedNarrow{.ranks = 3, .counts = {200}, .blocks = 1, .threads = 32, .regionBytes = 256};

TEST_CASE("added up from rank to rank") {
  explored<Added<>, std::uint32_t>(addedRagged);
  explored<Added<>, std::uint32_t>(addedFew);
  explored<Added<2>, std::uint32_t>(addedWhole);
  explored<Added<>, std::uint32_t>(addedShifted);
  explored<Reduce<ChainSchedule, StagePieces<2, 512>, Sum>, std::uint32_t>(addedNarrow);
  explored<Added<0, Max>, float>(addedRagged);
  explored<Added<0, Avg>, float>(addedFew);
  // Pieces as long as their slots, which end with a thread's first access of two.
  explored<Reduce<ChainSchedule, StagePieces<2, 512>, Sum>, std::uint32_t>(
      {.ranks = 3, .counts = {1536}, .blocks = 2, .threads = 32});
  explored<Added<>, std::uint32_t>({.ranks = 1, .counts = {300}, .blocks = 2, .threads = 32}, 1);
}

TEST_CASE("from rank to rank through the stage") {
  explored<Staged<>>(addedRagged);
  explored<Staged<>, std::uint32_t>(addedRagged);
  explored<Staged<>, std::uint32_t>(addedFew);
  explored<Staged<2>, std::uint32_t>(addedWhole);
  explored<Staged<>, std::uint32_t>(addedShifted);
  explored<Broadcast<ChainSchedule, StagePieces<2, 512>>, std::uint32_t>(addedNarrow);
  // Pieces as long as their slots, which end with a thread's first access of two.
  explored<Broadcast<ChainSchedule, StagePieces<2, 512>>, std::uint32_t>(
      {.ranks = 3, .counts = {1536}, .blocks = 2, .threads = 32});
  explored<Staged<>, std::uint32_t>({.ranks = 1, .counts = {300}, .blocks = 2, .threads = 32}, 1);
}

// Who begins the chain is done first, and stores into the stages of ranks that still read theirs, if nothing holds it.
template <class Chain>
struct BetweenStages {
  MSCCLPP_DEVICE void operator()(std::uint32_t const* in, std::uint32_t* out, std::size_t count, int root,
                                 DeviceTeam const& team) const {
    using Swap = AllGather<OneExchange, MemoryTransport<1>>;
    auto const ranks = static_cast<std::size_t>(team.size);
    auto* const result = out + 2 * ranks * count;
    Swap{team}(thisGrid(), View{in, count}, View{out, ranks * count});
    thisBlock().sync();
    if constexpr (Chain::collective == Collective::reduce) {
      Chain{team}(thisGrid(), View{in, count}, result, root);
    } else {
      Chain{team}(thisGrid(), View{in, count}, View{result, count}, root);
    }
    thisBlock().sync();
    Swap{team}(thisGrid(), View{in, count}, View{out + ranks * count, ranks * count});
  }
};

TEST_CASE_TEMPLATE("between collectives through the same stage", Chain, Added<>, Staged<>) {
  for (std::size_t const count : {20, 90}) {  // one piece, three pieces
    for (int const root : {0, 2}) {
      everySchedule(3, [&](Rank& rank) {
        auto const ranks = static_cast<std::size_t>(rank.size);
        Team const team(rank.communicator,
                        merge(Chain::requirement(3, 1, 64), MemoryTransport<1>::requirement(1, 64, 3)));
        Buffers<std::uint32_t> inputs;
        for (int r = 0; r < rank.size; ++r) inputs.push_back(randomInput<std::uint32_t>(4, r, count));
        GpuBuffer<std::uint32_t> const in(rank.device, count);
        GpuBuffer<std::uint32_t> const out(rank.device, (2 * ranks + 1) * count);
        out.fill(0);
        copyToDevice(in, std::span<std::uint32_t const>(inputs[static_cast<std::size_t>(rank.rank)]));
        launch(rank.stream, {.blocks = 1, .threads = 64}, BetweenStages<Chain>{}, in.data(), out.data(), count, root,
               team.deviceHandle());
        rank.synchronize();
        auto expected = concatenate(inputs);
        auto const once = expected;
        expected.insert(expected.end(), once.begin(), once.end());
        auto result = Meaning<Chain>::result(inputs, rank.rank, root);
        result.resize(count);
        expected.insert(expected.end(), result.begin(), result.end());
        CHECK(countDifferent(copyToHost(out), expected) == 0);
      });
    }
  }
}

TEST_CASE("a stage that is too small is refused") {
  forEachRank(2, [](Rank& rank) {
    Team const team(rank.communicator, {.blocks = 1, .stageBytes = 128});
    GpuBuffer<std::uint32_t> const data(rank.device, 64);
    launch(rank.stream, {.blocks = 1, .threads = 32}, CollectiveKernel<Added<>, std::uint32_t>{}, data.data(),
           data.data(), std::size_t{64}, 0, team.deviceHandle());
    auto const text = reportOf(rank);
    CAPTURE(text);
    CHECK(contains(text, "256"));
    CHECK(contains(text, "128"));
    rank.communicator.bootstrap()->barrier();
  });
}
