// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a piece of a token's row leaves for the ranks of its experts: what Dispatch::send() does, by a warp for each.
//
// The piece is read once, and quantised once where rows travel so and are not quantised already. To memory it is stored
// as it is, and behind one fence for all ranks goes an addition to each rank's flag; as packets (row_lines.hpp) it is
// stored and that is all. The row's head goes with its first piece.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include "mscclpp/algorithms/experts/expert_memory.hpp"
#include "mscclpp/algorithms/experts/routing_scan.hpp"
#include "mscclpp/algorithms/experts/row_lines.hpp"
#include "mscclpp/algorithms/experts/scaled_rows.hpp"
#include "mscclpp/device/tiles/matrix_view.hpp"
#include "mscclpp/device/tiles/slots.hpp"
#include "mscclpp/device/vector.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace impl {

// Rows: a MatrixView<T const>, or ScaledRows<W>, which are quantised already.
template <class Rows, class W, BlockSet B, class I>
class RowSender {
  using T = typename Rows::Element;
  static constexpr bool forwards = std::same_as<Rows, ScaledRows<W>>;
  static constexpr bool quantises = !forwards && !std::same_as<T, W>;
  static constexpr bool isScaled = forwards || quantises;
  static constexpr auto scaleColumns = layout::ExpertsLayout::scaleColumns;

 public:
  MSCCLPP_DEVICE RowSender(DeviceExperts const& experts, TileRound<B> const& round, Rows const& x,
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
    auto const* const from = rows().at(batch.first + token, piece.first);
    bool const whole = isWhole(rows(), 16) && piece.count % (16 / sizeof(T)) == 0;
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
    auto* const scales = isScaled ? experts_.scales(target.peer, experts_.rank(), target.slot) : nullptr;
    if constexpr (quantises) {
      sendHeads();
      withConstant(whole, [&](auto constant) {
        quantiseToEach<W, decltype(constant)::value>(from, piece, [&](auto const& f) {
          forEachTarget(target, [&](std::uint32_t k) { f(arch::shuffle(to, k), arch::shuffle(scales, k)); });
        });
      });
    } else {
      copyToEach(from, piece.count, isWhole(rows(), 16), sendHeads, [&](W* row, auto const& f) {
        forEachTarget(target, [&](std::uint32_t k) { f(arch::shuffle(row, k)); });
      });
    }
    if constexpr (forwards) {
      auto const end = ceilDiv(piece.first + piece.count, scaleColumns);
      for (auto first = piece.first / scaleColumns; first < end; first += arch::warpSize) {
        auto const group = first + warp.rank();
        auto const scale = group < end ? x_.scalesOf(batch.first + token)[group] : 0;
        forEachTarget(target, [&](std::uint32_t k) {
          auto* const toPeer = arch::shuffle(scales, k);
          if (group < end) toPeer[group] = scale;
        });
      }
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

  MSCCLPP_DEVICE auto const& rows() const {
    if constexpr (forwards) {
      return x_.rows;
    } else {
      return x_;
    }
  }

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
    using Vectors = LineVectors<16 / sizeof(W), isScaled, Whole>;
    // Steps whose loads are on their way.
    constexpr unsigned together = quantises ? maximum<unsigned>(1, 4 / sizeof(T)) : isScaled ? 2 : 4;
    constexpr unsigned payloads = quantises ? sizeof(T) : 1;  // of a vector
    auto const& layout = experts_.layout;
    auto* to = row + layout.pieceOfRow(number);
    for (std::uint32_t first = 0; first < piece.count; first += together * Vectors::columns) {
      auto const at = [&](unsigned s) { return Vectors{first + s * Vectors::columns, piece.count}; };
      Payload<4> held[together][2][payloads]{};
      float scales[together][2]{};
      MSCCLPP_UNROLL
      for (unsigned s = 0; s < together; ++s) {
        MSCCLPP_UNROLL
        for (unsigned i = 0; i < 2; ++i) {
          loadVector(held[s][i], at(s), i, from);
          if constexpr (forwards) {
            auto const column = at(s).first + Vectors::line(i) * scaleColumns;
            bool const isGroup = Vectors::line(i) < layout::ExpertsLayout::stepGroups && column < piece.count;
            if (isGroup) {
              scales[s][i] = x_.scalesOf(target.batch.first + target.token)[(piece.first + column) / scaleColumns];
            }
          }
        }
      }
      if (number == 0 && first == 0) {
        forEachTarget(target, [&](std::uint32_t k) {
          headFor(target, k, arch::shuffle(target.peer, k)).store(arch::shuffle(row, k), layout.headLines, flag);
        });
      }
      LineSlots slots[together];
      MSCCLPP_UNROLL
      for (unsigned s = 0; s < together; ++s) {
        if constexpr (quantises) {
          slots[s] = quantisedSlots(held[s], flag);
        } else if constexpr (forwards) {
          slots[s] = LineSlots::scaled({held[s][0][0], held[s][1][0]}, scales[s], flag);
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
  MSCCLPP_DEVICE static void loadVector(Payload<4> (&held)[Scaled && !forwards ? sizeof(T) : 1],
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
      Scaling<W> const scaling(values, 8);
      scale[i] = scaling.scale();
      own[i] = pack(scaling.quantised(values));
    }
    return LineSlots::scaled(own, scale, flag);
  }

  DeviceExperts const& experts_;
  TileRound<B> const& round_;
  Rows x_;
  Routing<I> routing_;
};

}  // namespace impl
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
