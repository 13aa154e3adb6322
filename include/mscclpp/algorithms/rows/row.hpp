// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A reduced row of a matrix, in the registers of the threads that work on it: what the epilogue of AllReduceRows gets.
//
//   row.map(f)                  each value v becomes f(v)
//   row.map(f, operands...)     or f(v, a, b...): an operand is a MatrixView, of which the element at the same place is
//                               meant, a View, of which that of the same column, or what was fetched ahead
//   row.sum(f), row.max(f)      over the whole row, of f(v); the same bits in all its threads
//   row.store(matrix)           into the same row of a MatrixView, rounded to its type; of a SymmetricMatrix on each
//                               rank that shall have the result
//   row.quantise<Block>(q, s)   v / s into q, and the scale s of each Block columns (0: of the row), which is their
//                               largest magnitude / the largest that q's type can say
// f may take the column behind these. Values are of the accumulator's type, float for the small floats. All threads of
// the row call sum, max and quantise, at the same place; what each costs is in rows/row_group.hpp, and quantise by
// blocks a few exchanges within warps: so a block has up to 32 payloads of the transport.
//
// Operands that the caller names ahead are fetched while the contributions are on their way; one that is named first
// here costs a load from memory behind them. What is read and stored at the same place may be the same memory.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "mscclpp/algorithms/core/concepts.hpp"
#include "mscclpp/algorithms/core/quantised.hpp"
#include "mscclpp/algorithms/rows/row_access.hpp"
#include "mscclpp/algorithms/rows/row_group.hpp"
#include "mscclpp/base/bits.hpp"
#include "mscclpp/device/number.hpp"
#include "mscclpp/device/reduce_op.hpp"
#include "mscclpp/device/tiles/matrix_view.hpp"
#include "mscclpp/device/vector.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

// `G`: of a RowGroup. `U`: chunks of a thread.
template <class Tr, class T, class Acc, unsigned U, RowThreads G>
class Row {
  using Slots = impl::RowSlots<Tr, T>;
  static constexpr unsigned N = Slots::elements;
  template <class X>
  using Access = impl::RowAccess<X, N, N>;

 public:
  using Values = Vector<Acc, N>;

  // Chunks of each stretch of a row of so many columns: no more than the row's blocks have work for alike.
  MSCCLPP_DEVICE static std::uint32_t stretchOf(G const& threads, std::size_t columns) {
    auto const all = static_cast<std::uint32_t>(ceilDiv<std::size_t>(columns, N));
    return minimum(Slots::chunksOf(threads.size()), roundUp(ceilDiv(all, threads.parts()), 32u));
  }
  // Columns of the longest row that these threads hold.
  MSCCLPP_DEVICE static std::uint32_t capacity(G const& threads) {
    return Slots::chunksOf(threads.size()) * threads.parts() * U * N;
  }

  // Stores into symmetric memory go to `targets` ranks: this one, or this one and those behind it.
  MSCCLPP_DEVICE Row(DeviceTeam const& team, G& threads, std::size_t index, std::size_t columns, int targets)
      : team_(team),
        threads_(threads),
        index_(index),
        columns_(static_cast<std::uint32_t>(columns)),
        targets_(targets) {
    auto const stretch = stretchOf(threads, columns);
    bool const has = threads.rank() < stretch;
    MSCCLPP_UNROLL
    for (unsigned i = 0; i < U; ++i) {
      column_[i] = ((i * threads.parts() + threads.part()) * stretch + threads.rank()) * N;
      count_[i] = has && column_[i] < columns_ ? minimum(columns_ - column_[i], N) : 0;
    }
  }

  // Which row of the matrix it is, and how many elements it has.
  MSCCLPP_DEVICE std::size_t index() const { return index_; }
  MSCCLPP_DEVICE std::size_t columns() const { return columns_; }
  // What this thread holds: of its chunk i, below `chunks`, the first count(i) values, of the columns from column(i)
  // on.
  static constexpr unsigned chunks = U;
  MSCCLPP_DEVICE Values& values(unsigned i) { return values_[i]; }
  MSCCLPP_DEVICE unsigned count(unsigned i) const { return count_[i]; }
  MSCCLPP_DEVICE std::uint32_t column(unsigned i) const { return column_[i]; }

  // The elements of an operand, for later calls of map().
  template <RowOperand O>
  MSCCLPP_DEVICE auto fetch(O const& operand) const {
    check(operand, columns_);
    FetchedOperand<Access<std::remove_const_t<typename O::Element>>, U> fetched{};
    MSCCLPP_UNROLL
    for (unsigned i = 0; i < U; ++i) {
      if (count_[i] != 0) hold(fetched.held[i], operand, i);
    }
    return fetched;
  }

  template <class F, class... Operands>
  MSCCLPP_DEVICE void map(F const& f, Operands const&... operands) {
    (check(operands, columns_), ...);
    MSCCLPP_UNROLL
    for (unsigned i = 0; i < U; ++i) {
      if (count_[i] != 0) mapChunk(i, f, valuesOf(operands, i)...);
    }
  }

  MSCCLPP_DEVICE Acc sum() {
    return sum([](Acc v) { return v; });
  }
  template <class F>
  MSCCLPP_DEVICE Acc sum(F const& f) {
    return over(Acc{}, f, Sum{});
  }
  template <class F>
  MSCCLPP_DEVICE Acc max(F const& f) {
    return over(least(), f, Max{});
  }

  template <class M>
  MSCCLPP_DEVICE void store(M const& out) const {
    using X = typename M::Element;
    check(out, columns_);
    forEachTarget(out, [&](MatrixView<X> const& there) {
      auto const row = there.row(index_);
      MSCCLPP_UNROLL
      for (unsigned i = 0; i < U; ++i) {
        if (count_[i] != 0) Access<X>::write(row, column_[i], convert<X>(values_[i]), count_[i]);
      }
    });
  }

  template <unsigned Block = 0, class Q, class S>
  MSCCLPP_DEVICE void quantise(Q const& out, S const& scales) {
    using Element = typename Q::Element;
    constexpr float largest = largestOf<Element>;
    static_assert(largest != 0, "quantise: into Float8E4M3, Float8E5M2 or int8");
    static_assert(std::same_as<typename S::Element, float>, "quantise: scales are float");
    auto const blocks = Block == 0 ? 1 : ceilDiv<std::uint32_t>(columns_, Block == 0 ? 1 : Block);
    check(out, columns_);
    check(scales, blocks);
    if constexpr (Block == 0) {
      auto const most = max([](Acc v) { return v < 0 ? -v : v; });
      MSCCLPP_UNROLL
      for (unsigned i = 0; i < U; ++i) storeChunk(out, i, factorOf(most, largest));
      if (threads_.part() == 0 && threads_.rank() == 0) storeScale(scales, 0, most / largest);
    } else {
      constexpr unsigned lanes = Block / N;
      static_assert(Block % N == 0 && (lanes & (lanes - 1)) == 0 && lanes >= 1 && lanes <= 32,
                    "quantise: a block has 1, 2, 4, 8, 16 or 32 payloads of the transport");
      auto const together = Slots::chunksOf(threads_.size()) * N;
      require(together % Block == 0, team_.watch, -1, std::uint64_t(layout::Misuse::rowColumns), together, Block);
      MSCCLPP_UNROLL
      for (unsigned i = 0; i < U; ++i) {
        float most = 0;
        MSCCLPP_UNROLL
        for (unsigned k = 0; k < N; ++k) {
          if (k < count_[i]) most = Max{}(most, static_cast<float>(values_[i][k] < 0 ? -values_[i][k] : values_[i][k]));
        }
        MSCCLPP_UNROLL
        for (unsigned distance = lanes / 2; distance > 0; distance /= 2) {
          most = Max{}(most, arch::shuffleXor(most, distance));
        }
        storeChunk(out, i, factorOf(most, largest));
        if (count_[i] != 0 && column_[i] % Block == 0) storeScale(scales, column_[i] / Block, most / largest);
      }
    }
  }

 private:
  // No accumulator is below it.
  MSCCLPP_DEVICE static Acc least() {
    if constexpr (std::is_floating_point_v<Acc>) return static_cast<Acc>(-__builtin_huge_valf());
    return std::is_signed_v<Acc> ? static_cast<Acc>(std::uint64_t{1} << (8 * sizeof(Acc) - 1)) : Acc{};
  }
  MSCCLPP_DEVICE static float factorOf(float most, float largest) { return most == 0 ? 0 : largest / most; }

  // A matrix with this row, of so many columns; a vector for all rows; what has been looked at when it was fetched.
  MSCCLPP_DEVICE void requireShape(std::size_t rows, std::size_t columns, std::size_t wanted) const {
    requireAlone(columns == wanted, team_.watch, -1, std::uint64_t(layout::Misuse::countMismatch), wanted, columns);
    requireAlone(rows > index_, team_.watch, -1, std::uint64_t(layout::Misuse::countMismatch), index_ + 1, rows);
  }
  template <class X>
  MSCCLPP_DEVICE void check(MatrixView<X> const& matrix, std::size_t wanted) const {
    requireShape(matrix.rows, matrix.columns, wanted);
  }
  template <class X>
  MSCCLPP_DEVICE void check(SymmetricMatrix<X> const& matrix, std::size_t wanted) const {
    matrix.check(team_.watch, team_.size);
    requireShape(matrix.rows(), matrix.columns(), wanted);
  }
  template <class X>
  MSCCLPP_DEVICE void check(View<X> const& vector, std::size_t wanted) const {
    requireShape(index_ + 1, vector.count, wanted);
  }
  template <class A>
  MSCCLPP_DEVICE void check(FetchedOperand<A, U> const&, std::size_t) const {}

  template <class X>
  using HeldOf = typename Access<std::remove_const_t<X>>::Held;
  template <class X>
  MSCCLPP_DEVICE void hold(HeldOf<X>& held, MatrixView<X> const& operand, unsigned i) const {
    hold(held, operand.row(index_), i);
  }
  template <class X>
  MSCCLPP_DEVICE void hold(HeldOf<X>& held, View<X> const& operand, unsigned i) const {
    Access<std::remove_const_t<X>>::hold(held, {operand.data, operand.count}, column_[i], count_[i]);
  }
  template <RowOperand O>
  MSCCLPP_DEVICE auto valuesOf(O const& operand, unsigned i) const {
    using X = std::remove_const_t<typename O::Element>;
    HeldOf<X> held{};
    hold(held, operand, i);
    return convert<DefaultAccumulator<X>>(Access<X>::valuesOf(held));
  }
  template <class A>
  MSCCLPP_DEVICE auto valuesOf(FetchedOperand<A, U> const& operand, unsigned i) const {
    return convert<DefaultAccumulator<typename A::Element>>(operand.values(i));
  }

  template <class F, class... Others>
  MSCCLPP_DEVICE void mapChunk(unsigned i, F const& f, Others const&... others) {
    auto const first = column_[i];
    MSCCLPP_UNROLL
    for (unsigned k = 0; k < N; ++k) {
      if constexpr (std::invocable<F const&, Acc, decltype(others[0])..., std::uint32_t>) {
        values_[i][k] = static_cast<Acc>(f(values_[i][k], others[k]..., first + k));
      } else {
        static_assert(std::invocable<F const&, Acc, decltype(others[0])...>,
                      "map: the callable takes the value, an element of each operand and, if it likes, the column");
        values_[i][k] = static_cast<Acc>(f(values_[i][k], others[k]...));
      }
    }
  }

  template <class F, class Op>
  MSCCLPP_DEVICE Acc over(Acc const neutral, F const& f, Op const& op) {
    auto total = neutral;
    MSCCLPP_UNROLL
    for (unsigned i = 0; i < U; ++i) {
      auto const here = count_[i];
      MSCCLPP_UNROLL
      for (unsigned k = 0; k < N; ++k) {
        if (k >= here) continue;
        if constexpr (std::invocable<F const&, Acc, std::uint32_t>) {
          total = op(total, static_cast<Acc>(f(values_[i][k], column_[i] + k)));
        } else {
          total = op(total, static_cast<Acc>(f(values_[i][k])));
        }
      }
    }
    return threads_.reduce(total, neutral, op);
  }

  // The own memory last: the others' is further away.
  template <class X, class F>
  MSCCLPP_DEVICE void forEachTarget(SymmetricMatrix<X> const& out, F const& f) const {
    for (int distance = 1; distance < targets_; ++distance) f(out.of(team_.peerAt(distance, team_.size)));
    f(out.own());
  }
  template <class X, class F>
  MSCCLPP_DEVICE void forEachTarget(MatrixView<X> const& out, F const& f) const {
    f(out);
  }

  template <class Q>
  MSCCLPP_DEVICE void storeChunk(Q const& out, unsigned i, float factor) const {
    using Element = typename Q::Element;
    if (count_[i] == 0) return;
    Vector<Element, N> narrow{};
    MSCCLPP_UNROLL
    for (unsigned k = 0; k < N; ++k) {
      if (k < count_[i]) narrow[k] = quantised<Element>(values_[i][k] * factor);
    }
    forEachTarget(out, [&](MatrixView<Element> const& there) {
      Access<Element>::write(there.row(index_), column_[i], narrow, count_[i]);
    });
  }
  template <class S>
  MSCCLPP_DEVICE void storeScale(S const& scales, std::uint32_t block, float scale) const {
    forEachTarget(scales, [&](MatrixView<float> const& there) { *there.at(index_, block) = scale; });
  }

  DeviceTeam const& team_;
  G& threads_;
  std::size_t index_;
  std::uint32_t columns_;
  int targets_;
  std::uint32_t column_[U];  // of each chunk
  unsigned count_[U];        // elements of it that are in the row
  Values values_[U];
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
