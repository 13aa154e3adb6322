// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a piece of a token's row leaves for the ranks of its experts: what Dispatch::send() does, by a warp for each.
//
// The piece is read once, and quantised once where rows travel so. To memory it is stored as it is, and behind one
// fence for all ranks goes an addition to each rank's flag; as packets (row_lines.hpp) it is stored and that is all.
// The row's head goes with its first piece.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/algorithms/core/quantised.hpp"
#include "mscclpp/algorithms/experts/expert_memory.hpp"
#include "mscclpp/algorithms/experts/routing_scan.hpp"
#include "mscclpp/algorithms/experts/row_lines.hpp"
#include "mscclpp/device/tiles/matrix_view.hpp"
#include "mscclpp/device/tiles/slots.hpp"
#include "mscclpp/device/vector.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace impl {

template <class T, class W, BlockSet B, class I>
class RowSender {
  static constexpr bool isQuantised = !std::same_as<T, W>;
  static constexpr auto scaleColumns = layout::ExpertsLayout::scaleColumns;

 public:
  MSCCLPP_DEVICE RowSender(DeviceExperts const& experts, TileRound<B> const& round, MatrixView<T const> const& x,
                           Routing<I> const& routing)
      : experts_(experts), round_(round), x_(x), routing_(routing) {}

  // Piece `number` of the row of the batch's token, to those of its ranks whose bits are set: lane k knows where that
  // is for the k-th.
  MSCCLPP_DEVICE void send(RoutingBatch const& batch, std::uint32_t token, std::uint32_t number,
                           std::uint32_t ranks) const {
    auto const& layout = experts_.layout;
    auto const warp = thisWarp();
    bool const sends = (ranks >> warp.rank() & 1) != 0;
    auto const entry = token * routing_.topK + (sends ? warp.rank() : 0);
    Target const target{batch, token, ranks, sends ? experts_.rankOf(batch.expert[entry]) : experts_.rank(),
                        sends ? batch.slot[entry] : 0};
    auto const piece = RowPiece::of(layout, number);
    auto const* const from = x_.at(batch.first + token, piece.first);
    bool const whole = isWhole(x_, 16) && piece.count % (16 / sizeof(T)) == 0;
    if (layout.packets != 0) {
      auto const flag = LineFlag::of(round_.number());
      auto* const row = experts_.template row<std::byte>(target.peer, experts_.rank(), target.slot);
      withConstant(whole && piece.count % (16 / sizeof(W)) == 0, [&](auto constant) {
        sendLines<decltype(constant)::value>(from, piece, number, target, row, flag);
      });
      return;
    }
    auto* const to = experts_.template row<W>(target.peer, experts_.rank(), target.slot) + piece.first;
    // While loads are on their way.
    auto const sendHeads = [&] {
      if (number == 0) forEachTarget(target, [&](std::uint32_t k) { storeHead(target, k); });
      return to;
    };
    if constexpr (isQuantised) {
      auto* const scales = experts_.scales(target.peer, experts_.rank(), target.slot);
      sendHeads();
      withConstant(whole, [&](auto constant) {
        quantiseToEach<decltype(constant)::value>(from, piece, [&](auto const& f) {
          forEachTarget(target, [&](std::uint32_t k) { f(arch::shuffle(to, k), arch::shuffle(scales, k)); });
        });
      });
    } else {
      copyToEach(from, piece.count, isWhole(x_, 16), sendHeads, [&](W* row, auto const& f) {
        forEachTarget(target, [&](std::uint32_t k) { f(arch::shuffle(row, k)); });
      });
    }
    syncWhole(warp);
    if (sends) {
      round_.arrive(target.peer,
                    layout.rowFlag(static_cast<std::uint32_t>(experts_.rank()), target.slot / layout.tileTokens));
    }
  }

 private:
  struct Target {
    RoutingBatch const& batch;
    std::uint32_t token;
    std::uint32_t ranks;
    int peer;            // of this lane's expert
    std::uint32_t slot;  // there
  };

  template <class F>
  MSCCLPP_DEVICE void forEachTarget(Target const& target, F const& f) const {
    for (std::uint32_t k = 0; k < routing_.topK; ++k) {
      if ((target.ranks >> k & 1) != 0) f(k);
    }
  }

  // What goes with a token's row to the rank of its k-th expert.
  MSCCLPP_DEVICE LaneHead headFor(Target const& target, std::uint32_t k, int peer) const {
    auto const lane = thisWarp().rank();
    auto const& batch = target.batch;
    LaneHead head;
    head.token = batch.first + target.token;
    if (lane < routing_.topK) {
      auto const entry = target.token * routing_.topK + lane;
      auto const expert = batch.expert[entry];
      if (expert >= 0 && experts_.rankOf(expert) == peer) {
        head.entry.expert = expert - peer * static_cast<std::int32_t>(experts_.layout.perRank);
        head.entry.position = batch.position[entry];
      }
      head.entry.weight = routing_.weight(batch.first + target.token, lane);
    }
    for (std::uint32_t i = 0; i < k; ++i) head.part += batch.isLead(target.token, i) ? 1 : 0;
    return head;
  }
  MSCCLPP_DEVICE void storeHead(Target const& target, std::uint32_t k) const {
    int const peer = arch::shuffle(target.peer, k);
    headFor(target, k, peer)
        .write(experts_.head(peer, experts_.rank(), arch::shuffle(target.slot, k)), experts_.layout.limits.topK);
  }

  // ---- packets

  // `row`: where it begins, for each lane's target.
  template <bool Whole>
  MSCCLPP_DEVICE void sendLines(T const* from, RowPiece const& piece, std::uint32_t number, Target const& target,
                                std::byte* row, LineFlag const& flag) const {
    using Vectors = LineVectors<16 / sizeof(W), isQuantised, Whole>;
    // Steps whose loads are on their way.
    constexpr unsigned together = isQuantised ? maximum<unsigned>(1, 4 / sizeof(T)) : 4;
    constexpr unsigned payloads = isQuantised ? sizeof(T) : 1;  // of a vector
    auto const& layout = experts_.layout;
    auto* to = row + layout.pieceOfRow(number);
    for (std::uint32_t first = 0; first < piece.count; first += together * Vectors::columns) {
      auto const at = [&](unsigned s) { return Vectors{first + s * Vectors::columns, piece.count}; };
      Payload<4> held[together][2][payloads]{};
      MSCCLPP_UNROLL
      for (unsigned s = 0; s < together; ++s) {
        MSCCLPP_UNROLL
        for (unsigned i = 0; i < 2; ++i) loadVector(held[s][i], at(s), i, from);
      }
      if (number == 0 && first == 0) {
        forEachTarget(target, [&](std::uint32_t k) {
          headFor(target, k, arch::shuffle(target.peer, k)).store(arch::shuffle(row, k), layout.headLines, flag);
        });
      }
      LineSlots slots[together];
      MSCCLPP_UNROLL
      for (unsigned s = 0; s < together; ++s) {
        if constexpr (isQuantised) {
          slots[s] = quantisedSlots(held[s], flag);
        } else {
          slots[s] = LineSlots::plain({held[s][0][0], held[s][1][0]}, flag);
        }
      }
      forEachTarget(target, [&](std::uint32_t k) {
        auto* const step = arch::shuffle(to, k);
        MSCCLPP_UNROLL
        for (unsigned s = 0; s < together; ++s) {
          if (at(s).first < piece.count) slots[s].store(step + s * lineStepBytes, at(s));
        }
      });
      to += together * lineStepBytes;
    }
  }

  // The elements of T that make up vector i.
  template <unsigned N, bool Scaled, bool Whole>
  MSCCLPP_DEVICE static void loadVector(Payload<4> (&held)[Scaled ? sizeof(T) : 1],
                                        LineVectors<N, Scaled, Whole> const& vectors, unsigned i, T const* from) {
    constexpr unsigned n = 16 / sizeof(T);
    MSCCLPP_UNROLL
    for (unsigned j = 0; j < N / n; ++j) {
      auto const before = j * n;
      auto const count = vectors.count(i) > before ? minimum(n, vectors.count(i) - before) : 0;
      loadElements<Whole>(held[j], from + vectors.at(i) + before, count);
    }
  }
  // Groups of 128 columns, each by the eight lanes of a line.
  template <unsigned Count>
  MSCCLPP_DEVICE static LineSlots quantisedSlots(Payload<4> const (&held)[2][Count], LineFlag const& flag) {
    constexpr unsigned n = 16 / sizeof(T);
    Payload<4> own[2];
    float scale[2];
    MSCCLPP_UNROLL
    for (unsigned i = 0; i < 2; ++i) {
      Vector<float, n * Count> values;
      MSCCLPP_UNROLL
      for (unsigned j = 0; j < Count; ++j) {
        auto const some = convert<float>(unpack<T>(held[i][j]));
        MSCCLPP_UNROLL
        for (unsigned k = 0; k < n; ++k) values[j * n + k] = some[k];
      }
      Scaling const scaling(values, 8);
      scale[i] = scaling.scale();
      own[i] = pack(scaling.quantised(values));
    }
    return LineSlots::scaled(own, scale, flag);
  }

  // ---- rows as they are

  // What the columns of a group have in common, of which `sharers` lanes have some each.
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

  // A piece, read and quantised once, to each place of rows that `each` gives with one of scales. Whole: as
  // loadElements().
  template <bool Whole, class Each>
  MSCCLPP_DEVICE void quantiseToEach(T const* from, RowPiece const& piece, Each const& each) const {
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
        Scaling const scaling(values, sharers);
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

  DeviceExperts const& experts_;
  TileRound<B> const& round_;
  MatrixView<T const> x_;
  Routing<I> routing_;
};

}  // namespace impl
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
