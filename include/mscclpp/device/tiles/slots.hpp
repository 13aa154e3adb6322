// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sums over ranks of a matrix whose rows are dealt out: every rank writes its part of a tile into a slot of its own in
// the memory of the tile's owner, who adds them up.
//
//   Slots<bf16> slots(window, offset, grid);
//   slots.target(tile)                                    where this rank's part goes, in the owner's memory
//   foldSlots<Sum>(group, slots, tile, out, epilogue)     the owner's sum of a tile into `out`, its place in a matrix
//
// A sum is made in rank order and in the accumulator's type, float for the small floats, and rounded once: the same
// bits in every run, whoever comes first. That is what slots cost memory for: bytes(grid) of the window on each rank,
// as much as the whole matrix. They order nothing by themselves: tile flags do (tile_flags.hpp).
//
// `epilogue(values, place)` gets a Vector of accumulators in one row, and where in the whole matrix the first is; those
// from place.count on are past the tile's end. What it returns is stored. The group's threads share the tile, by
// accesses of 16 bytes where places and strides allow it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "mscclpp/base/bits.hpp"
#include "mscclpp/device/group.hpp"
#include "mscclpp/device/number.hpp"
#include "mscclpp/device/reduce_op.hpp"
#include "mscclpp/device/tiles/matrix_view.hpp"
#include "mscclpp/device/tiles/tile_order.hpp"
#include "mscclpp/device/vector.hpp"
#include "mscclpp/layout/window_handle.hpp"

namespace mscclpp {

// `count` elements in one row of the whole matrix, from (row, column) on.
struct TilePlace {
  std::uint32_t row;
  std::uint32_t column;
  std::uint32_t count;
};

inline namespace MSCCLPP_BACKEND {

// Refers to the handle that the kernel got, as SymmetricView does.
template <Number T>
class Slots {
 public:
  // `offset` bytes from the start of the window, a multiple of 16 where accesses shall be of 16 bytes.
  MSCCLPP_DEVICE Slots(layout::WindowHandle const& window, std::uint64_t offset, TileGrid const& grid)
      : window_(window), offset_(offset), grid_(grid) {}

  MSCCLPP_HOST_DEVICE static constexpr std::uint64_t bytes(TileGrid const& grid) {
    return std::uint64_t{grid.shardRows()} * grid.columns * sizeof(T) * static_cast<unsigned>(grid.ranks);
  }

  // What `source` has for `owner`: the owner's rows.
  MSCCLPP_DEVICE MatrixView<T> of(int owner, int source) const {
    auto const slot = std::size_t{grid_.shardRows()} * grid_.columns;
    auto* const first = reinterpret_cast<T*>(window_.bases[owner] + offset_);
    return {first + static_cast<std::size_t>(source) * slot, grid_.rowsOf(owner), grid_.columns};
  }
  MSCCLPP_DEVICE MatrixView<T> target(TileAt const& tile) const {
    return of(tile.owner, window_.rank).part(tile.shardRow, tile.column, tile.rows, tile.columns);
  }
  MSCCLPP_DEVICE TileGrid const& grid() const { return grid_; }
  MSCCLPP_DEVICE int rank() const { return window_.rank; }

  // Refuses the launch where the slots end past the window, or the window is another group's.
  MSCCLPP_DEVICE void check(layout::Watch* watch) const {
    SymmetricView<std::byte>(window_, offset_, bytes(grid_)).check(watch, grid_.ranks);
  }

 private:
  layout::WindowHandle const& window_;
  std::uint64_t offset_;
  TileGrid grid_;
};

namespace impl {

// Whether rows may be accessed in payloads of `bytes`, each at a multiple of that from a row's first element.
template <class T>
MSCCLPP_DEVICE bool isWhole(MatrixView<T> const& matrix, unsigned bytes) {
  return isAligned(matrix.data, bytes) && matrix.stride * sizeof(T) % bytes == 0;
}

// Takes the first `count` of 16 bytes of elements; those behind them are zero. With Whole a lane takes all, from a
// multiple of 16 bytes, or leaves `to` as it is: nothing but the load is done to `to`, so that several are on their way
// until the first is unpacked.
template <bool Whole, class T>
MSCCLPP_DEVICE void loadElements(Payload<4>& to, T const* from, unsigned count) {
  if constexpr (Whole) {
    if (count != 0) to = *reinterpret_cast<Payload<4> const*>(from);
  } else {
    constexpr unsigned n = 16 / sizeof(T);
    Vector<T, n> values{};
    MSCCLPP_UNROLL
    for (unsigned k = 0; k < n; ++k) {
      if (k < count) values[k] = from[k];
    }
    to = pack(values);
  }
}

// Of N elements the first `count`, in payloads where that is `whole`.

template <unsigned N, class T>
MSCCLPP_DEVICE void storeElements(T* to, Vector<T, N> const& values, unsigned count, bool whole) {
  constexpr unsigned bytes = N * sizeof(T);
  if constexpr (bytes % 4 == 0) {
    constexpr unsigned each = minimum<unsigned>(bytes, 16) / sizeof(T);
    if (whole && count == N) {
      MSCCLPP_UNROLL
      for (unsigned first = 0; first < N; first += each) {
        Vector<T, each> part;
        MSCCLPP_UNROLL
        for (unsigned k = 0; k < each; ++k) part[k] = values[first + k];
        *reinterpret_cast<Payload<each * sizeof(T) / 4>*>(to + first) = pack(part);
      }
      return;
    }
  }
  MSCCLPP_UNROLL
  for (unsigned k = 0; k < N; ++k) {
    if (k < count) to[k] = values[k];
  }
}

// f(std::true_type or std::false_type), as `condition` is.
template <class F>
MSCCLPP_DEVICE void withConstant(bool condition, F const& f) {
  if (condition) {
    f(std::true_type{});
  } else {
    f(std::false_type{});
  }
}

struct SumsAsTheyAre {
  template <class V>
  MSCCLPP_DEVICE V operator()(V const& values, TilePlace const&) const {
    return values;
  }
};

}  // namespace impl

// By the tile's owner, whose threads know that all parts have come. `out` has the size of the tile.
template <class Op, Group G, Number T, Number Out, class Epilogue = impl::SumsAsTheyAre>
MSCCLPP_DEVICE void foldSlots(G const& group, Slots<T> const& slots, TileAt const& tile, MatrixView<Out> const& out,
                              Epilogue const& epilogue = {}) {
  using Acc = DefaultAccumulator<T>;
  static_assert(ReduceOperation<Op, Acc>, "foldSlots: op(a, b) and op.finish(total, count) of accumulators");
  constexpr unsigned n = 16 / sizeof(T);
  constexpr int together = 4;  // loads on their way
  int const ranks = slots.grid().ranks;
  auto const partOf = [&](int source) {
    return slots.of(slots.rank(), source).part(tile.shardRow, tile.column, tile.rows, tile.columns);
  };
  bool const wholeIn = impl::isWhole(partOf(0), 16);  // all slots lie alike where rows are whole payloads
  bool const wholeOut = impl::isWhole(out, minimum<unsigned>(n * sizeof(Out), 16));
  auto const perRow = ceilDiv(tile.columns, n);
  impl::withConstant(wholeIn && tile.columns % n == 0, [&](auto whole) {
    for (unsigned i = group.rank(); i < perRow * tile.rows; i += group.size()) {
      auto const row = i / perRow;
      auto const column = i % perRow * n;
      auto const count = minimum(n, tile.columns - column);
      Vector<Acc, n> total{};
      for (int first = 0; first < ranks; first += together) {
        Payload<4> parts[together];
        arch::leaveUnset(parts);
        MSCCLPP_UNROLL
        for (int k = 0; k < together; ++k) {
          if (first + k < ranks) {
            impl::loadElements<decltype(whole)::value>(parts[k], partOf(first + k).at(row, column), count);
          }
        }
        MSCCLPP_UNROLL
        for (int k = 0; k < together; ++k) {
          if (first + k >= ranks) continue;
          auto const values = convert<Acc>(unpack<T>(parts[k]));
          total = first + k == 0 ? values : map(total, values, Op{});
        }
      }
      total = map(total, [&](Acc sum) { return Op{}.finish(sum, ranks); });
      auto const results = epilogue(total, TilePlace{tile.row + row, tile.column + column, count});
      impl::storeElements<n>(out.at(row, column), convert<Out>(results), count, wholeOut);
    }
  });
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
