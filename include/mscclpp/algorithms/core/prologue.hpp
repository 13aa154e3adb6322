// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The input of a collective: elements as they lie in memory, or what a prologue makes of them in registers before they
// are sent. A cast, a scale, a residual, a quantisation: no pass over memory of its own.
//
//   allReduce(thisGrid(), WithPrologue{View{x, n}, [=](auto v) { return v * scale; }}, View{y, n});
//   allGather(thisGrid(), WithPrologue{View{x, n}, [](auto v) { return v; }}, View{asFloat8, n * ranks});   // a cast
//
// The prologue is called by each thread for the elements that it sends, with a Vector of them, of the accumulator type
// of the input's elements (float for small floats), and, if it takes that, the index of the first in the input. Its
// answer is converted to the element type of the output, which is what travels; sums are of what has travelled. It may
// be asked more than once about an element and must not care. The index is below the count, but the Vector that holds
// the last elements may reach past it: elements there are zero, and so may be some that another thread sends.
//
// It works wherever this rank itself reads its input, and not where peers read it (PullSchedule) or copies move it.
// `in` and `out` may be the same buffer where their elements are equally large, and otherwise do not overlap.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "mscclpp/device/number.hpp"
#include "mscclpp/device/vector.hpp"
#include "mscclpp/device/view.hpp"

namespace mscclpp {

template <class In, class F>
struct WithPrologue {
  View<In> view;
  F prologue;
};
template <class In, class F>
WithPrologue(View<In>, F) -> WithPrologue<In, F>;

// The elements of T that `*prologue` makes of `data[0]`.., which have the index `first` and so on in the whole input.
template <Number T, Number In, class F>
struct PreparedView {
  using Element = T;
  In const* data;
  std::size_t count;
  std::uint64_t first;
  F const* prologue;

  // As they travel.
  MSCCLPP_HOST_DEVICE constexpr std::uint64_t bytes() const { return std::uint64_t{count} * sizeof(T); }
  MSCCLPP_HOST_DEVICE constexpr PreparedView part(std::size_t from, std::size_t elements) const {
    return {data + from, elements, first + from, prologue};
  }
};

// What a rank reads to send it, in parts of its choice: a View<T const>, or a PreparedView.
template <class S>
concept ElementSource = requires(S const& source) {
  typename S::Element;
  { source.count } -> std::convertible_to<std::size_t>;
  { source.bytes() } -> std::same_as<std::uint64_t>;
  { source.part(std::size_t{}, std::size_t{}) } -> std::same_as<S>;
};

// One whose elements travel as T.
template <class S, class T>
concept SourceOf = ElementSource<S> && std::same_as<typename S::Element, T>;

// What a caller may give a collective as its input.
template <class I>
inline constexpr bool isInput = false;
template <class In>
inline constexpr bool isInput<View<In>> = true;
template <class In, class F>
inline constexpr bool isInput<WithPrologue<In, F>> = true;
template <class I>
concept Input = isInput<I>;

// Of type In: does it give elements of T?
template <class T, class In>
inline constexpr bool givesElements = false;
template <class T, class In>
inline constexpr bool givesElements<T, View<In>> = std::same_as<std::remove_const_t<In>, T>;
template <class T, class In, class F>
inline constexpr bool givesElements<T, WithPrologue<In, F>> = Number<T>&& Number<std::remove_const_t<In>>;

// The elements in memory, without what a prologue makes of them.
template <class In>
MSCCLPP_HOST_DEVICE constexpr View<In> viewOf(View<In> const& input) {
  return input;
}
template <class In, class F>
MSCCLPP_HOST_DEVICE constexpr View<In> viewOf(WithPrologue<In, F> const& input) {
  return input.view;
}

// What is told by its address only, and its parts.
template <class T>
MSCCLPP_HOST_DEVICE constexpr View<T> asInput(T* data) {
  return {data, 0};
}
template <Input I>
MSCCLPP_HOST_DEVICE constexpr I const& asInput(I const& input) {
  return input;
}

// The input as elements of T. The prologue stays where it is.
template <class T, class In>
MSCCLPP_HOST_DEVICE constexpr View<T const> sourceOf(View<In> const& input) {
  return {input.data, input.count};
}
template <class T, class In, class F>
MSCCLPP_HOST_DEVICE constexpr auto sourceOf(WithPrologue<In, F> const& input) {
  return PreparedView<T, std::remove_const_t<In>, F>{input.view.data, input.view.count, 0, &input.prologue};
}

template <class T, class In>
using SourceFor = decltype(sourceOf<T>(asInput(std::declval<In const&>())));

// `source`, or no elements, which may be thought to lie at `place`.
template <class T>
MSCCLPP_HOST_DEVICE constexpr View<T const> given(bool isGiven, View<T const> const& source, T const* place) {
  return {isGiven ? source.data : place, isGiven ? source.count : 0};
}
template <class T, class In, class F>
MSCCLPP_HOST_DEVICE constexpr PreparedView<T, In, F> given(bool isGiven, PreparedView<T, In, F> const& source,
                                                           T const*) {
  return source.part(0, isGiven ? source.count : 0);
}

// Where elements may be thought to go so that nothing needs to be done.
template <class T>
MSCCLPP_HOST_DEVICE constexpr T* placeOf(View<T const> const& source, T*) {
  return const_cast<T*>(source.data);
}
template <class T, class In, class F>
MSCCLPP_HOST_DEVICE constexpr T* placeOf(PreparedView<T, In, F> const&, T* place) {
  return place;
}

// Nothing needs to be done to have `source` at `target`.
template <class T>
MSCCLPP_HOST_DEVICE constexpr bool liesAt(View<T const> const& source, T const* target) {
  return source.data == target;
}
template <class T, class In, class F>
MSCCLPP_HOST_DEVICE constexpr bool liesAt(PreparedView<T, In, F> const&, T const*) {
  return false;
}

inline namespace MSCCLPP_BACKEND {

// As PayloadReader, of a PreparedView.
template <Number T, Number In, class F, unsigned Words, unsigned Granule>
class PreparedReader {
  static_assert(sizeof(T) <= Granule, "an element must fit into one access of the transport; choose a wider packet");

 public:
  // `bytes` counts what travels.
  struct Window {
    In const* data;
    std::uint64_t first;
    std::uint32_t bytes;
    bool whole;
  };

  PreparedReader() = default;  // to be assigned
  MSCCLPP_DEVICE explicit PreparedReader(PreparedView<T, In, F> const& view)
      : view_(view), aligned_(isAligned(view.data, access)) {}

  // As a PayloadReader's: `offset` and `extent` count bytes as they travel, `offset` a multiple of Granule. Whole where
  // the input is aligned for the accesses that a granule takes, and none ahead of `extent` is cut off.
  MSCCLPP_DEVICE Window window(std::uint64_t offset, std::uint64_t extent = ~std::uint64_t{0}) const {
    auto const bytes = view_.bytes();
    std::uint64_t const left = offset < bytes ? bytes - offset : 0;
    auto const element = offset / sizeof(T);
    return {view_.data + element, view_.first + element,
            static_cast<std::uint32_t>(minimum<std::uint64_t>(left, 0xffffffffu)),
            aligned_ && (bytes % Granule == 0 || left >= extent)};
  }

  MSCCLPP_DEVICE Payload<Words> read(Window const& window, std::uint32_t offset, unsigned valid = Words * 4) const {
    auto const values = window.whole ? readWhole(window, offset, valid) : readPieces(window, offset, valid);
    if (offset >= window.bytes) return {};
    return pack(convert<T>(prepare(convert<DefaultAccumulator<In>>(values), window.first + offset / sizeof(T))));
  }

 private:
  static constexpr unsigned elements = Words * 4 / sizeof(T);
  // Elements that a granule of the transport holds, and how they are read.
  static constexpr unsigned together = Granule / sizeof(T);
  static constexpr unsigned access = minimum<unsigned>(together * sizeof(In), 16);
  static constexpr unsigned perAccess = access / sizeof(In);
  using Values = Vector<In, elements>;
  struct alignas(access) [[gnu::may_alias]] Piece {
    In element[perAccess];
  };

  MSCCLPP_DEVICE static Values readWhole(Window const& window, std::uint32_t offset, unsigned valid) {
    Values values{};
    auto const* const from = reinterpret_cast<Piece const*>(window.data + offset / sizeof(T));
    MSCCLPP_UNROLL
    for (unsigned i = 0; i < elements / perAccess; ++i) {
      auto const at = i * perAccess * static_cast<unsigned>(sizeof(T));
      if (offset + at >= window.bytes || (i != 0 && at >= valid)) break;
      Piece const piece = from[i];
      MSCCLPP_UNROLL
      for (unsigned k = 0; k < perAccess; ++k) values[i * perAccess + k] = piece.element[k];
    }
    return values;
  }

  // Out of line, and alike for all threads of a block: see device/view.hpp.
  MSCCLPP_COLD_DEVICE static Values readPieces(Window const window, std::uint32_t offset, std::uint32_t valid) {
    Values values{};
    auto const end = minimum(window.bytes, offset + valid);
    MSCCLPP_UNROLL
    for (unsigned i = 0; i < elements; ++i) {
      auto const at = offset + i * static_cast<std::uint32_t>(sizeof(T));
      if (at < end) values[i] = window.data[at / sizeof(T)];
    }
    return values;
  }

  template <class Values>
  MSCCLPP_DEVICE auto prepare(Values const& values, std::uint64_t index) const {
    if constexpr (std::invocable<F const&, Values, std::uint64_t>) {
      return (*view_.prologue)(values, index);
    } else {
      static_assert(
          std::invocable<F const&, Values>,
          "a prologue is called with a Vector of accumulators, and optionally the index of its first element");
      return (*view_.prologue)(values);
    }
  }

  PreparedView<T, In, F> view_;
  bool aligned_;
};

// Reads a source in payloads of a transport.
template <unsigned Words, unsigned Granule, class T>
MSCCLPP_DEVICE PayloadReader<T, Words, Granule> readerOf(View<T const> const& source) {
  return PayloadReader<T, Words, Granule>(source);
}
template <unsigned Words, unsigned Granule, class T, class In, class F>
MSCCLPP_DEVICE PreparedReader<T, In, F, Words, Granule> readerOf(PreparedView<T, In, F> const& source) {
  return PreparedReader<T, In, F, Words, Granule>(source);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
