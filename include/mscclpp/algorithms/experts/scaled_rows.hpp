// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tokens' rows that are quantised, with a scale for each 128 columns: the largest magnitude of those divided by the
// largest that the type can say.
//
//   ScaledRows<Float8E4M3>{rows, scales, stride}    rows that are so already; `stride` floats from one row's scales to
//                                                   those of the next
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/algorithms/core/quantised.hpp"
#include "mscclpp/algorithms/experts/expert_memory.hpp"
#include "mscclpp/device/number.hpp"
#include "mscclpp/device/tiles/matrix_view.hpp"
#include "mscclpp/device/tiles/slots.hpp"
#include "mscclpp/device/vector.hpp"

namespace mscclpp {

template <class W>
struct ScaledRows {
  using Element = W;
  MatrixView<W const> rows;
  float const* scales;
  std::size_t stride;

  // Of a row, one for each 128 columns.
  MSCCLPP_HOST_DEVICE constexpr float const* scalesOf(std::size_t row) const { return scales + row * stride; }
};

inline namespace MSCCLPP_BACKEND {
namespace impl {

// What the columns of a group have in common, of which `sharers` lanes have some each.
template <class W>
class Scaling {
 public:
  template <unsigned N>
  MSCCLPP_DEVICE Scaling(Vector<float, N> const& values, unsigned sharers) {
    std::uint32_t bits = 0;
    MSCCLPP_UNROLL
    for (unsigned k = 0; k < N; ++k) bits = maximum(bits, magnitudeBits(values[k]));
    MSCCLPP_UNROLL
    for (unsigned distance = 1; distance < sharers; distance *= 2) {
      bits = maximum(bits, arch::shuffleXor(bits, distance));
    }
    most_ = bitCast<float>(bits);
  }
  MSCCLPP_DEVICE float scale() const { return most_ / largestOf<W>; }
  template <unsigned N>
  MSCCLPP_DEVICE Vector<W, N> quantised(Vector<float, N> const& values) const {
    auto const factor = most_ == 0 ? 0 : largestOf<W> / most_;
    return map(values, [&](float v) { return mscclpp::quantised<W>(v * factor); });
  }

 private:
  float most_;
};

// By a warp: a piece of a row, read and quantised once, to each place of rows that `each` gives with one of scales.
// Whole: as loadElements().
template <class W, bool Whole, class T, class Each>
MSCCLPP_DEVICE void quantiseToEach(T const* from, RowPiece const& piece, Each const& each) {
  constexpr auto scaleColumns = layout::ExpertsLayout::scaleColumns;
  constexpr unsigned n = 16 / sizeof(T);
  constexpr unsigned sharers = scaleColumns / n;  // lanes whose columns share a scale
  constexpr unsigned step = arch::warpSize * n;
  constexpr unsigned together = 4;  // loads on their way
  static_assert(sharers <= arch::warpSize && together <= sharers);
  auto const lane = thisWarp().rank();
  for (std::uint32_t first = 0; first < piece.count; first += together * step) {
    auto const at = [&](unsigned i) { return first + i * step + lane * n; };
    auto const count = [&](unsigned i) { return at(i) < piece.count ? minimum(n, piece.count - at(i)) : 0; };
    Payload<4> held[together]{};  // lanes without columns of a scale shall not change it
    Vector<W, n> small[together];
    arch::leaveUnset(small);
    MSCCLPP_UNROLL
    for (unsigned i = 0; i < together; ++i) loadElements<Whole>(held[i], from + at(i), count(i));
    float scale = 0;  // of the lane's columns in the vector that it stores it for
    MSCCLPP_UNROLL
    for (unsigned i = 0; i < together; ++i) {
      auto const values = convert<float>(unpack<T>(held[i]));
      Scaling<W> const scaling(values, sharers);
      small[i] = scaling.quantised(values);
      if (lane % sharers == i) scale = scaling.scale();
    }
    auto const own = first + lane % sharers * step + lane / sharers * scaleColumns;
    bool const tells = lane % sharers < together && own < piece.count;
    each([&](W* to, float* scales) {
      MSCCLPP_UNROLL
      for (unsigned i = 0; i < together; ++i) storeElements<n>(to + at(i), small[i], count(i), true);
      if (tells) scales[(piece.first + own) / scaleColumns] = scale;
    });
  }
}

}  // namespace impl
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
