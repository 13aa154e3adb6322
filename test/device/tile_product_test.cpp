// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of matrices in tiles, of any shape: what they are made of, by themselves, and between collectives.
#include "mscclpp/device/tiles/tile_product.hpp"

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "support/tile_products.hpp"

using namespace mscclpp_test;

namespace {

// y = a times b's rows, each sum plus `row` times `column`, in a matrix with `gap` more columns.
template <unsigned Columns, class T>
struct PlainProduct {
  static constexpr unsigned maxThreads = TileProduct<Columns>::threads;

  MSCCLPP_DEVICE void operator()(MatrixView<bf16 const> const& a, MatrixView<bf16 const> const& b,
                                 MatrixView<T> const& y, layout::Watch* watch) const {
    TileGrid const grid{static_cast<std::uint32_t>(y.rows), static_cast<std::uint32_t>(y.columns),
                        TileProduct<Columns>::tileRows, Columns, 1};
    TileProduct<Columns> product(watch);
    auto const half = [&](unsigned first) {  // a kernel may use it more than once
      product(
          a, b, TileRange<OwnOnly<>>(grid, 0, 2 * thisGrid().blockRank() + first, 2 * thisGrid().blockCount()),
          [](TileAt const&) {},
          [&](TileAt const& tile, auto& sums, auto const&) {
            sums.map([&](float sum, unsigned row, unsigned column) {
              return sum + static_cast<float>((tile.row + row) % 4 * ((tile.column + column) % 4));
            });
            sums.store(y.part(tile.row, tile.column, tile.rows, tile.columns));
          });
    };
    half(0);
    half(1);
  }
};

template <unsigned Columns, class T>
void checkPlain(Rank& rank, ProductCase const& test, unsigned gap = 0, unsigned offset = 0) {
  CAPTURE(test.rows);
  CAPTURE(test.inner);
  CAPTURE(test.columns);
  CAPTURE(gap);
  auto const a = productInput(test, 0, 0, test.rows), b = productInput(test, 1, 0, test.columns);
  auto left = a;
  left.insert(left.begin(), offset, bf16(7.0f));
  auto const onLeft = onDevice(rank.device, left), onRight = onDevice(rank.device, b);
  auto const stride = test.columns + gap;
  GpuBuffer<T> const y(rank.device, std::size_t{test.rows} * stride);
  y.fill(0xee);
  auto const before = copyToHost(y);
  using Product = TileProduct<Columns>;
  Team const team(rank.communicator, {.blocks = 1});  // for its watch
  launch(rank.stream, {.blocks = test.blocks, .threads = Product::threads, .dynamicShared = Product::dynamicShared},
         PlainProduct<Columns, T>{}, MatrixView<bf16 const>{onLeft.data() + offset, test.rows, test.inner},
         MatrixView<bf16 const>{onRight.data(), test.columns, test.inner},
         MatrixView<T>{y.data(), test.rows, test.columns, stride}, team.deviceHandle().watch);
  rank.synchronize();
  auto const sums = tileProductOnHost(a, b, test);
  auto const found = copyToHost(y);
  std::size_t wrong = 0;
  for (std::size_t row = 0; row < test.rows; ++row) {
    for (std::size_t column = 0; column < stride; ++column) {
      auto const is = static_cast<float>(found[row * stride + column]);
      if (column >= test.columns) {
        wrong += is == static_cast<float>(before[row * stride + column]) ? 0 : 1;
      } else {
        auto const sum = sums[row * test.columns + column] + static_cast<float>(row % 4 * (column % 4));
        wrong += is == static_cast<float>(static_cast<T>(sum)) ? 0 : 1;
      }
    }
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("a chunk of 8 rows is in all banks, and each chunk has its own place") {
  std::set<std::uint32_t> places;
  for (unsigned chunk = 0; chunk < SwizzledRows::chunks; ++chunk) {
    std::set<std::uint32_t> banks;
    for (unsigned row = 0; row < 8; ++row) {
      auto const offset = SwizzledRows::offset(row, chunk);
      CHECK(offset / SwizzledRows::rowBytes == row);
      banks.insert(offset / 4 % 32);
      places.insert(offset);
    }
    CHECK(banks.size() == 8);
  }
  CHECK(places.size() == std::size_t{8} * SwizzledRows::chunks);
  CHECK(SwizzledRows::offset(0, 5) == 5 * 16);
  CHECK(SwizzledRows::offset(3, 5) == 3 * 128 + (5 ^ 3) * 16);
  CHECK(SwizzledRows::offset(11, 5) == 11 * 128 + (5 ^ 3) * 16);
}

TEST_CASE("a descriptor names the begin, the distance of 8 rows and the swizzle") {
  // By PTX: bits 0 to 13 the address, 16 to 29 and 32 to 45 the distances, in units of 16 bytes; 62 and 63 the swizzle.
  CHECK(SwizzledRows::descriptor(0, 0) == 0x4000'0040'0001'0000u);
  CHECK(SwizzledRows::descriptor(0x400, 0) == 0x4000'0040'0001'0040u);
  CHECK(SwizzledRows::descriptor(0x400, 96) == 0x4000'0040'0001'0046u);
  CHECK(SwizzledRows::descriptor(0x38000, 32) == 0x4000'0040'0001'3802u);
}

TEST_CASE("what a descriptor names is where the chunks are") {
  for (std::uint32_t const begin : {0u, 1024u, 64u * 1024u, 226u * 1024u}) {
    for (unsigned row = 0; row < 128; ++row) {
      for (unsigned chunk = 0; chunk < SwizzledRows::chunks; ++chunk) {
        // Two chunks are the 16 elements of a step; the descriptor begins with those of the step.
        auto const descriptor = SwizzledRows::descriptor(begin, chunk / 2 * 32);
        CHECK(SwizzledRows::place(descriptor, row, chunk % 2 * 16) == begin + SwizzledRows::offset(row, chunk));
      }
    }
  }
}

TEST_CASE("products of any shape") {
  if (!canRun(1)) return;
  forEachRank(1, [](Rank& rank) {
    if (!canMultiply(rank)) return;
    checkPlain<128, float>(rank, {.rows = 128, .inner = 64, .columns = 128, .blocks = 1});
    checkPlain<256, BFloat16>(rank, {.rows = 128, .inner = 64, .columns = 256, .blocks = 1});
    checkPlain<128, BFloat16>(rank, {.rows = 1, .inner = 1, .columns = 1, .blocks = 1});
    checkPlain<256, float>(rank, {.rows = 65, .inner = 7, .columns = 260, .blocks = 3});
    checkPlain<128, BFloat16>(rank, {.rows = 130, .inner = 72, .columns = 136});
    checkPlain<128, BFloat16>(rank, {.rows = 71, .inner = 72, .columns = 133}, 3);
    checkPlain<128, Half>(rank, {.rows = 9, .inner = 16, .columns = 70}, 2);
    checkPlain<128, float>(rank, {.rows = 9, .inner = 16, .columns = 70}, 0, 1);
    checkPlain<128, float>(rank, {.rows = 5, .inner = 400, .columns = 3});
  });
}

TEST_CASE("all-gather and product, product and reduce-scatter") {
  for (int const ranks : {2, 3}) {
    if (!canRun(ranks)) continue;
    forEachRank(ranks, [](Rank& rank) {
      if (!canMultiply(rank)) return;
      ProductCase const test{.rows = 261, .inner = 72, .columns = 150, .rounds = 2};
      runGatherTileProduct<128>(rank, test);
      runTileProductScatter<128>(rank, test);
      runTileProductScatter<256>(rank, {.rows = 2, .inner = 9, .columns = 300});
    });
  }
}

TEST_CASE("blocks of other sizes are refused with the number") {
  if (!canRun(1)) return;
  forEachRank(1, [](Rank& rank) {
    if (!canMultiply(rank)) return;
    GpuBuffer<bf16> const x(rank.device, 64);
    GpuBuffer<float> const y(rank.device, 1);
    Team const team(rank.communicator, {.blocks = 1});
    launch(rank.stream, {.blocks = 1, .threads = 256, .dynamicShared = TileProduct<128>::dynamicShared},
           PlainProduct<128, float>{}, MatrixView<bf16 const>{x.data(), 1, 64}, MatrixView<bf16 const>{x.data(), 1, 64},
           MatrixView<float>{y.data(), 1, 1}, team.deviceHandle().watch);
    std::string what;
    try {
      rank.communicator.synchronize(rank.stream);
    } catch (Error const& error) {
      what = error.what();
    }
    CHECK_MESSAGE(what.find("384") != std::string::npos, what);
    CHECK_MESSAGE(what.find("256") != std::string::npos, what);
  });
}

// Elsewhere the kernel fails as well, and takes the process's GPU with it.
#if !defined(__CUDACC__)
namespace {

struct TooLargeTiles {
  MSCCLPP_DEVICE void operator()(MatrixView<bf16 const> const& x, MatrixView<float> const& y) const {
    TileGrid const grid{256, 1, 256, 1, 1};
    TileProduct<128> product(nullptr);
    product(
        x, x, tilesOf<OwnOnly<>>(grid, 0, thisGrid()), [](TileAt const&) {},
        [&](TileAt const&, auto const& sums, auto const&) { sums.store(y); });
  }
};

}  // namespace

TEST_CASE("tiles that are too large fail the kernel") {
  forEachRank(1, [](Rank& rank) {
    GpuBuffer<bf16> const x(rank.device, 256);
    GpuBuffer<float> const y(rank.device, 256);
    launch(rank.stream, productShape<128>(1), TooLargeTiles{}, MatrixView<bf16 const>{x.data(), 256, 1},
           MatrixView{y.data(), 256, 1});
    CHECK_THROWS_WITH_AS(rank.communicator.synchronize(rank.stream), doctest::Contains("more than tileRows rows"),
                         Error);
  });
}
#endif
