// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where the elements of a row lie among the payloads of a transport, and how a thread reads and writes those at its own
// places, of any type: what Row (rows/row.hpp) is made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "mscclpp/base/bits.hpp"
#include "mscclpp/device/tiles/matrix_view.hpp"
#include "mscclpp/device/vector.hpp"
#include "mscclpp/device/view.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

namespace impl {

// How a row of T lies among the threads of a block, by transport `Tr`: stretch by stretch, of each a chunk a thread. A
// chunk is as large as a payload; those of lines are fewer than the slots that carry them, of which the flags take a
// part. The i-th stretch of a row's part is the (i * parts + part)-th of the row.
template <class Tr, class T>
struct RowSlots {
  static constexpr unsigned chunkBytes = Tr::words * 4;
  static constexpr unsigned elements = chunkBytes / sizeof(T);  // of a chunk
  static constexpr bool inLines = Tr::slotsPerGroup > 1;

  // Chunks of a stretch that so many threads exchange, in whole warps where there is one.
  MSCCLPP_HOST_DEVICE static constexpr unsigned chunksOf(unsigned threads) {
    if constexpr (!inLines) {
      return threads;
    } else {
      auto const whole = threads / Tr::slotsPerGroup * (Tr::slotsPerGroup * chunkBytes - 8) / chunkBytes;
      return whole >= 32 ? whole / 32 * 32 : whole / 16 * 16;
    }
  }
  // Threads that hold a row of so many columns together, where each has Tr::unroll chunks.
  static constexpr std::uint64_t holders(std::size_t columns) {
    return ceilDiv<std::uint64_t>(ceilDiv<std::uint64_t>(columns, elements), Tr::unroll);
  }
  // The least threads, in whole warps, that exchange a stretch of so many.
  static constexpr std::uint64_t threadsFor(std::uint64_t chunks) {
    if (inLines && chunks > chunksOf(32)) chunks = Tr::slotsFor(roundUp<std::uint64_t>(chunks, 32) * chunkBytes);
    return roundUp<std::uint64_t>(chunks, 32);
  }
};

// Elements of X where slots have N of them, accessed `Together` at a time: by payloads of up to 16 bytes where these
// are whole words.
template <class X, unsigned N, unsigned Together>
struct RowAccess {
  using Element = X;
  static constexpr unsigned granule = minimum<unsigned>(Together * sizeof(X), 16);
  static constexpr bool inWords = granule >= 4 && granule >= sizeof(X);
  static constexpr unsigned words = minimum<unsigned>(N * sizeof(X) / 4, 4);  // of a payload
  static constexpr unsigned each = inWords ? words * 4 / sizeof(X) : 1;       // elements in it
  static_assert(N % each == 0);

  struct Packed {
    Payload<words> part[N / each];
  };
  // Elements as they lie in memory. Where they are unpacked only later, no load of them is waited for until then.
  using Held = std::conditional_t<inWords, Packed, Vector<X, N>>;

  // Takes the first `count`.
  MSCCLPP_DEVICE static void hold(Held& held, View<X const> row, std::uint32_t column, unsigned count) {
    if constexpr (inWords) {
      PayloadReader<X, words, granule> const reader(row);
      auto const window = reader.window(0);
      MSCCLPP_UNROLL
      for (unsigned first = 0; first < N; first += each) {
        if (first >= count) break;
        held.part[first / each] = reader.read(window, (column + first) * elementBytes, bytesOf(count - first));
      }
    } else {
      MSCCLPP_UNROLL
      for (unsigned k = 0; k < N; ++k) {
        if (k < count) held[k] = row.data[column + k];
      }
    }
  }
  MSCCLPP_DEVICE static Vector<X, N> valuesOf(Held const& held) {
    if constexpr (inWords) {
      Vector<X, N> values{};
      MSCCLPP_UNROLL
      for (unsigned first = 0; first < N; first += each) {
        auto const part = unpack<X>(held.part[first / each]);
        MSCCLPP_UNROLL
        for (unsigned k = 0; k < each; ++k) values[first + k] = part[k];
      }
      return values;
    } else {
      return held;
    }
  }

  MSCCLPP_DEVICE static Vector<X, N> read(View<X const> row, std::uint32_t column, unsigned count) {
    Held held{};
    hold(held, row, column, count);
    return valuesOf(held);
  }

  MSCCLPP_DEVICE static void write(View<X> row, std::uint32_t column, Vector<X, N> const& values, unsigned count) {
    if constexpr (inWords) {
      PayloadWriter<X, words, granule> const writer(row);
      auto const window = writer.window(0);
      MSCCLPP_UNROLL
      for (unsigned first = 0; first < N; first += each) {
        if (first >= count) break;
        Vector<X, each> part;
        MSCCLPP_UNROLL
        for (unsigned k = 0; k < each; ++k) part[k] = values[first + k];
        writer.write(window, (column + first) * elementBytes, pack(part), bytesOf(count - first));
      }
    } else {
      MSCCLPP_UNROLL
      for (unsigned k = 0; k < N; ++k) {
        if (k < count) row.data[column + k] = values[k];
      }
    }
  }

 private:
  static constexpr std::uint32_t elementBytes = sizeof(X);
  // Of what is left, those in one payload; whole granules, behind which a ragged row's end lies.
  MSCCLPP_DEVICE static std::uint32_t bytesOf(unsigned left) {
    return roundUp(minimum<unsigned>(left, each) * elementBytes, granule);
  }
};

template <class T>
inline constexpr bool isMatrix = false;
template <class T>
inline constexpr bool isMatrix<MatrixView<T>> = true;
template <class T>
inline constexpr bool isColumns = false;
template <class T>
inline constexpr bool isColumns<View<T>> = true;

}  // namespace impl

// What an epilogue may name beside the row: a matrix with such rows, or one vector for all rows.
template <class O>
concept RowOperand = impl::isMatrix<O> || impl::isColumns<O>;

// An operand's elements at a thread's places of a row, as `Access` holds them.
template <class Access, unsigned U>
struct FetchedOperand {
  typename Access::Held held[U];

  // Those of slot i; their loads are waited for here.
  MSCCLPP_DEVICE auto values(unsigned i) const { return Access::valuesOf(held[i]); }
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
