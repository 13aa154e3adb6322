// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Operations, accumulators and epilogues, on values that tell every branch of them apart.
#include <cmath>
#include <limits>
#include <string_view>
#include <vector>

#include "mscclpp/algorithms/schedule/shares.hpp"
#include "support/allreduce.hpp"

using namespace mscclpp_test;

namespace {

constexpr float notANumber = std::numeric_limits<float>::quiet_NaN();

}  // namespace

TEST_CASE("minimum and maximum, with values that are not numbers") {
  CHECK(Min{}(1.0f, 2.0f) == 1.0f);
  CHECK(Min{}(2.0f, 1.0f) == 1.0f);
  CHECK(Max{}(1.0f, 2.0f) == 2.0f);
  CHECK(Max{}(2.0f, 1.0f) == 2.0f);
  CHECK(std::isnan(Min{}(1.0f, notANumber)));
  CHECK(std::isnan(Min{}(notANumber, 1.0f)));
  CHECK(std::isnan(Max{}(1.0f, notANumber)));
  CHECK(std::isnan(Max{}(notANumber, 1.0f)));
  // Of equal values the first stays: zeros differ in their sign.
  CHECK(!std::signbit(Min{}(0.0f, -0.0f)));
  CHECK(std::signbit(Max{}(-0.0f, 0.0f)));
}

TEST_CASE("vectors, element by element") {
  Vector<int, 3> const a{{1, 2, 30}};
  Vector<int, 3> const b{{5, 7, 11}};
  auto const same = [](Vector<int, 3> const& v, int x, int y, int z) { return v[0] == x && v[1] == y && v[2] == z; };
  CHECK(same(a + b, 6, 9, 41));
  CHECK(same(a - b, -4, -5, 19));
  CHECK(same(a * b, 5, 14, 330));
  CHECK(same(a + 1, 2, 3, 31));
  CHECK(same(a - 1, 0, 1, 29));
  CHECK(same(a * 3, 3, 6, 90));
  CHECK(convert<float>(a)[2] == 30.0f);
}

namespace {

// A user's type whose sum and product depend on the order of their operands, as those of matrices do.
struct Ordered {
  int value;

  friend Ordered operator+(Ordered a, Ordered b) { return {10 * a.value + b.value}; }
  friend Ordered operator*(Ordered a, Ordered b) { return {100 * a.value + b.value}; }
};

}  // namespace

TEST_CASE("operators of vectors keep the order of their operands") {
  Vector<Ordered, 2> const a{{{1}, {2}}};
  Vector<Ordered, 2> const b{{{3}, {4}}};
  CHECK((a + b)[0].value == 13);
  CHECK((a + b)[1].value == 24);
  CHECK((a * b)[0].value == 103);
  CHECK((a * b)[1].value == 204);
}

TEST_CASE("bits") {
  CHECK(minimum(2, 3) == 2);
  CHECK(minimum(3, 2) == 2);
  // Of equal values the first, as with std::min.
  CHECK(!std::signbit(minimum(0.0f, -0.0f)));
  CHECK(std::signbit(minimum(-0.0f, 0.0f)));
  CHECK(ceilDiv(6, 3) == 2);
  CHECK(ceilDiv(7, 3) == 3);
  constexpr auto most = ~std::uint64_t{0};
  CHECK(rangeEnd(3, 5) == 8);
  CHECK(rangeEnd(3, 5, 4) == 23);
  CHECK(rangeEnd(most - 5, 5) == most);
  CHECK(rangeEnd(most - 4, 5) == most);
  CHECK(rangeEnd(5, most - 4) == most);
  CHECK(rangeEnd(7, most / 8, 8) == most);
  CHECK(rangeEnd(8, most / 8, 8) == most);
  CHECK(rangeEnd(0, most / 8, 8) == most - 7);
}

TEST_CASE("a partition that is used up exactly has no further round") {
  for (std::uint32_t block : {0u, 1u}) {
    TilePartition const exact{.slots = 64, .tile = 16, .slotsPerGroup = 1, .blocks = 2, .block = block};
    CHECK(!exact.isLast(0));
    CHECK(exact.isLast(32));
    TilePartition const more{.slots = 65, .tile = 16, .slotsPerGroup = 1, .blocks = 2, .block = block};
    CHECK(!more.isLast(32));
    CHECK(more.isLast(64));
    CHECK(more.at(64).valid == 1 - block);
    CHECK(more.at(64).exchanged == 1);
  }
}

TEST_CASE("shares of whole lines, the last of which are short or empty") {
  auto const share = [](unsigned rank) { return shareOf<float>(40, 3, rank); };
  CHECK((share(0).first == 0 && share(0).count == 32));
  CHECK((share(1).first == 32 && share(1).count == 8));
  CHECK((share(2).first == 40 && share(2).count == 0));
}

TEST_CASE("windows of a buffer") {
  PayloadReader<float, 2, 8> const reader({nullptr, std::size_t{5} << 28});
  CHECK(reader.window(0).bytes == 0xffffffffu);  // of 5 GiB
  CHECK(reader.window(std::uint64_t{4} << 30).bytes == 1u << 30);
  CHECK(reader.window((std::uint64_t{5} << 30) - 4).bytes == 4);
  CHECK(reader.window(std::uint64_t{5} << 30).bytes == 0);
}

TEST_CASE_TEMPLATE("operations over ranks", Op, Sum, Prod, Min, Max, Avg) {
  checkAlgorithm<"oneshot_ll16", float, Op>({.ranks = 3, .counts = {70}, .blocks = 1, .threads = 32});
  checkAlgorithm<"oneshot_ll16", std::int8_t, Op>({.ranks = 3, .counts = {70}, .blocks = 1, .threads = 32});
}

namespace {

// A user's operation whose answer depends on the order of its operands.
struct Digits {
  static constexpr std::string_view name = "digits";
  MSCCLPP_HOST_DEVICE constexpr std::uint32_t operator()(std::uint32_t a, std::uint32_t b) const { return 10 * a + b; }
  MSCCLPP_HOST_DEVICE constexpr std::uint32_t finish(std::uint32_t total, int) const { return total; }
};

}  // namespace

TEST_CASE("contributions are combined in the order of the ranks") {
  checkAlgorithm<"oneshot_ll16", std::uint32_t, Digits>({.ranks = 3, .counts = {70}, .blocks = 1, .threads = 32});
}

namespace {

struct EpilogueKernel {
  MSCCLPP_DEVICE void operator()(BFloat16 const* in, BFloat16* out, std::size_t count, DeviceTeam const& team) const {
    auto const withIndex = [=](auto values, std::uint64_t index) {
      for (unsigned i = 0; i < values.size; ++i) values[i] = values[i] + static_cast<float>((index + i) % 5);
      return values;
    };
    AllReduce<OneShot, PacketTransport<LL16>, Sum>{team}(thisGrid(), View{in, count}, View{out, count}, withIndex);
    AllReduce<TwoShot, PacketTransport<LL16>, Sum>{team}(thisGrid(), View{in, count}, View{out + count, count},
                                                         withIndex);
    AllReduce<TwoShot, PacketTransport<LL16>, Sum>{team}(thisGrid(), View{in, count}, View{out + 2 * count, count},
                                                         [](auto values) { return values * 2.0f; });
  }
};

}  // namespace

TEST_CASE("epilogues with and without an index") {
  constexpr std::size_t count = 131;
  forEachRank(2, [&](Rank& rank) {
    Team team(rank.communicator, {.blocks = 2, .packetBytes = 1 << 12});
    std::vector<BFloat16> input(count);
    for (std::size_t i = 0; i < count; ++i) input[i] = BFloat16(static_cast<float>(i % 7));
    GpuBuffer<BFloat16> in(rank.device, count);
    GpuBuffer<BFloat16> out(rank.device, 3 * count);
    copyToDevice(in, std::span<BFloat16 const>(input));
    launch(rank.stream, {.blocks = 2, .threads = 32}, EpilogueKernel{}, in.data(), out.data(), count,
           team.deviceHandle());
    rank.synchronize();
    auto const result = copyToHost(out);
    for (std::size_t i = 0; i < count; ++i) {
      auto const sum = static_cast<float>(2 * (i % 7));
      CHECK(static_cast<float>(result[i]) == sum + static_cast<float>(i % 5));
      CHECK(static_cast<float>(result[count + i]) == sum + static_cast<float>(i % 5));
      CHECK(static_cast<float>(result[2 * count + i]) == 2 * sum);
    }
  });
}
