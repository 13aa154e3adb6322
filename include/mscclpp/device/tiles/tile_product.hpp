// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A product of bfloat16 matrices in tiles, by the tensor cores of compute capability 9.0: sums over k of
// a(row, k) * b(column, k) in float. Both have the summed dimension along their rows, as x and the weights of a linear
// layer have.
//
//   TileProduct<> product(flags.watch);
//   product(x, weights, tilesOf<OwnFirst<>>(grid, rank, blocks),
//           [&](TileAt const& tile) { round.await(...); },             gate: ahead of the first load of a tile's rows
//           [&](TileAt const& tile, auto& sums, auto const& warps) {   finish: by the threads that have the sums
//             sums.store(y.part(tile.row, tile.column, tile.rows, tile.columns));
//           });
//
// All threads of a block of TileProduct<>::threads call, launched with TileProduct<>::dynamicShared; a kernel has one
// TileProduct, and uses it as often as it likes. A TileGrid for it has tiles of tileRows times tileColumns, and larger
// ones trap; `tiles` is a range of them that can be gone through twice, as the ranges of tilesOf() over blocks can, and
// those over Tickets cannot. 128 threads load, 256 multiply: `gate` is called by the first of those who load, `finish`
// by all who multiply, with their group, whose sync() stands between their stores and an arrive().
//
// Loads stay within the rows and columns of the tile, so what a gate has not let through is not read. Columns, rows and
// the summed dimension may be anything; where rows begin at multiples of 16 bytes loads are asynchronous, else several
// times slower.
//
// Order. What is loaded is read by plain accesses of this device behind the gate: no bulkFence(). After the call, or in
// `finish`, nothing is on its way any more.
//
// Cost. Four stages of 64 elements of k in block-shared memory, one block a multiprocessor. Blocks that load what peers
// have just written keep the multiprocessor's tensor cores waiting only where the gate does.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "mscclpp/base/bits.hpp"
#include "mscclpp/device/bulk_copy.hpp"
#include "mscclpp/device/group.hpp"
#include "mscclpp/device/tiles/matrix_view.hpp"
#include "mscclpp/device/tiles/roles.hpp"
#include "mscclpp/device/tiles/slots.hpp"
#include "mscclpp/device/tiles/swizzled_rows.hpp"
#include "mscclpp/device/tiles/tile_order.hpp"
#include "mscclpp/device/vector.hpp"

#if defined(__CUDACC__)
#include "mscclpp/device/arch/cuda/warpgroup_multiply.hpp"
#else
#include "mscclpp/device/arch/sim/warpgroup_multiply.hpp"
#endif

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

// Whether this code runs where warpgroups multiply; elsewhere a TileProduct traps.
using arch::hasWarpgroupMultiply;

template <unsigned Columns>
class TileProduct;

// What a thread has of a tile's sums: in each group of 8 columns two neighbours, of two rows.
template <unsigned Columns>
class TileSums {
  static constexpr unsigned parts = Columns / 128;

 public:
  // Each sum becomes f(sum, row, column), with its place in the tile; also of those past a ragged tile's end.
  template <class F>
  MSCCLPP_DEVICE void map(F const& f) {
    MSCCLPP_UNROLL
    for (unsigned part = 0; part < parts; ++part) {
      MSCCLPP_UNROLL
      for (unsigned i = 0; i < 64; ++i) {
        auto const column = part * 128 + i / 4 * 8 + lane() % 4 * 2 + i % 2;
        sums_[part][i] = f(sums_[part][i], row() + i / 2 % 2 * 8, column);
      }
    }
  }

  // Into the tile's place in a matrix, `out`, as T. All lanes of a warp call. Elements of 16 bits go out in 128 bytes
  // of a row at a time where the rows of `out` begin at multiples of 16 bytes.
  template <Number T>
  MSCCLPP_DEVICE void store(MatrixView<T> const& out) const {
    if constexpr (sizeof(T) == 2) {
      if (impl::isWhole(out, 16)) return storeLines(out);
    }
    bool const whole = impl::isWhole(out, 2 * sizeof(T));
    MSCCLPP_UNROLL
    for (unsigned part = 0; part < parts; ++part) {
      MSCCLPP_UNROLL
      for (unsigned i = 0; i < 64; i += 2) {
        storeAt(out, row() + i / 2 % 2 * 8, part * 128 + i / 4 * 8 + lane() % 4 * 2, pairOf<T>(part, i), whole);
      }
    }
  }

 private:
  friend class TileProduct<Columns>;

  MSCCLPP_DEVICE explicit TileSums(unsigned firstRow) : firstRow_(firstRow) {}

  MSCCLPP_DEVICE static unsigned lane() { return arch::threadIndex() % arch::warpSize; }
  // The first of the two; the other is the eighth behind it.
  MSCCLPP_DEVICE unsigned row() const { return firstRow_ + arch::threadIndex() / arch::warpSize % 4 * 16 + lane() / 4; }

  template <class T>
  MSCCLPP_DEVICE Vector<T, 2> pairOf(unsigned part, unsigned i) const {
    return convert<T>(Vector<float, 2>{{sums_[part][i], sums_[part][i + 1]}});
  }

  template <class T, unsigned N>
  MSCCLPP_DEVICE static void storeAt(MatrixView<T> const& out, unsigned row, unsigned column,
                                     Vector<T, N> const& values, bool whole) {
    if (row >= out.rows || column >= out.columns) return;
    impl::storeElements<N>(out.at(row, column), values,
                           static_cast<unsigned>(minimum<std::size_t>(N, out.columns - column)), whole);
  }

  // Of 32 columns from group `first` on, of which this lane has two in each of the 4 groups: all 8 of one group, whose
  // number is that of the lane among the 4 that have this row. They exchange what they have in two steps.
  template <class T>
  MSCCLPP_DEVICE Payload<4> gather(unsigned part, unsigned first, unsigned secondRow) const {
    bool const odd = lane() % 2 != 0;
    bool const high = lane() / 2 % 2 != 0;
    std::uint32_t words[2][2];  // of group 2 p + (this lane is odd), from the even and the odd lane
    MSCCLPP_UNROLL
    for (unsigned p = 0; p < 2; ++p) {
      auto const even = pack(pairOf<T>(part, (first + 2 * p) * 4 + secondRow * 2)).word[0];
      auto const other = pack(pairOf<T>(part, (first + 2 * p + 1) * 4 + secondRow * 2)).word[0];
      auto const got = arch::shuffleXor(odd ? even : other, 1);
      words[p][0] = odd ? got : even;
      words[p][1] = odd ? other : got;
    }
    Payload<4> result;
    MSCCLPP_UNROLL
    for (unsigned s = 0; s < 2; ++s) {
      auto const kept = high ? words[1][s] : words[0][s];
      auto const got = arch::shuffleXor(high ? words[0][s] : words[1][s], 2);
      result.word[s] = high ? got : kept;
      result.word[2 + s] = high ? kept : got;
    }
    return result;
  }

  // Of 64 columns the 4 lanes of a row have 4 chunks and 4 more; with the lanes of the next row they exchange one half,
  // so that these 8 lanes store all of a row, then all of the other.
  template <class T>
  MSCCLPP_DEVICE void storeLines(MatrixView<T> const& out) const {
    bool const nextRow = lane() / 4 % 2 != 0;
    MSCCLPP_UNROLL
    for (unsigned part = 0; part < parts; ++part) {
      MSCCLPP_UNROLL
      for (unsigned first = 0; first < 16; first += 8) {
        MSCCLPP_UNROLL
        for (unsigned secondRow = 0; secondRow < 2; ++secondRow) {
          auto const near = gather<T>(part, first, secondRow);
          auto const far = gather<T>(part, first + 4, secondRow);
          auto const got = arch::shuffleXor(nextRow ? near : far, 4);
          auto const line = (row() & ~1u) + secondRow * 8;
          auto const column = part * 128 + first * 8 + (nextRow ? 32 : 0) + lane() % 4 * 8;
          storeAt(out, line, column, unpack<T>(nextRow ? got : near), true);
          storeAt(out, line + 1, column, unpack<T>(nextRow ? far : got), true);
        }
      }
    }
  }

  float sums_[parts][64] = {};
  unsigned firstRow_;
};

// Columns: those of a tile, 128 or 256. With 256 a block reads a quarter less of both matrices for the same work.
template <unsigned Columns = 256>
class TileProduct {
  static_assert(Columns == 128 || Columns == 256, "TileProduct: tiles of 128 or 256 columns");
  static constexpr unsigned loaders = 128;
  static constexpr unsigned depth = SwizzledRows::rowBytes / sizeof(bf16);
  static constexpr unsigned stages = 4;

 public:
  static constexpr unsigned tileRows = 128;
  static constexpr unsigned tileColumns = Columns;
  // Of a block: a warpgroup loads, two multiply 64 rows each.
  static constexpr unsigned threads = loaders + 256;
  static constexpr std::size_t dynamicShared =
      SwizzledRows::alignment + std::size_t{stages} * (tileRows + tileColumns) * SwizzledRows::rowBytes;

  MSCCLPP_DEVICE explicit TileProduct(layout::Watch* watch)
      : watch_(watch), barriers_(arch::blockShared<Barriers, TileProduct>()) {
    auto const block = thisBlock();
    require(block.size() == threads, watch, -1, std::uint64_t(layout::Misuse::blockThreads), threads, block.size());
    auto const past = arch::sharedAddress(arch::dynamicShared()) % SwizzledRows::alignment;
    rows_ = arch::dynamicShared() + (past == 0 ? 0 : SwizzledRows::alignment - past);
    if (block.rank() == 0) {
      MSCCLPP_UNROLL
      for (unsigned i = 0; i < stages; ++i) {
        barriers_.loaded[i].init(loaders);
        barriers_.used[i].init((threads - loaders) / arch::warpSize);
      }
    }
    block.sync();
  }

  template <class A, class B, class Tiles, class Gate, class Finish>
  MSCCLPP_DEVICE void operator()(MatrixView<A> const& a, MatrixView<B> const& b, Tiles const& tiles, Gate const& gate,
                                 Finish const& finish) {
    static_assert(std::same_as<A const, bf16 const> && std::same_as<B const, bf16 const>,
                  "TileProduct: matrices of bfloat16");
    require(a.columns == b.columns, watch_, -1, std::uint64_t(layout::Misuse::countMismatch), a.columns, b.columns);
    auto const steps = static_cast<unsigned>(ceilDiv<std::size_t>(a.columns, depth));
    Roles{loaders / arch::warpSize}.split(
        thisBlock(), [&](auto const& warps) { load(Rows(a), Rows(b), tiles, gate, steps, warps); },
        [&](auto const& warps) { multiply(tiles, finish, steps, warps); });
  }

 private:
  struct Rows : MatrixView<bf16 const> {
    template <class T>
    MSCCLPP_DEVICE explicit Rows(MatrixView<T> const& m)
        : MatrixView<bf16 const>(m.data, m.rows, m.columns, m.stride) {}
  };
  struct Barriers {
    BulkBarrier loaded[stages];
    BulkBarrier used[stages];
  };

  MSCCLPP_DEVICE std::byte* rowsOfA(unsigned stage) const {
    return rows_ + std::size_t{stage} * (tileRows + tileColumns) * SwizzledRows::rowBytes;
  }
  MSCCLPP_DEVICE std::byte* rowsOfB(unsigned stage) const {
    return rowsOfA(stage) + std::size_t{tileRows} * SwizzledRows::rowBytes;
  }
  // Whether it is the first, the second, ... time that a stage is used, by turns.
  MSCCLPP_DEVICE static unsigned parityOf(unsigned turn) { return turn / stages % 2; }

  template <class Tiles, class Gate>
  MSCCLPP_DEVICE void load(Rows const& a, Rows const& b, Tiles const& tiles, Gate const& gate, unsigned steps,
                           WarpsOfBlock const& warps) {
    bool const whole = impl::isWhole(a, SwizzledRows::chunkBytes) && impl::isWhole(b, SwizzledRows::chunkBytes);
    for (auto const& tile : tiles) {
      if (tile.rows > tileRows || tile.columns > tileColumns) {
        arch::trap("TileProduct: a tile has more than tileRows rows or tileColumns columns; give the TileGrid these");
      }
      if (warps.rank() == 0) gate(tile);
      syncWhole(warps);
      auto const left = a.part(tile.row, 0, tile.rows, a.columns);
      auto const right = b.part(tile.column, 0, tile.columns, b.columns);
      for (unsigned step = 0; step < steps; ++step, ++turn_) {
        auto const stage = turn_ % stages;
        if (turn_ >= stages) barriers_.used[stage].wait(watch_, parityOf(turn_ - stages));
        impl::withConstant(whole, [&](auto isWhole) {
          loadRows<tileRows, decltype(isWhole)::value>(rowsOfA(stage), left, step * depth, warps.rank());
          loadRows<tileColumns, decltype(isWhole)::value>(rowsOfB(stage), right, step * depth, warps.rank());
          if constexpr (decltype(isWhole)::value) {
            barriers_.loaded[stage].arriveBehindCopies();
          } else {
            barriers_.loaded[stage].arrive();
          }
        });
      }
    }
  }

  // 8 threads a row, a chunk each; behind the matrix's end zeros.
  template <unsigned Count, bool Whole>
  MSCCLPP_DEVICE static void loadRows(std::byte* to, MatrixView<bf16 const> const& from, std::size_t column,
                                      unsigned thread) {
    constexpr unsigned n = SwizzledRows::chunkBytes / sizeof(bf16);
    auto const chunk = thread % SwizzledRows::chunks;
    auto const first = column + chunk * n;
    auto const inside = first < from.columns ? minimum<unsigned>(n, static_cast<unsigned>(from.columns - first)) : 0;
    MSCCLPP_UNROLL
    for (unsigned i = 0; i < Count / (loaders / SwizzledRows::chunks); ++i) {
      auto const row = thread / SwizzledRows::chunks + i * (loaders / SwizzledRows::chunks);
      auto const count = row < from.rows ? inside : 0;
      auto const* const at = count == 0 ? from.data : from.at(row, first);
      auto* const there = to + SwizzledRows::offset(row, chunk);
      if constexpr (Whole) {
        copyChunk(there, at, count * static_cast<unsigned>(sizeof(bf16)));
      } else {
        impl::loadElements<false>(*reinterpret_cast<Payload<4>*>(there), at, count);
      }
    }
  }

  template <class Tiles, class Finish>
  MSCCLPP_DEVICE void multiply(Tiles const& tiles, Finish const& finish, unsigned steps, WarpsOfBlock const& warps) {
    auto const firstRow = warps.rank() / 128 * 64;
    for (auto const& tile : tiles) {
      TileSums<Columns> sums(firstRow);
      for (unsigned step = 0; step < steps; ++step, ++turn_) {
        auto const stage = turn_ % stages;
        barriers_.loaded[stage].wait(watch_, parityOf(turn_));
        arch::multiplySwizzled(sums.sums_, rowsOfA(stage) + std::size_t{firstRow} * SwizzledRows::rowBytes,
                               rowsOfB(stage));
        thisWarp().sync();
        if (thisWarp().rank() == 0) barriers_.used[stage].arrive();
      }
      finish(tile, sums, warps);
    }
  }

  layout::Watch* watch_;
  Barriers& barriers_;
  std::byte* rows_;
  unsigned turn_ = 0;  // stages that this thread has loaded or used
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
