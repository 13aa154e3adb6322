// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where a block's tokens go: of each of its tokens the ranks that it travels to, once each, and its place among all
// that this rank sends there.
//
// Places follow from the routing alone, in the order of tokens: the same in every run and for every grid. Each block
// counts the tokens ahead of its own itself, from the second-level cache, so no block waits for another.
//
//   RoutingScan scan(experts, routing, blocks);
//   scan.tokensFor(rank, expert), scan.rowsFor(rank)          of all tokens, by blocks that tell
//   scan.forEachBatch([&](RoutingBatch const& batch) {...});  of this block's tokens
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include "mscclpp/algorithms/experts/expert_memory.hpp"
#include "mscclpp/base/config.hpp"
#include "mscclpp/device/memory.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

// In block-shared memory.
struct RoutingBatch {
  static constexpr std::uint32_t mostTokens = 32;
  static constexpr std::uint32_t mostEntries = mostTokens * layout::ExpertLimits::mostTopK;

  std::uint32_t first;   // of this rank's tokens
  std::uint32_t tokens;  // in the batch
  // By token * topK + k.
  std::int32_t expert[mostEntries];
  std::uint32_t position[mostEntries];  // among this rank's tokens for that expert
  std::uint32_t slot[mostEntries];      // among its rows for that expert's rank
  // By token: bit k is set where the k-th is the first of the token's experts on its rank; of those, where that rank
  // has not failed.
  std::uint32_t leads[mostTokens];
  std::uint32_t sent[mostTokens];
  impl::RankSet ranks[mostTokens];  // that the token goes to

  // Whether the k-th of the token's experts is the first on its rank, for which alone a row is sent there.
  MSCCLPP_DEVICE bool isLead(std::uint32_t token, std::uint32_t k) const { return (leads[token] >> k & 1) != 0; }
};

namespace impl {

struct RoutingCounts {
  std::uint32_t ofExpert[layout::ExpertLimits::mostExperts];
  std::uint32_t ofRank[maxTeamSize];
};
struct RoutingTables {
  RoutingCounts before;  // of the tokens ahead of the batch
  RoutingCounts others;  // of the rest, where a block tells of all
  RoutingBatch batch;
};

}  // namespace impl

template <class I>
class RoutingScan {
 public:
  // All threads of the blocks call. Blocks take batches in turn, so that rows come about in the order of their tokens,
  // and who waits for a tile of them need not wait for the last; a few tokens a block are one batch, since each costs
  // several looks at memory that wait for each other.
  template <BlockSet B>
  MSCCLPP_DEVICE RoutingScan(DeviceExperts const& experts, Routing<I> const& routing, B const& blocks)
      : experts_(experts), routing_(routing), tables_(arch::blockShared<impl::RoutingTables, RoutingScan>()) {
    static_assert(std::same_as<decltype(blocks.block()), BlockGroup>, "RoutingScan: by whole blocks");
    constexpr std::uint32_t turns = 8, few = 4;
    auto const ofBlock = maximum(ceilDiv(routing.tokens, blocks.blockCount()), 1u);
    each_ = minimum(maximum(ceilDiv(ofBlock, turns), minimum(ofBlock, few)), RoutingBatch::mostTokens);
    first_ = minimum(blocks.blockRank() * each_, routing.tokens);
    stride_ = blocks.blockCount() * each_;
    auto* const words = reinterpret_cast<std::uint32_t*>(&tables_.before);
    for (auto i = group_.rank(); i < 2 * sizeof(impl::RoutingCounts) / 4; i += group_.size()) words[i] = 0;
    sync();
    countTokens(tables_.before, 0, first_);
    // Only blocks that tell a rank something need what lies behind.
    teller_ = blocks.blockCount() - 1 - blocks.blockRank();
    if (teller_ < static_cast<unsigned>(experts.size())) countTokens(tables_.others, first_, routing.tokens);
    sync();
  }

  // The number of this block among those that tell: the last ones, which have the fewest tokens.
  MSCCLPP_DEVICE std::uint32_t teller() const { return teller_; }
  // Of expert `local` of that rank, and of its rows; where the block tells, ahead of forEachBatch().
  MSCCLPP_DEVICE std::uint32_t tokensFor(int rank, std::uint32_t local) const {
    auto const expert = static_cast<std::uint32_t>(rank) * experts_.layout.perRank + local;
    if (expert >= experts_.layout.limits.experts) return 0;
    return tables_.before.ofExpert[expert] + tables_.others.ofExpert[expert];
  }
  MSCCLPP_DEVICE std::uint32_t rowsFor(int rank) const {
    return tables_.before.ofRank[rank] + tables_.others.ofRank[rank];
  }

  template <class F>
  MSCCLPP_DEVICE void forEachBatch(F const& f) {
    auto& batch = tables_.batch;
    auto const topK = routing_.topK;
    for (auto first = first_; first < routing_.tokens; first += stride_) {
      auto const tokens = minimum(each_, routing_.tokens - first);
      auto const entries = tokens * topK;
      if (group_.rank() == 0) {
        batch.first = first;
        batch.tokens = tokens;
      }
      for (auto i = group_.rank(); i < entries; i += group_.size()) {
        batch.expert[i] = expertAt(first + i / topK, i % topK);
      }
      sync();
      for (auto t = group_.rank(); t < tokens; t += group_.size()) findLeads(batch, t);
      sync();
      for (auto i = group_.rank(); i < entries; i += group_.size()) findPlace(batch, i);
      sync();
      f(static_cast<RoutingBatch const&>(batch));
      if (first + stride_ >= routing_.tokens) return;
      sync();
      countTokens(tables_.before, first, first + stride_);
      sync();
    }
  }

 private:
  MSCCLPP_DEVICE void sync() const { syncWhole(group_); }

  // Negative: none.
  MSCCLPP_DEVICE std::int32_t expertAt(std::uint32_t token, std::uint32_t k) const {
    return checked(routing_.of(token)[k]);
  }
  MSCCLPP_DEVICE std::int32_t checked(I index) const {
    if (index < 0) return -1;
    auto const limit = experts_.layout.limits.experts;
    requireAlone(static_cast<std::uint64_t>(index) < limit, experts_.flags.watch, -1,
                 std::uint64_t(layout::Misuse::expert), limit, static_cast<std::uint64_t>(index));
    return static_cast<std::int32_t>(index);
  }
  // Of some of this rank's tokens, one a thread. All lanes of a warp call, as they add up rows for ranks, of which
  // there are few, before they go to the table.
  MSCCLPP_DEVICE void countTokens(impl::RoutingCounts& counts, std::uint32_t begin, std::uint32_t end) const {
    for (auto first = begin; first < end; first += group_.size()) {
      auto const token = first + group_.rank();
      // All loads ahead of the first that is waited for.
      constexpr auto most = layout::ExpertLimits::mostTopK;
      I chosen[most];
      MSCCLPP_UNROLL
      for (std::uint32_t k = 0; k < most; ++k)
        chosen[k] = k < routing_.topK && token < end ? routing_.of(token)[k] : I{-1};
      impl::RankSet ranks{};
      MSCCLPP_UNROLL
      for (std::uint32_t k = 0; k < most; ++k) {
        auto const expert = checked(chosen[k]);
        if (expert < 0 || experts_.hasFailed(experts_.rankOf(expert))) continue;
        reduceAdd<Order::relaxed, Scope::block>(&counts.ofExpert[expert], 1u);
        ranks.add(experts_.rankOf(expert));
      }
      for (int rank = 0; rank < experts_.size(); ++rank) {
        auto const tokens = impl::bitsSet(arch::ballot(ranks.has(rank)));
        if (thisWarp().rank() == 0 && tokens != 0) {
          reduceAdd<Order::relaxed, Scope::block>(&counts.ofRank[rank], tokens);
        }
      }
    }
  }
  MSCCLPP_DEVICE void findLeads(RoutingBatch& batch, std::uint32_t token) const {
    impl::RankSet ranks{};
    std::uint32_t leads = 0, sent = 0, unsent = 0;
    for (std::uint32_t k = 0; k < routing_.topK; ++k) {
      auto const entry = token * routing_.topK + k;
      auto const expert = batch.expert[entry];
      bool const isLost = expert >= 0 && experts_.hasFailed(experts_.rankOf(expert));
      if (routing_.unsent != nullptr)
        routing_.unsent[std::size_t{batch.first} * routing_.topK + entry] = isLost ? 1 : 0;
      unsent += isLost ? 1 : 0;
      if (expert < 0 || !ranks.add(experts_.rankOf(expert))) continue;
      leads |= 1u << k;
      sent |= isLost ? 0 : 1u << k;
    }
    if (routing_.unsentCount != nullptr && unsent != 0) {
      reduceAdd<Order::relaxed, Scope::device>(routing_.unsentCount, unsent);
    }
    batch.leads[token] = leads;
    batch.sent[token] = sent;
    batch.ranks[token] = ranks;
  }
  MSCCLPP_DEVICE void findPlace(RoutingBatch& batch, std::uint32_t entry) const {
    auto const expert = batch.expert[entry];
    if (expert < 0) return;
    int const rank = experts_.rankOf(expert);
    auto position = tables_.before.ofExpert[expert];
    auto slot = tables_.before.ofRank[rank];
    for (std::uint32_t i = 0; i < entry; ++i) position += batch.expert[i] == expert ? 1 : 0;
    for (std::uint32_t t = 0; t < entry / routing_.topK; ++t) slot += batch.ranks[t].has(rank) ? 1 : 0;
    batch.position[entry] = position;
    batch.slot[entry] = slot;
  }

  DeviceExperts const& experts_;
  Routing<I> routing_;
  BlockGroup group_;
  impl::RoutingTables& tables_;
  std::uint32_t each_ = 0;    // tokens of a batch
  std::uint32_t first_ = 0;   // of this block's tokens
  std::uint32_t stride_ = 0;  // from one of its batches to the next
  std::uint32_t teller_ = 0;
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
