// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which rows a rank's experts get and where they lie: what Dispatch::layOut() returns and Dispatch::place() does.
//
//   PackedByExpert, PaddedByExpert, ByToken    orders of rows, as Dispatch takes them
//   RowOrder                                   any of them
//   PlacedRows<W>{.rows = ..., .counts = ...}  where rows are placed, and what is told of them
//   LaidOutRows                                which rows are whose; in the block's shared memory
//
// Cost: each row is read once, and written once for each of its experts.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/algorithms/experts/expert_memory.hpp"
#include "mscclpp/algorithms/experts/row_lines.hpp"
#include "mscclpp/base/bits.hpp"
#include "mscclpp/base/config.hpp"
#include "mscclpp/device/memory.hpp"
#include "mscclpp/device/tiles/matrix_view.hpp"
#include "mscclpp/device/tiles/slots.hpp"

namespace mscclpp {

struct PackedByExpert {
  std::uint32_t alignment = 1;  // of each expert's first row
};
struct PaddedByExpert {
  std::uint32_t rows;  // of each expert
};
struct ByToken {};
struct RowOrder {
  static constexpr std::uint32_t unlimited = 0xffffffffu;

  std::uint32_t alignment = 1;
  std::uint32_t limit = unlimited;  // rows of an expert; of others there is no room
  bool byToken = false;

  MSCCLPP_HOST_DEVICE constexpr RowOrder(PackedByExpert const& order) : alignment(order.alignment) {}
  MSCCLPP_HOST_DEVICE constexpr RowOrder(PaddedByExpert const& order) : limit(order.rows) {}
  MSCCLPP_HOST_DEVICE constexpr RowOrder(ByToken const&) : byToken(true) {}

  // How far the next expert's first row is from that of an expert with so many.
  MSCCLPP_HOST_DEVICE constexpr std::uint64_t roomOf(std::uint32_t rows) const {
    return byToken ? 0 : limit != unlimited ? limit : roundUp<std::uint64_t>(rows, alignment);
  }
};

// Where rows are placed, and what is told of them; null: not asked for.
template <class W>
struct PlacedRows {
  MatrixView<W> rows;       // as many as there is room for
  float* scales = nullptr;  // [row][ceil(hidden / 128)], where they are quantised
  // Of each of this rank's experts, the first row; ByToken: of each source, and the end.
  std::uint32_t* firsts = nullptr;
  std::uint32_t* counts = nullptr;   // of each of this rank's experts, the number of rows
  std::uint32_t* origins = nullptr;  // of each row, source * limits.tokens + token
  float* weights = nullptr;          // of each row its token's for the expert; ByToken: [row][limits.topK], else 0
  std::int32_t* experts = nullptr;   // ByToken: [row][limits.topK], of this rank's experts, else -1
  std::uint32_t* dropped = nullptr;  // counts rows for which there is no room; without it they are refused
};

inline namespace MSCCLPP_BACKEND {

// In block-shared memory: which rows this rank's experts get.
struct LaidOutRows {
  std::uint32_t first[layout::ExpertLimits::mostExperts];  // by expert
  std::uint32_t count[layout::ExpertLimits::mostExperts];
  std::uint32_t limit;  // rows of an expert; of others there is no room
  bool byToken;
  std::uint32_t firstOf[maxTeamSize + 1];  // by source: its first row ByToken; then their number
  // By source * perRank + expert: of the source's tokens for the expert, the first among all for it.
  std::uint32_t ahead[layout::ExpertLimits::mostExperts + maxTeamSize];
};

namespace impl {

template <class W, bool HasScales, BlockSet B>
class RowPlacer {
 public:
  MSCCLPP_DEVICE RowPlacer(DeviceExperts const& experts, TileRound<B> const& round, LaidOutRows const& laidOut,
                           PlacedRows<W> const& out)
      : experts_(experts), round_(round), laidOut_(laidOut), out_(out) {}

  // By a block.
  MSCCLPP_DEVICE void tell() const {
    auto const group = thisBlock();
    auto const perRank = experts_.layout.perRank;
    auto const firsts = laidOut_.byToken ? static_cast<std::uint32_t>(experts_.size()) + 1 : perRank;
    for (auto i = group.rank(); out_.firsts != nullptr && i < firsts; i += group.size()) {
      out_.firsts[i] = laidOut_.byToken ? laidOut_.firstOf[i] : laidOut_.first[i];
    }
    for (auto e = group.rank(); out_.counts != nullptr && e < perRank; e += group.size()) {
      out_.counts[e] = minimum(laidOut_.count[e], laidOut_.limit);
    }
  }

  // Piece `number` of a row that has come to memory. By a warp.
  MSCCLPP_DEVICE void place(int source, std::uint32_t slot, std::uint32_t number) const {
    auto const& layout = experts_.layout;
    int const self = experts_.rank();
    auto const piece = RowPiece::of(layout, number);
    // While the row's loads are on their way.
    auto const find = [&] {
      auto head = LaneHead::read(experts_.head(self, source, slot), layout.limits.topK);
      bool const notes = number == 0;
      auto const found = places(source, slot, head, notes);
      if (notes) head.noteRows(experts_.head(self, source, slot), layout.limits.topK);
      if (HasScales && out_.scales != nullptr) placeScales(source, slot, found, piece);
      return found;
    };
    tellGates(copyToEach(experts_.template row<W>(self, source, slot) + piece.first, piece.count,
                         isWhole(out_.rows, 16), find, [&](ExpertTerms const& found, auto const& f) {
                           found.forEachRow([&](std::uint32_t row) { f(out_.rows.at(row, piece.first)); });
                         }));
  }

  // Of a row of packets, when it has come. By a warp, once for each row.
  MSCCLPP_DEVICE LaneHead awaitHead(int source, std::uint32_t slot) const {
    auto const& layout = experts_.layout;
    Words4 ofHead[1];
    awaitLines<1>(
        experts_.flags.watch, [&](unsigned) { return LineSlots::place(linesOf(source, slot), 0); },
        {thisWarp().rank() < layout.headLines * 8}, LineFlag::of(round_.number()), ofHead, waitFor(source, slot));
    return LaneHead::of(ofHead[0], layout.limits.topK);
  }
  // Piece `number` of a row of packets with that head, as it comes. By a warp.
  MSCCLPP_DEVICE void placeLines(int source, std::uint32_t slot, std::uint32_t number, LaneHead head) const {
    auto const& layout = experts_.layout;
    auto const flag = LineFlag::of(round_.number());
    auto const what = waitFor(source, slot);
    bool const notes = number == 0;
    auto const terms = places(source, slot, head, notes);
    if (notes) head.write(experts_.head(experts_.rank(), source, slot), layout.limits.topK);
    auto const piece = RowPiece::of(layout, number);
    withConstant(isWhole(out_.rows, 16) && piece.count % (16 / sizeof(W)) == 0, [&](auto whole) {
      using Vectors = LineVectors<16 / sizeof(W), HasScales, decltype(whole)::value>;
      constexpr unsigned together = HasScales ? 2 : 4;  // steps
      auto const* step = linesOf(source, slot) + layout.pieceOfRow(number);
      for (std::uint32_t first = 0; first < piece.count; first += together * Vectors::columns) {
        auto const at = [&](unsigned s) { return Vectors{first + s * Vectors::columns, piece.count}; };
        Words4 slots[together * 2];
        bool there[together * 2];
        MSCCLPP_UNROLL
        for (unsigned i = 0; i < together * 2; ++i)
          there[i] = at(i / 2).first < piece.count && at(i / 2).isThere(i % 2);
        awaitLines(
            experts_.flags.watch, [&](unsigned i) { return LineSlots::place(step + i / 2 * lineStepBytes, i % 2); },
            there, flag, slots, what);
        Payload<4> own[together][2];
        float scale[together][2]{};
        MSCCLPP_UNROLL
        for (unsigned s = 0; s < together; ++s) {
          LineSlots const both{{slots[s * 2], slots[s * 2 + 1]}};
          if constexpr (HasScales) {
            both.takeScaled(own[s], scale[s]);
          } else {
            both.takePlain(own[s]);
          }
        }
        terms.forEachRow([&](std::uint32_t to) {
          MSCCLPP_UNROLL
          for (unsigned i = 0; i < together * 2; ++i) {
            at(i / 2).store(i % 2, out_.rows.at(to, piece.first), unpack<W>(own[i / 2][i % 2]));
            if (HasScales && out_.scales != nullptr && Vectors::slot() == 0 && at(i / 2).count(i % 2) != 0) {
              out_.scales[std::size_t{to} * layout.scalesOfRow +
                          (piece.first + at(i / 2).at(i % 2)) / layout.scaleColumns] = scale[i / 2][i % 2];
            }
          }
        });
        step += together * lineStepBytes;
      }
    });
    tellGates(terms);
  }

 private:
  MSCCLPP_DEVICE std::byte const* linesOf(int source, std::uint32_t slot) const {
    return experts_.template row<std::byte const>(experts_.rank(), source, slot);
  }
  // For reports.
  MSCCLPP_DEVICE auto waitFor(int source, std::uint32_t slot) const {
    return [=, round = round_.number()](unsigned) -> WaitFor {
      return {layout::WaitKind::packet, source, slot, round};
    };
  }
  MSCCLPP_DEVICE void tellGates(ExpertTerms const& terms) const {
    auto const& layout = experts_.layout;
    if (layout.limits.gates == 0) return;
    auto const warp = thisWarp();
    syncWhole(warp);
    auto const rowsOfGate = ceilDiv(static_cast<std::uint32_t>(out_.rows.rows), layout.limits.gates);
    if (warp.rank() < terms.count() && terms.row(warp.rank()) != layout::noExpertRow) {
      round_.arrive(experts_.rank(), layout.gateFlag(terms.row(warp.rank()) / rowsOfGate));
    }
  }

  // Where a row goes, for each of its experts; in the head, too. `notes`: also for who asked.
  MSCCLPP_DEVICE ExpertTerms places(int source, std::uint32_t slot, LaneHead& head, bool notes) const {
    return laidOut_.byToken ? placesByToken(source, slot, head, notes) : placesByExpert(source, head, notes);
  }
  MSCCLPP_DEVICE ExpertTerms placesByExpert(int source, LaneHead& head, bool notes) const {
    auto const& layout = experts_.layout;
    head.row = layout::noExpertRow;
    return {layout.limits.topK, [&](std::uint32_t) -> ExpertTerm {
              auto& entry = head.entry;
              if (entry.expert < 0) return {layout::noExpertRow, 0};
              auto const expert = static_cast<std::uint32_t>(entry.expert);
              auto const among =
                  laidOut_.ahead[static_cast<unsigned>(source) * layout.perRank + expert] + entry.position;
              auto const at = std::uint64_t{laidOut_.first[expert]} + among;
              auto const row = find(source, at, among, notes);
              entry.row = row;
              if (!notes || row == layout::noExpertRow) return {row, 0};
              if (out_.origins != nullptr) out_.origins[row] = originOf(source, head);
              if (out_.weights != nullptr) out_.weights[row] = entry.weight;
              return {row, 0};
            }};
  }
  MSCCLPP_DEVICE ExpertTerms placesByToken(int source, std::uint32_t slot, LaneHead& head, bool notes) const {
    auto const topK = experts_.layout.limits.topK;
    auto const lane = thisWarp().rank();
    auto const number = laidOut_.firstOf[source] + slot;
    ExpertTerms const terms(1, [&](std::uint32_t) -> ExpertTerm {
      auto const row = find(source, number, number, notes);
      head.row = row;
      if (notes && row != layout::noExpertRow && out_.origins != nullptr) out_.origins[row] = originOf(source, head);
      return {row, 0};
    });
    if (!notes || lane >= topK || terms.row(0) == layout::noExpertRow) return terms;
    auto const& entry = head.entry;
    auto const at = std::size_t{number} * topK + lane;
    if (out_.weights != nullptr) out_.weights[at] = entry.expert < 0 ? 0 : entry.weight;
    if (out_.experts != nullptr) out_.experts[at] = entry.expert;
    return terms;
  }
  MSCCLPP_DEVICE std::uint32_t originOf(int source, LaneHead const& head) const {
    return static_cast<std::uint32_t>(source) * experts_.layout.limits.tokens + head.token;
  }
  // The row; noExpertRow: there is no room. `among`: its number among those of which there may be a limit.
  MSCCLPP_DEVICE std::uint32_t find(int source, std::uint64_t row, std::uint32_t among, bool counts) const {
    auto const limit = laidOut_.limit;
    bool const few = among < limit;
    if (few && row < out_.rows.rows) return static_cast<std::uint32_t>(row);
    requireAlone(out_.dropped != nullptr, experts_.flags.watch, source, std::uint64_t(layout::Misuse::expertRows),
                 few ? out_.rows.rows : limit, few ? row : among);
    if (counts) reduceAdd<Order::relaxed, Scope::device>(out_.dropped, 1u);
    return layout::noExpertRow;
  }

  MSCCLPP_DEVICE void placeScales(int source, std::uint32_t slot, ExpertTerms const& terms,
                                  RowPiece const& piece) const {
    auto const& layout = experts_.layout;
    auto const end = ceilDiv(piece.first + piece.count, layout.scaleColumns);
    for (auto i = piece.first / layout.scaleColumns + thisWarp().rank(); i < end; i += arch::warpSize) {
      auto const scale = experts_.scales(experts_.rank(), source, slot)[i];
      terms.forEachRow([&](std::uint32_t row) { out_.scales[std::size_t{row} * layout.scalesOfRow + i] = scale; });
    }
  }

  DeviceExperts const& experts_;
  TileRound<B> const& round_;
  LaidOutRows const& laidOut_;
  PlacedRows<W> const& out_;
};

}  // namespace impl
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
