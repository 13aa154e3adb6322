// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What experts on several nodes have made of tokens travels home, behind a HierarchicalDispatch with the same memory:
// as Combine (algorithms/experts/combine.hpp), whose contract holds here.
//
//   HierarchicalCombine<bf16> combine(experts, thisGrid());
//   combine.send(thisGrid(), results);
//   combine.fold(routing, MatrixView{y, tokens, hidden});
//   combine.end();
//
//   send   within the node, to the ranks that the tokens came from
//   fold   adds up what each node's experts have made of a token at that node, rounds it to T, and sends it home in one
//          row; there the nodes' sums are added in the order of the token's experts, of the first on each node. By the
//          whole grid, whose blocks are resident together
//
// With limits.partOfEach a node's parts are multiplied by the weights that were dispatched, unless `routing` has none,
// and added in the order of the token's experts. The same bits in every run.
//
// Cost: beside the Combine within the node of the tokens of a whole rail, a transfer for each run of tokens from a
// node, two grid barriers, and a row of each node read at home.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/algorithms/experts/combine.hpp"
#include "mscclpp/algorithms/experts/hierarchical_memory.hpp"
#include "mscclpp/base/bits.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

template <Number T, BlockSet B = GridGroup>
class HierarchicalCombine {
  static constexpr unsigned N = 16 / sizeof(T);

 public:
  MSCCLPP_DEVICE HierarchicalCombine(DeviceHierarchicalExperts const& experts, B const& blocks)
      : experts_(experts), blocks_(blocks), combine_(experts.node, blocks), rail_(experts, blocks) {}

  template <BlockSet Senders>
  MSCCLPP_DEVICE void send(Senders const& blocks, MatrixView<T const> const& results,
                           ExpertWeights weights = ExpertWeights::asRouted) const {
    combine_.send(blocks, results, weights);
  }

  template <class I, class Finish = impl::ExpertSumsAsTheyAre>
  MSCCLPP_DEVICE void fold(Routing<I> const& routing, MatrixView<T> const& out, Finish const& finish = {}) const {
    auto const& layout = experts_.layout;
    experts_.node.check(routing, out);
    experts_.node.requireLimit(routing.tokens, layout.limits.tokens);
    auto const bytes = rowBytes();
    MatrixView<T> const sums(experts_.template at<T>(experts_.slot(0, bytes)), experts_.tokens(), layout.limits.hidden,
                             bytes / sizeof(T));
    combine_.fold(blocks_, experts_.relayed(routing.weights != nullptr), sums);
    rail_.exchange(
        layout.tables, [](int, PortChannelDeviceHandle const&) {},
        [&](int node, std::uint32_t begin, std::uint32_t end, PortChannelDeviceHandle const& channel) {
          channel.put(homeRow(experts_.hierarchy.node, begin), experts_.slot(experts_.tokenOf(node, begin), bytes),
                      std::uint64_t{end - begin} * bytes);
        });
    auto const& pieces = experts_.node.layout;
    auto const warps = impl::Warps::of(blocks_);
    for (auto unit = warps.rank; unit < routing.tokens * pieces.pieces; unit += warps.count) {
      addNodes(routing, out, finish, unit / pieces.pieces, impl::RowPiece::of(pieces, unit % pieces.pieces));
    }
  }

  MSCCLPP_DEVICE void end() const {
    combine_.end();
    rail_.end();
  }

 private:
  MSCCLPP_DEVICE std::uint32_t rowBytes() const {
    return roundUp(experts_.layout.limits.hidden * static_cast<std::uint32_t>(sizeof(T)), 16u);
  }
  // Of what a node has made of this rank's token; the own node's sum lies where it was made.
  MSCCLPP_DEVICE std::uint64_t homeRow(int node, std::uint32_t token) const {
    return experts_.layout.home + std::uint64_t{experts_.tokenOf(node, token)} * rowBytes();
  }
  MSCCLPP_DEVICE T const* sumOf(int node, std::uint32_t token) const {
    bool const isOwn = node == experts_.hierarchy.node;
    return experts_.template at<T const>(isOwn ? experts_.slot(experts_.tokenOf(node, token), rowBytes())
                                               : homeRow(node, token));
  }

  template <class I, class Finish>
  MSCCLPP_DEVICE void addNodes(Routing<I> const& routing, MatrixView<T> const& out, Finish const& finish,
                               std::uint32_t token, impl::RowPiece const& piece) const {
    auto const warp = thisWarp();
    auto const expert = warp.rank() < routing.topK ? routing.of(token)[warp.rank()] : I{-1};
    int const node = expert < 0 ? -1 : experts_.placeOf(expert).node;
    bool isFirst = false;
    impl::RankSet seen{};
    for (std::uint32_t k = 0; k < routing.topK; ++k) {
      int const other = arch::shuffle(node, k);
      if (other >= 0 && seen.add(other) && k == warp.rank()) isFirst = true;
    }
    auto const terms = impl::ExpertTerms::packed({isFirst ? static_cast<std::uint32_t>(node) : layout::noExpertRow, 1});
    impl::forEachVectors<N>(piece.count, impl::isWhole(out, 16), [&](auto const& own) {
      Vector<float, N> totals[impl::vectorsAtATime];
      terms.template sum<T>(totals, [&](impl::ExpertTerms::Held& held, std::uint32_t first) {
        terms.loadEach(held, first, [&](Payload<4>& one, std::uint32_t of, unsigned i) {
          own.load(one, i, sumOf(static_cast<int>(of), token) + piece.first);
        });
      });
      MSCCLPP_UNROLL
      for (unsigned i = 0; i < impl::vectorsAtATime; ++i) {
        if (own.count(i) == 0) continue;
        own.store(i, out.at(token, piece.first), convert<T>(finish(totals[i], token, piece.first + own.at(i))));
      }
    });
  }

  DeviceHierarchicalExperts const& experts_;
  B blocks_;
  Combine<T, B> combine_;
  impl::RailRound<B> rail_;
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
