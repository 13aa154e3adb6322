// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the switch can be asked to reduce, and the loop that does: from a multicast address, through registers, to
// another one or to plain memory. The part of every reducing collective through the switch.
//
// The switch adds in an order of its own, and rounds to the element type before the epilogue sees the value. Each
// element is reduced once, so all ranks get the same bits.
#pragma once

#include <concepts>
#include <cstdint>

#include "mscclpp/algorithms/core/reduction.hpp"
#include "mscclpp/algorithms/schedule/pull.hpp"
#include "mscclpp/device/multimem.hpp"

namespace mscclpp {

// Whether a collective may leave Op over T to the switch. Sums: as they come. Averages: where the sum is as good as
// any. Least and largest: of integers, since the switch lets NaN pass. Everything else is for other schedules.
template <class T, class Op>
inline constexpr bool switchReduces = false;
template <class T>
inline constexpr bool switchReduces<T, Sum> = multimemMoves<T>;
template <class T>
inline constexpr bool switchReduces<T, Avg> = multimemMoves<T> && !isSmallFloat<T>;
template <class T>
inline constexpr bool switchReduces<T, Min> = detail::isWideInteger<T>;
template <class T>
inline constexpr bool switchReduces<T, Max> = detail::isWideInteger<T>;

inline namespace MSCCLPP_BACKEND {

// A PullPlan whose sources, and targets if they are all ranks', have multicast addresses.
template <class P>
concept SwitchPlan = PullPlan<P> && requires(P const& plan) {
  { plan.multicastSource() } -> std::same_as<typename P::Element const*>;
  { plan.multicastTarget() } -> std::same_as<typename P::Element*>;  // null: the result goes to target(rank)
};

namespace impl {

// Elements [first, first + count) of another plan, by plain addresses.
template <class P>
struct PlanSection {
  using Element = typename P::Element;
  P const& plan;
  std::uint64_t first;
  std::uint64_t count;

  MSCCLPP_DEVICE View<Element const> source(int rank) const { return {plan.source(rank).data + first, count}; }
  MSCCLPP_DEVICE Element* target(int rank) const {
    auto* const whole = plan.target(rank);
    return whole == nullptr ? nullptr : whole + first;
  }
  MSCCLPP_DEVICE std::uint64_t firstElement() const { return plan.firstElement() + first; }
};

// Averages are sums until they are finished.
template <class Op>
using SwitchOperation = std::conditional_t<std::same_as<Op, Avg>, Sum, Op>;

template <class T>
MSCCLPP_DEVICE constexpr bool switchCompiles() {
  return sizeof(T) == 1 ? hasMultimemFloat8() : hasMultimem();
}

// By as few instructions as the type allows.
template <unsigned Words, class Op, class T>
MSCCLPP_DEVICE Payload<Words> loadReduced(T const* address) {
  constexpr unsigned count = Words * 4 / sizeof(T);
  constexpr unsigned step = minimum(multimemWidest<T>, count);
  Vector<T, count> all;
  MSCCLPP_UNROLL
  for (unsigned i = 0; i < count; i += step) {
    auto const part = multimemLoadReduce<Order::relaxed, Scope::system, SwitchOperation<Op>>(
        reinterpret_cast<Vector<T, step> const*>(address + i));
    MSCCLPP_UNROLL
    for (unsigned k = 0; k < step; ++k) all[i + k] = part[k];
  }
  return pack(all);
}

template <unsigned Words>
MSCCLPP_DEVICE void storeToAll(void* address, Payload<Words> const& payload) {
  using V = Vector<float, Words>;
  multimemStore<Order::relaxed, Scope::system>(static_cast<V*>(address), bitCast<V>(payload));
}

// Elements from `first` on, in `count` payloads of whole elements, which begin at multiples of their size.
template <unsigned Words, unsigned U, class R, int Ranks, BlockSet B, SwitchPlan P, class Epilogue>
MSCCLPP_DEVICE void reduceAligned(DeviceTeam const& team, B const& blocks, P const& plan, std::uint64_t first,
                                  std::uint64_t count, Epilogue const& epilogue) {
  using T = typename P::Element;
  constexpr unsigned each = Words * 4 / sizeof(T);
  int const ranks = Ranks != 0 ? Ranks : team.size;
  auto const* const from = plan.multicastSource() + first;
  auto* const to = plan.multicastTarget();
  bool inPlace = false;
  for (int rank = 0; to == nullptr && rank < ranks; ++rank) {
    inPlace = inPlace || plan.target(rank) == plan.source(rank).data;
  }
  std::uint64_t const stride = blocks.size();
  for (std::uint64_t at = blocks.rank(); at < count; at += U * stride) {
    Payload<Words> values[U];
    MSCCLPP_UNROLL
    for (unsigned u = 0; u < U; ++u) {
      auto const i = at + u * stride;
      if (i < count) values[u] = loadReduced<Words, typename R::Operation>(from + i * each);
    }
    // What was read by a multicast address is written by a plain one.
    if (inPlace) multimemFence();
    MSCCLPP_UNROLL
    for (unsigned u = 0; u < U; ++u) {
      auto const i = at + u * stride;
      if (i >= count) continue;
      auto totals = R::widen(values[u]);
      R::finish(totals, ranks);
      auto const element = first + i * each;
      auto const result = R::template conclude<Words>(epilogue, totals, plan.firstElement() + element, Words * 4);
      if (to != nullptr) {
        storeToAll(to + element, result);
        continue;
      }
      for (int rank = 0; rank < ranks; ++rank) {
        auto* const target = plan.target(rank);
        if (target == nullptr) continue;
        PayloadWriter<T, Words, Words * 4> const writer(View<T>{target + element, each});
        writer.write(writer.window(0), 0, result);
      }
    }
  }
}

// All that the plan tells of. What no multicast access can reach (ragged ends, buffers that are aligned differently,
// FP8 where the GPU lacks it) goes by plain addresses, in rank order.
template <unsigned U, class R, int Ranks, BlockSet B, SwitchPlan P, class Epilogue>
MSCCLPP_DEVICE void reduceThroughSwitch(DeviceTeam const& team, B const& blocks, P const& plan,
                                        Epilogue const& epilogue) {
  using T = typename P::Element;
  static_assert(switchReduces<T, typename R::Operation>,
                "the switch has no such reduction: it has sums of floats, small floats and integers of 32 and 64 bits, "
                "averages of those but the small floats, and least and largest of the integers; choose another "
                "schedule for this type and operation");
  static_assert(std::same_as<typename R::Accumulator, DefaultAccumulator<T>>,
                "the switch adds in a precision of its own; choose another schedule to name the accumulator");
  auto const total = plan.source(team.rank).count;
  auto const from = reinterpret_cast<std::uintptr_t>(plan.multicastSource());
  auto const to = plan.multicastTarget() == nullptr ? from : reinterpret_cast<std::uintptr_t>(plan.multicastTarget());
  constexpr auto narrow = maximum<std::uint64_t>(4, sizeof(T));
  std::uint64_t head = total;
  std::uint64_t tail = total;
  if constexpr (switchCompiles<T>()) {
    std::uint64_t const unit = (from ^ to) % 16 == 0 ? 16 : (from ^ to) % narrow == 0 ? narrow : 0;
    if (unit != 0) {
      head = minimum<std::uint64_t>((0 - from) % unit / sizeof(T), total);
      auto const payloads = (total - head) * sizeof(T) / unit;
      tail = head + payloads * unit / sizeof(T);
      if (unit == 16) {
        reduceAligned<4, U, R, Ranks>(team, blocks, plan, head, payloads, epilogue);
      } else {
        reduceAligned<narrow / 4, U, R, Ranks>(team, blocks, plan, head, payloads, epilogue);
      }
    }
  }
  if (head != 0) PullSchedule::reduce<1, R, Ranks>(team, blocks, PlanSection<P>{plan, 0, head}, epilogue);
  if (tail != total)
    PullSchedule::reduce<1, R, Ranks>(team, blocks, PlanSection<P>{plan, tail, total - tail}, epilogue);
}

}  // namespace impl

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
