// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Collectives through the switch between the devices, on buffers where they lie: one load gets the sum of all ranks'
// elements, one store writes into all ranks' memory. Each link carries the message once. No workspace but for signals;
// two meetings.
//
//   with a SwitchPlan        every rank reduces its share of all inputs; the result goes to all, or where it belongs
//   with a SwitchStorePlan   every rank stores what it has for all
#pragma once

#include <concepts>
#include <cstdint>

#include "mscclpp/algorithms/core/facts.hpp"
#include "mscclpp/algorithms/core/prologue.hpp"
#include "mscclpp/algorithms/schedule/switch_reduce.hpp"
#include "mscclpp/algorithms/transport/switch_memory.hpp"
#include "mscclpp/device/copy.hpp"
#include "mscclpp/device/view.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

// send(rank): what this rank has; target(peer): where it goes there; multicastTarget(): the same for all at once, null
// where this rank sends nothing.
template <class P>
concept SwitchStorePlan = requires(P const& plan, int peer) {
  typename P::Element;
  { plan.send(peer) } -> SourceOf<typename P::Element>;
  { plan.target(peer) } -> std::same_as<typename P::Element*>;
  { plan.multicastTarget() } -> std::same_as<typename P::Element*>;
};

// Bits may differ from those of other schedules, since the switch adds; they are the same on all ranks.
struct SwitchSchedule {
  static constexpr bool rankOrder = false;  // the switch has an order of its own
  static constexpr bool fixedRanks = false;
  template <class T, class Op>
  static constexpr bool reduces = switchReduces<T, Op>;
  static constexpr bool dealsOut(Collective collective) { return traitsOf(collective).reduces; }
  static constexpr Windows windows(Collective collective) {
    auto const traits = traitsOf(collective);
    return {.in = traits.reduces || traits.hasRoot(), .out = collective != Collective::reduceScatter};
  }
  // A broadcast goes straight from the root to all.
  static constexpr bool relays = false;

  // By all threads of the blocks, which meet the same block of every rank before and after. A team, or buffers, without
  // multicast addresses are refused.
  template <DirectTransport Tr, class R, int Ranks, BlockSet B, SwitchPlan P, class Epilogue>
  MSCCLPP_DEVICE static void run(DeviceTeam const& team, B const& blocks, P const& plan, Epilogue const& epilogue) {
    requireMulticast(team, plan.hasMulticast());
    SwitchRound const round(team, blocks);
    impl::reduceThroughSwitch<Tr::unroll, R, Ranks>(team, blocks, plan, epilogue);
    round.finish();
  }

  // The same for what a rank stores to all. Ends that are no whole 16 bytes of the target are copied to each rank
  // apart; so is everything, in code for GPUs without multicast.
  template <DirectTransport Tr, int Ranks, BlockSet B, SwitchStorePlan P>
  MSCCLPP_DEVICE static void run(DeviceTeam const& team, B const& blocks, P const& plan) {
    static_assert(std::same_as<decltype(plan.send(0)), View<typename P::Element const>>,
                  "the switch gets elements as they are: a prologue needs PushSchedule or OneExchange");
    requireMulticast(team, plan.hasMulticast());
    SwitchRound const round(team, blocks);
    if (plan.multicastTarget() != nullptr) storeToAll<Tr::unroll, Ranks>(team, blocks, plan);
    round.finish();
  }

 private:
  template <unsigned U, int Ranks, class B, class P>
  MSCCLPP_DEVICE static void storeToAll(DeviceTeam const& team, B const& blocks, P const& plan) {
    using T = typename P::Element;
    auto const part = plan.send(team.rank);
    auto* const to = reinterpret_cast<std::byte*>(plan.multicastTarget());
    std::uint64_t head = part.bytes();
    std::uint64_t tail = part.bytes();
    if constexpr (hasMultimem()) {
      head = minimum<std::uint64_t>((0 - reinterpret_cast<std::uintptr_t>(to)) % 16, part.bytes());
      std::uint64_t const payloads = (part.bytes() - head) / 16;
      tail = head + payloads * 16;
      PayloadReader<T, 4, 16> const reader(View<T const>{part.data + head / sizeof(T), part.count - head / sizeof(T)});
      bool const inPlace = plan.target(team.rank) == part.data;
      std::uint64_t const stride = blocks.size();
      for (std::uint64_t at = blocks.rank(); at < payloads; at += U * stride) {
        Payload<4> held[U];
        MSCCLPP_UNROLL
        for (unsigned u = 0; u < U; ++u) {
          auto const i = at + u * stride;
          if (i < payloads) held[u] = reader.read(reader.window(i * 16), 0);
        }
        // What was read by a plain address is written by another one.
        if (inPlace) multimemFence();
        MSCCLPP_UNROLL
        for (unsigned u = 0; u < U; ++u) {
          auto const i = at + u * stride;
          if (i < payloads) impl::storeToAll(to + head + i * 16, held[u]);
        }
      }
    }
    int const ranks = Ranks != 0 ? Ranks : team.size;
    auto const* const from = reinterpret_cast<std::byte const*>(part.data);
    for (int distance = 1; distance <= ranks; ++distance) {
      auto* const there = reinterpret_cast<std::byte*>(plan.target(team.peerAt(distance, ranks)));
      if (there == from) continue;
      copy(blocks, there, from, head);
      copy(blocks, there + tail, from + tail, part.bytes() - tail);
    }
  }
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
