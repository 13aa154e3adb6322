// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every rank reads what it reduces straight from the buffers of all ranks and stores the result where it belongs.
//
// A plan tells where each rank's contribution to this rank's share lies, source(rank), and where the result goes,
// target(rank). All sources have as many elements. One pass: no workspace, two meetings, each element read once from
// every rank. Contributions are combined in rank order.
#pragma once

#include <concepts>
#include <cstdint>

#include "mscclpp/algorithms/core/facts.hpp"
#include "mscclpp/algorithms/core/reduction.hpp"
#include "mscclpp/algorithms/transport/peer_memory.hpp"
#include "mscclpp/device/view.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

// Every thread asks anew for each tile, and for targets at each payload: answers should cost no more than an address.
template <class P>
concept PullPlan = requires(P const& plan, int rank) {
  typename P::Element;
  { plan.source(rank) } -> std::same_as<View<typename P::Element const>>;
  { plan.target(rank) } -> std::same_as<typename P::Element*>;  // null: the result does not go there
  { plan.firstElement() } -> std::same_as<std::uint64_t>;       // index of the share's first, for the epilogue
};

// Of collectives that reduce, over a DirectTransport.
struct PullSchedule {
  // The work is dealt out. Peers load all inputs; they store into all outputs but those of a reduce-scatter, where each
  // rank has its own result.
  static constexpr bool dealsOut(Collective) { return true; }
  static constexpr Windows windows(Collective collective) {
    return {.in = true, .out = collective != Collective::reduceScatter};
  }
  // `sent` is what comes in: what is loaded, and what peers store.
  static constexpr Movement movement(Volume const& of) {
    bool const toRoot = traitsOf(of.collective).hasRoot();  // by all ranks but the root
    bool const toAll = of.collective == Collective::allReduce;
    auto const share = of.bytes / (toRoot ? of.others() : of.ranks);
    auto const loaded = share * of.peers();
    return {.traffic = {.part = share,
                        .sent = toAll ? 2 * loaded : loaded,
                        .stored = toAll    ? loaded
                                  : toRoot ? share
                                           : 0,
                        .local = loaded + share},
            .pace = Pace::stream,
            .loads = true};
  }

  // By all threads of the blocks: meets the same block of every peer, reduces, and meets it again, by when each has
  // read and stored its part.
  template <DirectTransport Tr, class R, int Ranks, BlockSet B, PullPlan P, class Epilogue>
  MSCCLPP_DEVICE static void run(DeviceTeam const& team, B const& blocks, P const& plan, Epilogue const& epilogue) {
    DirectRound const round(team, blocks);
    reduce<Tr::unroll, R, Ranks>(team, blocks, plan, epilogue);
    round.finish();
  }

  // Without meeting anybody: for sources that are known to be there, and targets that nobody else uses.
  template <unsigned U, class R, int Ranks, BlockSet B, PullPlan P, class Epilogue>
  MSCCLPP_DEVICE static void reduce(DeviceTeam const& team, B const& blocks, P const& plan, Epilogue const& epilogue) {
    using T = typename P::Element;
    constexpr unsigned W = 4;
    constexpr unsigned together = Ranks != 0 ? Ranks : 1;
    using Reader = PayloadReader<T, W, 16>;
    using Writer = PayloadWriter<T, W, 16>;
    int const ranks = Ranks != 0 ? Ranks : team.size;

    auto const share = plan.source(team.rank);
    std::uint64_t const tile = std::uint64_t{blocks.block().size()} * U * 16;
    auto const thread = blocks.block().rank();
    for (std::uint64_t at = blocks.blockRank() * tile; at < share.bytes(); at += blocks.blockCount() * tile) {
      auto const left = share.bytes() - at;
      typename R::template Accumulators<W> totals[U]{};
      bool valid[U];
      std::uint32_t offset[U];
      MSCCLPP_UNROLL
      for (unsigned u = 0; u < U; ++u) {
        offset[u] = (u * blocks.block().size() + thread) * 16;
        valid[u] = offset[u] < left;
      }
      for (int first = 0; first < ranks; first += static_cast<int>(together)) {
        Payload<W> values[together][U];
        MSCCLPP_UNROLL
        for (unsigned k = 0; k < together; ++k) {
          Reader const reader(plan.source(first + static_cast<int>(k)));
          auto const window = reader.window(at, tile);
          MSCCLPP_UNROLL
          for (unsigned u = 0; u < U; ++u) {
            values[k][u] = valid[u] ? reader.read(window, offset[u]) : Payload<W>{};
          }
        }
        MSCCLPP_UNROLL
        for (unsigned k = 0; k < together; ++k) {
          MSCCLPP_UNROLL
          for (unsigned u = 0; u < U; ++u) R::combine(totals[u], R::widen(values[k][u]), first + static_cast<int>(k));
        }
      }
      MSCCLPP_UNROLL
      for (unsigned u = 0; u < U; ++u) {
        if (!valid[u]) continue;
        R::finish(totals[u], ranks);
        auto const index = plan.firstElement() + (at + offset[u]) / sizeof(T);
        auto const result = R::template conclude<W>(epilogue, totals[u], index, left - offset[u]);
        MSCCLPP_UNROLL
        for (int distance = 0; distance < ranks; ++distance) {
          auto* const target = plan.target(team.peerAt(distance, ranks));
          if (target == nullptr) continue;
          Writer const writer(View<T>{target, share.count});
          writer.write(writer.window(at, tile), offset[u], result);
        }
      }
    }
  }
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
