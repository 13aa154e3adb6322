// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What experts have made of tokens travels home and is added up there, in the user's own kernel, behind a Dispatch with
// the same memory.
//
//   Combine<bf16> combine(experts, thisGrid());
//   combine.send(thisGrid(), results);                      a row for each that was placed
//   combine.fold(thisGrid(), routing, MatrixView{y, tokens, hidden});
//   combine.end();
//
//   send   of each token that came here, its experts' rows. Without limits.partOfEach they are multiplied by their
//          weights and added here, in the order of the token's experts, and go home as one row, rounded to T; with it
//          each goes home as it is. What was placed ByToken goes home as it is, once, in place of the first of its
//          experts. ExpertWeights::none leaves
//          the weights out, for the gradients of what was dispatched
//   fold   waits for each token's parts, as packets for each step of them, not for all ranks, and adds them up in the
//   order of its experts (of the first
//          on each rank), in float; with limits.partOfEach it multiplies by the weights. `finish(values, token,
//          column)` may do something more with a Vector of sums before they are rounded
//
// Called as Dispatch is; the routing is the one that was dispatched. What was dropped counts as zeros, as do experts of
// ranks that have failed, and a
// token without experts becomes zeros. Parts travel as limits.transport says, with the same results. The same bits in
// every run. What was dispatched stays, so another Combine may follow.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/algorithms/experts/expert_memory.hpp"
#include "mscclpp/algorithms/experts/row_lines.hpp"
#include "mscclpp/device/tiles/matrix_view.hpp"
#include "mscclpp/device/tiles/slots.hpp"

namespace mscclpp {

enum class ExpertWeights : std::uint8_t { asRouted, none };

inline namespace MSCCLPP_BACKEND {

namespace impl {

struct ExpertSumsAsTheyAre {
  template <class V>
  MSCCLPP_DEVICE V operator()(V const& values, std::uint32_t, std::uint32_t) const {
    return values;
  }
};

}  // namespace impl

template <Number T, BlockSet B = GridGroup>
class Combine {
  static constexpr unsigned N = 16 / sizeof(T);

 public:
  MSCCLPP_DEVICE Combine(DeviceExperts const& experts, B const& blocks)
      : experts_(experts), round_(experts.flags, blocks, experts.failed) {
    experts.requireWholeWarps();
  }

  template <BlockSet Senders>
  MSCCLPP_DEVICE void send(Senders const& blocks, MatrixView<T const> const& results,
                           ExpertWeights weights = ExpertWeights::asRouted) const {
    auto const& layout = experts_.layout;
    experts_.check(results);
    auto const warps = impl::Warps::of(blocks);
    // Other ranks first: their rows have a way to go. Each home's begin with the warp behind the last of the one
    // before.
    auto first = warps.rank;
    for (int distance = 1; distance <= experts_.size(); ++distance) {
      int const home = (experts_.rank() + distance) % experts_.size();
      if (experts_.hasFailed(home)) continue;
      auto const units = experts_.rowsFrom(home) * layout.pieces;
      auto unit = first;
      for (; unit < units; unit += warps.count) {
        sendPiece(results, weights, home, unit / layout.pieces, unit % layout.pieces);
      }
      first = unit - units;
    }
  }

  template <BlockSet Folders, class I, class Finish = impl::ExpertSumsAsTheyAre>
  MSCCLPP_DEVICE void fold(Folders const& blocks, Routing<I> const& routing, MatrixView<T> const& out,
                           Finish const& finish = {}) const {
    auto const& layout = experts_.layout;
    experts_.check(routing, out);
    auto const warps = impl::Warps::of(blocks);
    for (auto unit = warps.rank; unit < routing.tokens * layout.pieces; unit += warps.count) {
      foldPiece(routing, out, finish, unit / layout.pieces, unit % layout.pieces);
    }
  }

  // For kernels that write parts to memory in ways of their own (limits.transport): each is an arrival of its token at
  // home for each of its pieces.
  MSCCLPP_DEVICE TileRound<B> const& round() const { return round_; }
  MSCCLPP_DEVICE void end() const { round_.end(); }

 private:
  MSCCLPP_DEVICE void sendPiece(MatrixView<T const> const& results, ExpertWeights weights, int home, std::uint32_t slot,
                                std::uint32_t number) const {
    auto const warp = thisWarp();
    auto const& layout = experts_.layout;
    auto const& head = experts_.head(experts_.rank(), home, slot);
    // A lane for each of the token's experts; loads stand ahead of the wait for the peer.
    layout::ExpertEntry entry{.expert = -1, .position = 0, .weight = 0, .row = layout::noExpertRow};
    if (warp.rank() < layout.limits.topK) entry = head.entries[warp.rank()];
    auto const token = head.token, part = head.part, once = head.row;
    if (warp.rank() == 0) round_.ready(home);
    auto const here = arch::ballot(entry.expert >= 0);
    bool const isFirst = (here & ((1u << warp.rank()) - 1)) == 0;
    auto const row = entry.expert < 0              ? layout::noExpertRow
                     : once == layout::noExpertRow ? entry.row
                     : isFirst                     ? once
                                                   : layout::noExpertRow;
    requireAlone(row == layout::noExpertRow || row < results.rows, experts_.flags.watch, home,
                 std::uint64_t(layout::Misuse::expertRows), results.rows, row);
    bool const weighted = once == layout::noExpertRow && weights == ExpertWeights::asRouted;
    auto const terms = impl::ExpertTerms::packed({row, weighted ? entry.weight : 1});
    auto const piece = impl::RowPiece::of(layout, number);
    bool const whole = impl::isWhole(results, 16);
    auto const sendParts = [&](auto const& forEachStep, auto const& to) {
      if (!layout.limits.partOfEach) {
        forEachStep(whole, [&](auto const& own) {
          Vector<float, N> totals[impl::vectorsAtATime];
          terms.template sum<T>(totals, [&](impl::ExpertTerms::Held& held, std::uint32_t first) {
            terms.loadEach(held, first, [&](Payload<4>& one, std::uint32_t from, unsigned i) {
              own.load(one, i, results.at(from, piece.first));
            });
          });
          to(own, part, {convert<T>(totals[0]), convert<T>(totals[1])});
        });
        return;
      }
      for (std::uint32_t k = 0; k < layout.limits.topK; ++k) {
        if ((here >> k & 1) == 0) continue;
        auto const from = arch::shuffle(row, k);
        forEachStep(whole, [&](auto const& own) {
          Payload<4> held[impl::vectorsAtATime]{};
          MSCCLPP_UNROLL
          for (unsigned i = 0; i < impl::vectorsAtATime; ++i) {
            if (from != layout::noExpertRow) own.load(held[i], i, results.at(from, piece.first));
          }
          to(own, k, {unpack<T>(held[0]), unpack<T>(held[1])});
        });
      }
    };
    using Values = Vector<T, N> const(&)[impl::vectorsAtATime];
    if (layout.packets != 0) {
      auto const flag = impl::LineFlag::of(round_.number());
      sendParts([&](bool all, auto const& f) { impl::forEachLines<N>(piece.count, all, f); },
                [&](auto const& own, std::uint32_t ofToken, Values values) {
                  impl::LineSlots::plain({pack(values[0]), pack(values[1])}, flag)
                      .store(lineOf(home, token, ofToken, number, own.step()), own);
                });
      return;
    }
    sendParts([&](bool all, auto const& f) { impl::forEachVectors<N>(piece.count, all, f); },
              [&](auto const& own, std::uint32_t ofToken, Values values) {
                auto* const out = experts_.part<T>(home, token, ofToken) + piece.first;
                MSCCLPP_UNROLL
                for (unsigned i = 0; i < impl::vectorsAtATime; ++i) own.store(i, out, values[i]);
              });
    syncWhole(warp);
    if (warp.rank() == 0) round_.arrive(home, token);
  }

  // Of a part of packets, where a step of its piece begins.
  MSCCLPP_DEVICE std::byte* lineOf(int home, std::uint32_t token, std::uint32_t part, std::uint32_t piece,
                                   std::uint32_t step) const {
    return experts_.part<std::byte>(home, token, part) + experts_.layout.pieceOfPart(piece) +
           step * impl::lineStepBytes;
  }

  template <class I, class Finish>
  MSCCLPP_DEVICE void foldPiece(Routing<I> const& routing, MatrixView<T> const& out, Finish const& finish,
                                std::uint32_t token, std::uint32_t number) const {
    auto const warp = thisWarp();
    auto const& layout = experts_.layout;
    auto const piece = impl::RowPiece::of(layout, number);
    auto const* const ofToken = routing.of(token);
    bool const isEntry = warp.rank() < routing.topK && ofToken[warp.rank()] >= 0;
    int const rank = isEntry ? experts_.rankOf(ofToken[warp.rank()]) : -1;
    // Parts are numbered by rank, whether it has failed or not: lane i knows of the i-th whether it comes.
    std::uint32_t ranks = 0;
    bool comes = false;
    impl::RankSet seen{};
    for (std::uint32_t k = 0; k < routing.topK; ++k) {
      int const other = arch::shuffle(rank, k);
      if (other < 0 || !seen.add(other)) continue;
      if (ranks == warp.rank()) comes = !experts_.hasFailed(other);
      ++ranks;
    }
    bool const whole = impl::isWhole(out, 16);
    bool const each = layout.limits.partOfEach;
    bool const adds = each ? isEntry && !experts_.hasFailed(rank) : comes;
    auto const terms = impl::ExpertTerms::packed(
        {adds ? warp.rank() : layout::noExpertRow, each && isEntry ? routing.weight(token, warp.rank()) : 1});
    auto const foldStep = [&](auto const& own, auto const& fetch) {
      Vector<float, N> totals[impl::vectorsAtATime];
      terms.template sum<T>(totals, fetch);
      MSCCLPP_UNROLL
      for (unsigned i = 0; i < impl::vectorsAtATime; ++i) {
        if (own.count(i) == 0) continue;
        own.store(i, out.at(token, piece.first), convert<T>(finish(totals[i], token, piece.first + own.at(i))));
      }
    };
    if (layout.packets == 0) {
      if (warp.rank() == 0) round_.await(token, ranks * layout.pieces);
      syncWhole(warp);
      impl::forEachVectors<N>(piece.count, whole, [&](auto const& own) {
        foldStep(own, [&](impl::ExpertTerms::Held& held, std::uint32_t first) {
          terms.loadEach(held, first, [&](Payload<4>& one, std::uint32_t part, unsigned i) {
            own.load(one, i, experts_.part<T>(experts_.rank(), token, part) + piece.first);
          });
        });
      });
      return;
    }
    auto const flag = impl::LineFlag::of(round_.number());
    impl::forEachLines<N>(piece.count, whole, [&](auto const& own) {
      foldStep(own, [&](impl::ExpertTerms::Held& held, std::uint32_t first) {
        constexpr unsigned count = impl::ExpertTerms::together * impl::vectorsAtATime;
        auto const term = [&](unsigned i) { return first + i / impl::vectorsAtATime; };
        Words4 slots[count];
        bool there[count];
        MSCCLPP_UNROLL
        for (unsigned i = 0; i < count; ++i) there[i] = term(i) < terms.count() && own.isThere(i % 2);
        impl::awaitLines(
            experts_.flags.watch,
            [&](unsigned i) {
              auto const part = terms.row(minimum(term(i), terms.count() - 1));
              return impl::LineSlots::place(lineOf(experts_.rank(), token, part, number, own.step()), i % 2);
            },
            there, flag, slots,
            [&](unsigned i) -> WaitFor {
              return {layout::WaitKind::packet, rankOfPart(routing, token, terms.row(term(i))), token, round_.number()};
            });
        MSCCLPP_UNROLL
        for (unsigned k = 0; k < impl::ExpertTerms::together; ++k) {
          Payload<4> both[2];
          impl::LineSlots{{slots[k * 2], slots[k * 2 + 1]}}.takePlain(both);
          held[k * 2] = both[0];
          held[k * 2 + 1] = both[1];
        }
      });
    });
  }

  // For reports.
  template <class I>
  MSCCLPP_DEVICE int rankOfPart(Routing<I> const& routing, std::uint32_t token, std::uint32_t part) const {
    impl::RankSet seen{};
    std::uint32_t parts = 0;
    for (std::uint32_t k = 0; k < routing.topK; ++k) {
      auto const expert = routing.of(token)[k];
      if (expert < 0) continue;
      int const rank = experts_.rankOf(expert);
      bool const isPart = experts_.layout.limits.partOfEach ? k == part : seen.add(rank) && parts++ == part;
      if (isPart) return rank;
    }
    return -1;
  }

  DeviceExperts const& experts_;
  TileRound<B> round_;
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
