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
  // By token: bit k is set where the k-th is the first of the token's experts on its rank.
  std::uint32_t leads[mostTokens];
  impl::RankSet ranks[mostTokens];  // that the token goes to

  MSCCLPP_DEVICE bool isLead(std::uint32_t token, std::uint32_t k) const { return (leads[token] >> k & 1) != 0; }
};

namespace impl {

struct RoutingCounts {
  std::uint32_t ofExpert[layout::ExpertLimits::mostExperts];
  std::uint32_t ofRank[maxTeamSize];
};
struct RoutingTables {
  RoutingCounts all;     // of this rank's tokens
  RoutingCounts before;  // of those ahead of the batch
  RoutingBatch batch;
};

}  // namespace impl

template <class I>
class RoutingScan {
 public:
  // All threads of the blocks call; each block takes tokens that lie together.
  template <BlockSet B>
  MSCCLPP_DEVICE RoutingScan(DeviceExperts const& experts, Routing<I> const& routing, B const& blocks)
      : experts_(experts), routing_(routing), tables_(arch::blockShared<impl::RoutingTables, RoutingScan>()) {
    static_assert(std::same_as<decltype(blocks.block()), BlockGroup>, "RoutingScan: by whole blocks");
    auto const each = ceilDiv(routing.tokens, blocks.blockCount());
    first_ = minimum(blocks.blockRank() * each, routing.tokens);
    end_ = minimum(first_ + each, routing.tokens);
    auto* const words = reinterpret_cast<std::uint32_t*>(&tables_.all);
    for (auto i = group_.rank(); i < 2 * sizeof(impl::RoutingCounts) / 4; i += group_.size()) words[i] = 0;
    sync();
    // Only blocks that tell a rank something need what lies behind their own tokens.
    teller_ = blocks.blockCount() - 1 - blocks.blockRank();
    auto const most = teller_ < static_cast<unsigned>(experts.size()) ? routing.tokens : first_;
    for (auto i = group_.rank(); i < most * routing.topK; i += group_.size()) {
      auto const token = i / routing.topK;
      auto const expert = expertAt(token, i % routing.topK);
      if (expert < 0) continue;
      bool const leads = isFirstOfRank(token, i % routing.topK, experts.rankOf(expert));
      count(tables_.all, expert, leads);
      if (token < first_) count(tables_.before, expert, leads);
    }
    sync();
  }

  // The number of this block among those that tell: the last ones, which have the fewest tokens.
  MSCCLPP_DEVICE std::uint32_t teller() const { return teller_; }
  // Of expert `local` of that rank, and of its rows; where the block is told of (see the constructor).
  MSCCLPP_DEVICE std::uint32_t tokensFor(int rank, std::uint32_t local) const {
    auto const expert = static_cast<std::uint32_t>(rank) * experts_.layout.perRank + local;
    return expert < experts_.layout.limits.experts ? tables_.all.ofExpert[expert] : 0;
  }
  MSCCLPP_DEVICE std::uint32_t rowsFor(int rank) const { return tables_.all.ofRank[rank]; }

  template <class F>
  MSCCLPP_DEVICE void forEachBatch(F const& f) {
    auto& batch = tables_.batch;
    auto const topK = routing_.topK;
    for (auto first = first_; first < end_; first += RoutingBatch::mostTokens) {
      auto const tokens = minimum(RoutingBatch::mostTokens, end_ - first);
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
      sync();
      for (auto i = group_.rank(); i < entries; i += group_.size()) {
        if (batch.expert[i] >= 0) count(tables_.before, batch.expert[i], batch.isLead(i / topK, i % topK));
      }
      sync();
    }
  }

 private:
  MSCCLPP_DEVICE void sync() const { syncWhole(group_); }

  // Negative: none.
  MSCCLPP_DEVICE std::int32_t expertAt(std::uint32_t token, std::uint32_t k) const {
    auto const index = routing_.of(token)[k];
    if (index < 0) return -1;
    auto const limit = experts_.layout.limits.experts;
    requireAlone(static_cast<std::uint64_t>(index) < limit, experts_.flags.watch, -1,
                 std::uint64_t(layout::Misuse::expert), limit, static_cast<std::uint64_t>(index));
    return static_cast<std::int32_t>(index);
  }
  // Whether none of those before the k-th of a token's experts is on its rank.
  MSCCLPP_DEVICE bool isFirstOfRank(std::uint32_t token, std::uint32_t k, int rank) const {
    auto const* const ofToken = routing_.of(token);
    for (std::uint32_t other = 0; other < k; ++other) {
      if (ofToken[other] >= 0 && experts_.rankOf(ofToken[other]) == rank) return false;
    }
    return true;
  }
  MSCCLPP_DEVICE void findLeads(RoutingBatch& batch, std::uint32_t token) const {
    impl::RankSet ranks{};
    std::uint32_t leads = 0;
    for (std::uint32_t k = 0; k < routing_.topK; ++k) {
      auto const expert = batch.expert[token * routing_.topK + k];
      if (expert >= 0 && ranks.add(experts_.rankOf(expert))) leads |= 1u << k;
    }
    batch.leads[token] = leads;
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
  MSCCLPP_DEVICE void count(impl::RoutingCounts& counts, std::int32_t expert, bool leads) const {
    reduceAdd<Order::relaxed, Scope::block>(&counts.ofExpert[expert], 1u);
    if (leads) reduceAdd<Order::relaxed, Scope::block>(&counts.ofRank[experts_.rankOf(expert)], 1u);
  }

  DeviceExperts const& experts_;
  Routing<I> routing_;
  BlockGroup group_;
  impl::RoutingTables& tables_;
  std::uint32_t first_ = 0;  // of this block's tokens
  std::uint32_t end_ = 0;
  std::uint32_t teller_ = 0;
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
