// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All-reduce in two steps, the second without a copy: each rank reduces one share, as in TwoShot, and stores the result
// straight into everybody's output, which lies in symmetric memory.
//
// 2(n-1)/n of the message leaves each rank, as stores only; one meeting a round and one at the end. For the largest
// messages. The epilogue runs once for each element, on the rank that reduces it.
//
// Reduce the same way: the root has no share, gets the results of the others, and no link carries more than the
// message.
#pragma once

#include <cstdint>

#include "mscclpp/algorithms/core/facts.hpp"
#include "mscclpp/algorithms/core/prologue.hpp"
#include "mscclpp/algorithms/schedule/one_exchange.hpp"
#include "mscclpp/algorithms/schedule/shares.hpp"
#include "mscclpp/device/symmetric_view.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

namespace impl {

// Each rank reduces one share of everybody's input and stores it into all ranks' outputs. `ToRoot`: each but the root,
// into the root's output.
template <ElementSource S, bool ToRoot = false>
struct SharePlan {
  using Element = typename S::Element;
  static constexpr bool equal = false;
  static constexpr bool sameToAll = false;
  // A peer's output is free once its first contribution has come: it has begun this collective then.
  static constexpr bool remote = true;
  S in;
  SymmetricView<Element> const& out;
  int rank;
  int ranks;
  int root = 0;

  MSCCLPP_DEVICE Share share(int ofRank) const {
    if constexpr (ToRoot) return shareBesideRoot<Element>(in.count, ranks, ofRank, root);
    return shareOf<Element>(in.count, static_cast<unsigned>(ranks), static_cast<unsigned>(ofRank));
  }
  MSCCLPP_DEVICE std::size_t largest() const { return share(ToRoot ? (root + 1) % ranks : 0).count; }
  MSCCLPP_DEVICE S send(int peer) const {
    auto const part = share(peer);
    return in.part(part.first, part.count);
  }
  MSCCLPP_DEVICE S own() const { return send(rank); }
  MSCCLPP_DEVICE int results() const { return ToRoot ? 1 : ranks; }
  MSCCLPP_DEVICE View<Element> result(int ofRank) const {
    auto const part = share(rank);
    return {out.at(ToRoot ? root : ofRank) + part.first, part.count};
  }
  MSCCLPP_DEVICE std::uint64_t firstElement() const { return share(rank).first; }
};

}  // namespace impl

struct TwoShotPush {
  // Rows of the workspace: one per source.
  MSCCLPP_HOST_DEVICE static constexpr std::uint32_t rows(std::uint32_t ranks) { return ranks; }
  static constexpr bool dealsOut(Collective) { return true; }
  static constexpr Windows windows(Collective) { return {.out = true}; }
  static constexpr Movement movement(Volume const& of) {
    // To the other ranks that reduce, and the results to the root; or shares to all, and their results.
    bool const toRoot = traitsOf(of.collective).hasRoot();
    auto const share = of.bytes / (toRoot ? of.others() : of.ranks);
    auto const sent = toRoot ? of.bytes : 2 * share * of.peers();
    return {.traffic = {.part = share, .sent = sent, .stored = sent, .local = of.bytes}, .barriers = 1};
  }

  // By all threads of the blocks, over transports that signal. On return what the same blocks of the peers have stored
  // into this rank's output is there. reduce() is the same to a root.
  template <class Tr, class R, int Ranks, BlockSet B, ElementSource S, class T, class Epilogue>
  MSCCLPP_DEVICE static void run(DeviceTeam const& team, B const& blocks, S const& in, SymmetricView<T> const& out,
                                 Epilogue const& epilogue) {
    int const ranks = Ranks != 0 ? Ranks : team.size;
    OneExchange::template reduceParts<Tr, R, Ranks>(team, blocks, impl::SharePlan<S>{in, out, team.rank, ranks},
                                                    epilogue);
  }

  template <class Tr, class R, int Ranks, BlockSet B, ElementSource S, class T, class Epilogue>
  MSCCLPP_DEVICE static void reduce(DeviceTeam const& team, B const& blocks, S const& in, SymmetricView<T> const& out,
                                    int root, Epilogue const& epilogue) {
    int const ranks = Ranks != 0 ? Ranks : team.size;
    using Plan = impl::SharePlan<S, true>;
    OneExchange::template reduceParts<Tr, R, Ranks>(team, blocks, Plan{in, out, team.rank, ranks, root}, epilogue);
  }
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
