// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What all moving steps share: how the values of several sources are combined, and which threads take a step's slots.
#pragma once

#include <cstdint>

#include "mscclpp/device/group.hpp"
#include "mscclpp/device/number.hpp"
#include "mscclpp/device/reduce_op.hpp"
#include "mscclpp/device/view.hpp"
#include "mscclpp/dsl/detail/lower/places.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace dsl_impl {

template <Number T, class Op, class Shape>
class StepValues : public PlanPlaces<T, Shape> {
 public:
  MSCCLPP_DEVICE StepValues(layout::PlanHandle const& plan, layout::WindowHandle const& in,
                            layout::WindowHandle const& out, PlanCall<T> const& call, Op const& op, std::uint64_t done)
      : PlanPlaces<T, Shape>(plan, in, out, call, done), op_(op) {}

 protected:
  template <unsigned Words>
  using Totals = Vector<DefaultAccumulator<T>, ElementsOf<T, Words>::size>;

  MSCCLPP_DEVICE Op const& op() const { return op_; }

  // The thread that takes the first slot of a step.
  struct Start {
    unsigned thread;
    std::uint32_t filled;  // slots of a chunk's place: the longest's, in whole warps
  };
  // Behind the chunks of the steps ahead, as if they had as many slots as this step's longest, where the block has
  // threads for all of them; else some warps on, so that steps begin at different ones.
  MSCCLPP_DEVICE static Start startOf(layout::PlanStep const& step, std::uint32_t slots) {
    auto const threads = arch::blockThreads();
    auto const filled = roundUp(slots, arch::warpSize);
    if (step.ahead == 0) return {0, filled};
    auto const chunks = step.chunksAhead + static_cast<unsigned>(step.chunks);
    if (filled <= threads && chunks * filled <= threads) return {step.chunksAhead * filled, filled};
    // Not by a remainder, which costs as much as all the rest of this.
    unsigned start = step.ahead * arch::warpSize;
    while (start >= threads) start -= threads;
    return {start, filled};
  }

  // All threads of the block, counted from thread `first`, which then is the next piece's, if this one leaves threads
  // without work.
  MSCCLPP_DEVICE static ThreadRange threadsFrom(unsigned& first, std::uint32_t slots) {
    auto const threads = arch::blockThreads();
    auto const thread = arch::threadIndex() + threads - first;
    auto const group = threadRange(thread < threads ? thread : thread - threads, threads);
    if (slots < threads) {
      first += roundUp(slots, arch::warpSize);
      if (first >= threads) first -= threads;
    }
    return group;
  }

  template <class U>
  MSCCLPP_DEVICE View<U> viewOf(layout::PlanOperand const& operand, int chunk, Piece const& piece) const {
    return {reinterpret_cast<U*>(this->place(operand, chunk, piece.first).address), piece.bytes() / sizeof(T)};
  }
  // The contribution of source `s`, in the order of sources.
  template <unsigned Words>
  MSCCLPP_DEVICE void add(layout::PlanStep const& step, int s, Payload<Words> const& value,
                          Totals<Words>& total) const {
    auto const contribution = convert<DefaultAccumulator<T>>(unpack<T>(value));
    total = s == 0 ? contribution : reduced(step, total, contribution);
  }
  template <unsigned Words>
  MSCCLPP_DEVICE Payload<Words> conclude(layout::PlanStep const& step, Totals<Words> total) const {
    if (step.concludes && static_cast<dsl::ReduceKind>(step.reduce) == dsl::ReduceKind::asCalled) {
      int const ranks = this->shape().ranks;
      total = map(total, [this, ranks](auto one) { return op_.finish(one, ranks); });
    }
    return pack(convert<T>(total));
  }

 private:
  template <class Values>
  MSCCLPP_DEVICE Values reduced(layout::PlanStep const& step, Values const& a, Values const& b) const {
    switch (static_cast<dsl::ReduceKind>(step.reduce)) {
      case dsl::ReduceKind::sum:
        return map(a, b, Sum{});
      case dsl::ReduceKind::prod:
        return map(a, b, Prod{});
      case dsl::ReduceKind::min:
        return map(a, b, Min{});
      case dsl::ReduceKind::max:
        return map(a, b, Max{});
      default:
        return map(a, b, op_);
    }
  }

  Op op_;
};

}  // namespace dsl_impl
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
