// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The arithmetic part of a reducing collective: payloads of all ranks become accumulators, one result, and the value
// that the epilogue leaves.
//
// Contributions are combined in rank order, from rank 0 on, whoever computes: every rank gets the same bits.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include "mscclpp/algorithms/core/concepts.hpp"
#include "mscclpp/algorithms/core/partition.hpp"
#include "mscclpp/device/number.hpp"
#include "mscclpp/device/reduce_op.hpp"
#include "mscclpp/device/team.hpp"
#include "mscclpp/device/vector.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

// Element type T, combined as Acc by Op, over `Ranks` ranks (0: known at run time only).
template <Number T, class Acc, class Op, int Ranks>
struct Reduction {
  static_assert(ReduceOperation<Op, Acc>,
                "a reduction operation needs op(a, b) and op.finish(total, count) on the accumulator type");

  using Operation = Op;
  using Accumulator = Acc;
  static constexpr unsigned elementBytes = sizeof(T);

  template <unsigned Words>
  using Accumulators = Vector<Acc, ElementsOf<T, Words>::size>;

  // A payload's elements as accumulators; narrow() rounds them to T again.
  template <unsigned Words>
  MSCCLPP_DEVICE static Accumulators<Words> widen(Payload<Words> const& payload) {
    return convert<Acc>(unpack<T>(payload));
  }

  template <unsigned Words>
  MSCCLPP_DEVICE static Payload<Words> narrow(Accumulators<Words> const& values) {
    return pack(convert<T>(values));
  }

  // Takes in the contribution of `rank`; called for all ranks in their order.
  template <class Values>
  MSCCLPP_DEVICE static void combine(Values& totals, Values const& contribution, int rank) {
    totals = rank == 0 ? contribution : map(totals, contribution, Op{});
  }
  template <class Values>
  MSCCLPP_DEVICE static void finish(Values& totals, int ranks) {
    totals = map(totals, [ranks](Acc total) { return Op{}.finish(total, ranks); });
  }

  // The results of `Batch` payloads at `slots` of rows `firstRow`..: own[i] from this rank, the others' from `session`.
  template <unsigned Batch, class Session, unsigned Words>
  MSCCLPP_DEVICE static void fold(DeviceTeam const& team, Session const& session, unsigned firstRow,
                                  std::uint32_t const (&slots)[Batch], bool const (&active)[Batch],
                                  Payload<Words> const (&own)[Batch], Accumulators<Words> (&totals)[Batch]) {
    // Ranks whose payloads are received together: all, where the number is known.
    constexpr unsigned together = Ranks != 0 ? Ranks : 1;
    int const ranks = Ranks != 0 ? Ranks : team.size;
    for (int first = 0; first < ranks; first += static_cast<int>(together)) {
      Source sources[together * Batch];
      Payload<Words> values[together * Batch];
      MSCCLPP_UNROLL
      for (unsigned r = 0; r < together; ++r) {
        MSCCLPP_UNROLL
        for (unsigned i = 0; i < Batch; ++i) {
          int const peer = first + static_cast<int>(r);
          sources[r * Batch + i] = {peer, firstRow + static_cast<unsigned>(peer), slots[i],
                                    active[i] && peer != team.rank};
        }
      }
      session.receive(sources, values);
      MSCCLPP_UNROLL
      for (unsigned r = 0; r < together; ++r) {
        MSCCLPP_UNROLL
        for (unsigned i = 0; i < Batch; ++i) {
          int const peer = first + static_cast<int>(r);
          auto part = values[r * Batch + i];
          if (peer == team.rank) part = own[i];  // a copy: a choice of references would put both into memory
          combine(totals[i], widen(part), peer);
        }
      }
    }
    MSCCLPP_UNROLL
    for (unsigned i = 0; i < Batch; ++i) finish(totals[i], ranks);
  }

  // Slots that fill up a share or a line hold no elements, and the epilogue is not asked about them. Stores see to that
  // themselves, so nothing is looked up where there is none.
  template <class Epilogue, class Window>
  MSCCLPP_DEVICE static bool isPastEnd(Window const& window, std::uint32_t offset) {
    if constexpr (std::same_as<Epilogue, Identity>) {
      return false;
    } else {
      return offset >= window.bytes;
    }
  }

  // What goes into the output: the epilogue's answer for `values`, which begin at element `index`. The first `bytes` of
  // the answer are stored; behind them are no elements, or such that another thread asks about.
  template <unsigned Words, class Epilogue>
  MSCCLPP_DEVICE static Payload<Words> conclude(Epilogue const& epilogue, Accumulators<Words> const& values,
                                                std::uint64_t index, std::uint64_t bytes) {
    if constexpr (std::same_as<Epilogue, Identity>) {
      return narrow<Words>(values);
    } else if constexpr (std::invocable<Epilogue const&, Accumulators<Words>, std::uint64_t, unsigned>) {
      auto const stored = static_cast<unsigned>(minimum<std::uint64_t>(bytes, Words * 4)) / elementBytes;
      return pack(convert<T>(epilogue(values, index, stored)));
    } else if constexpr (std::invocable<Epilogue const&, Accumulators<Words>, std::uint64_t>) {
      return pack(convert<T>(epilogue(values, index)));
    } else {
      static_assert(std::invocable<Epilogue const&, Accumulators<Words>>,
                    "an epilogue is called with a Vector of accumulators, and optionally the index of its first "
                    "element and how many of them are stored");
      return pack(convert<T>(epilogue(values)));
    }
  }
};

// The same with the accumulator that collectives are given: void is the element type's default.
template <Number T, class Acc, class Op, int Ranks>
using ReductionFor = Reduction<T, std::conditional_t<std::is_void_v<Acc>, DefaultAccumulator<T>, Acc>, Op, Ranks>;

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
