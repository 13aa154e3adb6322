// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tokens travel to the ranks of their experts on several nodes, in the user's own kernel: as Dispatch
// (algorithms/experts/dispatch.hpp), whose contract holds here.
//
//   HierarchicalDispatch<bf16, Float8E4M3> dispatch(experts, thisGrid());
//   dispatch.exchange(MatrixView{x, tokens, hidden}, routing);
//   dispatch.send(thisGrid());
//   auto const& laidOut = dispatch.withinNode().layOut(PackedByExpert{128});
//   dispatch.withinNode().place(thisGrid(), laidOut, placed);
//   dispatch.end();
//
// or, all of it, dispatch.run(MatrixView{x, tokens, hidden}, routing, PackedByExpert{128}, placed);
//
//   exchange     a token's row goes once to each node that has experts of it, to the rank of the own rail there, by
//                port channels, quantised where rows travel so. By the whole grid, whose blocks are resident together;
//                waits for the rail's ranks
//   send         what came of the rail's tokens goes on to the ranks of the node, as Dispatch sends tokens
//   withinNode   that Dispatch
//
// Sources are counted rail by rail: a rank is number rail * nodes + node. Rows are in that order, PlacedRows::origins
// tell it, and the firsts of rows that are placed ByToken are those of rails. No ranks are left out. Behind send, all
// is as within one node, whose Combine's place HierarchicalCombine takes.
//
// Cost: beside the Dispatch within the node of the tokens of a whole rail, a copy of each own row, a transfer for each
// run of tokens to a node and two grid barriers.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include "mscclpp/algorithms/experts/dispatch.hpp"
#include "mscclpp/algorithms/experts/hierarchical_memory.hpp"
#include "mscclpp/algorithms/experts/scaled_rows.hpp"
#include "mscclpp/base/bits.hpp"
#include "mscclpp/device/tiles/roles.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

template <Number T, Number W, BlockSet B = GridGroup>
class HierarchicalDispatch {
  static constexpr bool isQuantised = !std::same_as<T, W>;

 public:
  MSCCLPP_DEVICE HierarchicalDispatch(DeviceHierarchicalExperts const& experts, B const& blocks)
      : experts_(experts), blocks_(blocks), dispatch_(experts.node, blocks), rail_(experts, blocks) {}

  template <class I>
  MSCCLPP_DEVICE void exchange(MatrixView<T const> const& x, Routing<I> const& routing) const {
    auto const& layout = experts_.layout;
    experts_.node.check(routing, x);
    experts_.node.requireLimit(routing.tokens, layout.limits.tokens);
    fillTables(routing);
    collectRows(x, routing.tokens);
    int const own = experts_.hierarchy.node;
    auto const bytes = slotBytes();
    rail_.exchange(
        layout.sent,
        [&](int node, PortChannelDeviceHandle const& channel) {
          channel.put(tablePart(layout.tables, own), tablePart(layout.sent, node), tablePart(0, 1));
        },
        [&](int, std::uint32_t begin, std::uint32_t end, PortChannelDeviceHandle const& channel) {
          channel.put(experts_.slot(experts_.tokenOf(own, begin), bytes), std::uint64_t{end - begin} * bytes);
        });
  }

  template <BlockSet Senders>
  MSCCLPP_DEVICE void send(Senders const& blocks) const {
    auto const bytes = slotBytes();
    auto const hidden = experts_.layout.limits.hidden;
    auto const slots = experts_.slot(0, bytes);
    MatrixView<W const> const rows(experts_.template at<W const>(slots), experts_.tokens(), hidden, bytes / sizeof(W));
    if constexpr (isQuantised) {
      auto const* const scales = experts_.template at<float const>(slots + bytes - scaleBytes());
      dispatch_.send(blocks, ScaledRows<W>{rows, scales, bytes / sizeof(float)}, experts_.relayed(true));
    } else {
      dispatch_.send(blocks, rows, experts_.relayed(true));
    }
  }

  MSCCLPP_DEVICE Dispatch<T, W, B> const& withinNode() const { return dispatch_; }

  template <class I>
  MSCCLPP_DEVICE void run(MatrixView<T const> const& x, Routing<I> const& routing, RowOrder const& order,
                          PlacedRows<W> const& out) const requires std::same_as<B, GridGroup> {
    exchange(x, routing);
    Roles{experts_.node.layout.senders(thisGrid().blockCount())}.split(
        thisGrid(), [&](auto const& senders) { send(senders); },
        [&](auto const& placers) { dispatch_.place(placers, dispatch_.layOut(order), out); });
    end();
  }

  MSCCLPP_DEVICE void end() const {
    dispatch_.end();
    rail_.end();
  }

 private:
  MSCCLPP_DEVICE std::uint32_t scaleBytes() const {
    return isQuantised ? layout::HierarchicalExpertsLayout::scaleBytes(experts_.layout.limits.hidden) : 0;
  }
  MSCCLPP_DEVICE std::uint32_t slotBytes() const {
    auto const row = experts_.layout.limits.hidden * static_cast<std::uint32_t>(sizeof(W));
    return roundUp(row, 16u) + scaleBytes();
  }
  MSCCLPP_DEVICE std::uint64_t tablePart(std::uint64_t table, int node) const {
    return table + std::uint64_t{experts_.tokenOf(node, 0)} * experts_.layout.entryBytes();
  }

  // Of each of this rank's tokens, in the table of each node, the experts there. Of tokens that there are not, none.
  template <class I>
  MSCCLPP_DEVICE void fillTables(Routing<I> const& routing) const {
    auto const& layout = experts_.layout;
    int const own = experts_.hierarchy.node;
    auto const topK = layout.limits.topK;
    for (auto i = blocks_.rank(); i < layout.limits.tokens * topK; i += blocks_.size()) {
      auto const token = i / topK, k = i % topK;
      bool const isThere = token < routing.tokens && k < routing.topK && routing.of(token)[k] >= 0;
      auto const place = isThere ? experts_.placeOf(routing.of(token)[k]) : ExpertPlace{-1, -1};
      auto const weight = isThere ? routing.weight(token, k) : 0;
      for (int node = 0; node < experts_.hierarchy.nodes; ++node) {
        auto* const entry = experts_.entry(node == own ? layout.tables : layout.sent, node, token);
        entry[k] = place.node == node ? place.expert : -1;
        reinterpret_cast<float*>(entry + topK)[k] = weight;
      }
    }
  }

  // Into the own node's slots, a piece by a warp.
  MSCCLPP_DEVICE void collectRows(MatrixView<T const> const& x, std::uint32_t tokens) const {
    auto const& layout = experts_.node.layout;
    auto const bytes = slotBytes();
    auto const warps = impl::Warps::of(blocks_);
    for (auto unit = warps.rank; unit < tokens * layout.pieces; unit += warps.count) {
      auto const token = unit / layout.pieces;
      auto const piece = impl::RowPiece::of(layout, unit % layout.pieces);
      auto const slot = experts_.slot(experts_.tokenOf(experts_.hierarchy.node, token), bytes);
      auto* const row = experts_.template at<W>(slot) + piece.first;
      auto const* const from = x.at(token, piece.first);
      if constexpr (isQuantised) {
        auto* const scales = experts_.template at<float>(slot + bytes - scaleBytes());
        impl::withConstant(impl::isWhole(x, 16) && piece.count % (16 / sizeof(T)) == 0, [&](auto whole) {
          impl::quantiseToEach<W, decltype(whole)::value>(from, piece, [&](auto const& f) { f(row, scales); });
        });
      } else {
        impl::copyToEach(
            from, piece.count, impl::isWhole(x, 16), [] { return 0; }, [&](int, auto const& f) { f(row); });
      }
    }
  }

  DeviceHierarchicalExperts const& experts_;
  B blocks_;
  Dispatch<T, W, B> dispatch_;
  impl::RailRound<B> rail_;
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
