// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All-reduce over quantised packets: types, formats, groups and shapes, each bit for bit as on the host and within the
// bound; what is not finite; prologue, epilogue, refusals.
#include <string>

#include "support/quantised.hpp"

using namespace mscclpp_test;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

// What all ranks find, given the values of each.
template <class W, class T, class Op = Sum>
std::vector<float> found(std::vector<std::vector<float>> const& values) {
  std::vector<std::vector<T>> inputs;
  for (auto const& of : values) {
    inputs.emplace_back();
    for (auto const value : of) inputs.back().push_back(convertNumber<T>(value));
  }
  std::vector<float> result;
  using Collective = AllReduce<TwoShot, W, Op>;
  AllReduceCase const test{.ranks = static_cast<int>(values.size())};
  forEachRank(test.ranks, [&](Rank& rank) {
    Team const team(rank.communicator, workspaceFor<Collective>(test));
    auto const here = reduceQuantised<Collective, T, Op>(rank, team, test, inputs);
    if (rank.rank != 0) return;
    for (auto const value : here) result.push_back(convertNumber<float>(value));
  });
  return result;
}

}  // namespace

TEST_CASE_TEMPLATE("every type of elements and of packets", T, float, Half, BFloat16) {
  AllReduceCase const test{.ranks = 3, .counts = {1, 1237}};
  checkQuantised<Wire<Float8E4M3, 64>, T>(test);
  checkQuantised<Wire<Float8E5M2, 64>, T>(test);
  checkQuantised<Wire<std::int8_t, 64>, T>(test);
  checkQuantised<Wire<Float8E4M3, 64, LL16>, T>(test);
  checkQuantised<Wire<std::int8_t, 64, LL8>, T>(test);
}

TEST_CASE_TEMPLATE("groups of any size", W, Wire<Float8E4M3, 16>, Wire<Float8E4M3, 48>, Wire<Float8E4M3, 128>,
                   Wire<Float8E4M3, 32, LL16>, Wire<Float8E4M3, 16, LL8>) {
  checkQuantised<W, BFloat16>({.ranks = 2, .counts = {15, 16, 17, 1000}});
}

TEST_CASE("any number of ranks") {
  for (int ranks : {1, 2, 4, 5, 6, 7, 8}) {
    checkQuantised<Wire<Float8E4M3, 64>, BFloat16>({.ranks = ranks, .counts = {0, 63, 2 * 64 * 7 + 1}});
  }
  checkQuantised<Wire<Float8E4M3, 64>, float, Sum, 4>({.ranks = 4, .counts = {901}});
}

TEST_CASE("in place, at any alignment, by blocks with an incomplete warp, in many rounds") {
  using W = Wire<Float8E4M3, 64>;
  checkQuantised<W, BFloat16>({.counts = {1000, 4000}, .inPlace = true});
  checkQuantised<W, BFloat16>({.counts = {999}, .threads = 100, .inPlace = true, .offset = 3});
  checkQuantised<W, float>({.ranks = 3, .counts = {700, 1, 700}, .overlap = true, .offset = 1});
  // 8 rows of 8 lines: two bundles of threads at a time.
  checkQuantised<W, Half>({.counts = {9000, 50}, .blocks = 2, .inPlace = true, .regionBytes = 8 * 1024});
  checkQuantised<Wire<Float8E5M2, 64, LL16>, Half>({.counts = {3000}, .blocks = 2, .regionBytes = 8 * 256});
}

TEST_CASE("averages") {
  checkQuantised<Wire<Float8E4M3, 64>, BFloat16, Avg>({.ranks = 3, .counts = {800}});
  checkQuantised<Wire<std::int8_t, 32, LL16>, float, Avg>({.ranks = 4, .counts = {800}});
}

TEST_CASE("what is rounded, and how") {
  if (!canRun(2)) return;
  // 272 lies between 256 and 288, and so does 264 between 256 and 288: 272 + 256, then 2 * 256.
  CHECK(found<Wire<Float8E4M3, 64>, float>({{272}, {272}}) == std::vector<float>{512});
  // Small beside the other of its group.
  CHECK(found<Wire<Float8E4M3, 16>, float>({{448, 0x1p-11f}, {0, 0}}) == std::vector<float>{448, 0});
  CHECK(found<Wire<std::int8_t, 16>, float>({{127, -127, 0.5f, 1.5f}, {0, 0, 0, 0}}) ==
        std::vector<float>{127, -127, 0, 2});
  // Very small and very large ones.
  CHECK(found<Wire<Float8E4M3, 16>, float>({{0x1p-127f}, {0x1p-127f}}) == std::vector<float>{0x1p-126f});
  CHECK(found<Wire<Float8E5M2, 16>, float>({{0x1p126f}, {0x1p126f}}) == std::vector<float>{0x1p127f});
  CHECK(found<Wire<Float8E4M3, 16>, Half>({{60000}, {60000}}) == std::vector<float>{infinity});
}

TEST_CASE("what is not finite spreads to its group, and no further") {
  if (!canRun(3)) return;
  for (float const bad : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
    for (std::size_t of = 0; of < 3; ++of) {  // the owner of that group, or another rank
      std::vector<std::vector<float>> inputs(3, std::vector<float>(100, 1.0f));
      inputs[of][40] = bad;
      auto const result = found<Wire<Float8E4M3, 32>, BFloat16>(inputs);
      for (std::size_t i = 0; i < 100; ++i) {
        CHECK(std::isnan(result[i]) == (i >= 32 && i < 64));
        if (i < 32 || i >= 64) CHECK(result[i] == 3);
      }
    }
  }
  // Finite numbers whose sum is not.
  auto const large = found<Wire<std::int8_t, 16>, float>({{0x1.8p127f, 1}, {0x1.8p127f, 1}, {0, 1}});
  CHECK((std::isnan(large[0]) && std::isnan(large[1])));
}

namespace {

struct FusedKernel {
  MSCCLPP_DEVICE void operator()(float const* in, BFloat16* out, std::uint32_t* pastEnd, std::size_t count,
                                 DeviceTeam const& team) const {
    auto const check = [=](std::uint64_t index) {
      if (index >= count) fetchAdd<Order::relaxed, Scope::device>(pastEnd, 1u);
    };
    AllReduce<TwoShot, Wire<Float8E4M3, 16>, Sum>{team}(thisGrid(),
                                                        WithPrologue{View{in, count},
                                                                     [=](auto values, std::uint64_t index) {
                                                                       check(index);
                                                                       // Past the end it would make something large.
                                                                       for (unsigned i = 0; i < values.size; ++i) {
                                                                         values[i] =
                                                                             index + i < count ? values[i] * 2 : 1e30f;
                                                                       }
                                                                       return values;
                                                                     }},
                                                        View{out, count}, [=](auto values, std::uint64_t index) {
                                                          check(index);
                                                          for (unsigned i = 0; i < values.size; ++i)
                                                            values[i] += static_cast<float>((index + i) % 4);
                                                          return values;
                                                        });
  }
};

struct ManyRounds {
  MSCCLPP_DEVICE void operator()(float const* in, float* out, std::size_t count, DeviceTeam const& team) const {
    AllReduce<TwoShot, Wire<Float8E4M3, 64>, Sum>{team}(thisGrid(), View{in, count}, View{out, count});
  }
};

}  // namespace

TEST_CASE("prologue and epilogue, which are not asked past the end") {
  if (!canRun(3)) return;
  forEachRank(3, [&](Rank& rank) {
    constexpr std::size_t count = 435;
    Team const team(rank.communicator, {.blocks = 2, .lineBytes = 1 << 14});
    GpuBuffer<float> const in(rank.device, count);
    GpuBuffer<BFloat16> const out(rank.device, count);
    GpuBuffer<std::uint32_t> const pastEnd(rank.device, 1);
    pastEnd.fill(0);
    copyToDevice(in, std::span<float const>(std::vector<float>(count, static_cast<float>(1 + rank.rank))));
    rank.meet();
    launch(rank.stream, {.blocks = 2, .threads = 64}, FusedKernel{}, in.data(), out.data(), pastEnd.data(), count,
           team.deviceHandle());
    rank.synchronize();
    auto const result = copyToHost(out);
    std::size_t different = 0;
    for (std::size_t i = 0; i < count; ++i)
      different += convertNumber<float>(result[i]) != static_cast<float>(12 + i % 4);
    CHECK(different == 0);
    CHECK(copyToHost(pastEnd)[0] == 0);
  });
}

TEST_CASE("a workspace that is too small is refused with its numbers") {
  if (!canRun(1)) return;
  std::string text;
  forEachRank(1, [&](Rank& rank) {
    Team const team(rank.communicator, {.blocks = 1, .lineBytes = 512});
    GpuBuffer<float> const x(rank.device, 64);
    launch(rank.stream, {.blocks = 1, .threads = 32}, ManyRounds{}, x.data(), x.data(), std::size_t{64},
           team.deviceHandle());
    try {
      rank.synchronize();
    } catch (Error const& error) {
      text = error.what();
    }
  });
  INFO(text);
  CHECK(text.find("a workspace region of 512 bytes: at least 1024 are needed") != std::string::npos);
}
