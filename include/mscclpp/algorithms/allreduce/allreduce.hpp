// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All-reduce: every rank ends with the reduction of all ranks' inputs, the same bits everywhere.
//
//   AllReduce<TwoShot, PacketTransport<LL128>, Sum> allReduce{team};
//   allReduce(thisGrid(), View{x, n}, View{y, n}, [=](auto v) { return v * scale; });
//
// Called by all threads of the given blocks, on every rank of the team, with the same blocks, count and type. Any count
// and alignment; `in` and `out` may be the same buffer, and otherwise do not overlap. On return this thread's part of
// `out` is written; a barrier over the blocks is the caller's if it reads others' parts. The input may be changed at
// once. Calls may follow each other in one kernel, and with other collectives of the team.
//
// The epilogue runs in registers before the store, on every rank, on Vectors of the accumulator type; with TwoShot the
// values were rounded to the element type on their way.
//
// Template arguments: Ranks fixes the team's size (faster; 0 is any), Acc the type that sums are kept in.
#pragma once

#include <cstdint>
#include <type_traits>

#include "mscclpp/algorithms/allreduce/one_shot.hpp"
#include "mscclpp/algorithms/allreduce/two_shot.hpp"
#include "mscclpp/algorithms/transport/memory_transport.hpp"
#include "mscclpp/algorithms/transport/packet_transport.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

template <class Schedule, Transport Tr, class Op, int Ranks = 0, class Acc = void>
class AllReduce {
 public:
  MSCCLPP_DEVICE explicit AllReduce(DeviceTeam const& team) : team_(team) {}

  template <BlockSet B, class In, class T, class Epilogue = Identity>
  MSCCLPP_DEVICE void operator()(B const& blocks, View<In> in, View<T> out, Epilogue const& epilogue = {}) const {
    static_assert(std::same_as<std::remove_const_t<In>, T>, "AllReduce: input and output have the same element type");
    static_assert(Number<T>, "AllReduce: elements are float, double, Half, BFloat16, FP8 or integers of 8 to 64 bits");
    static_assert(sizeof(T) <= Tr::granule,
                  "AllReduce: elements of this type do not fit into a packet of this transport");
    using A = std::conditional_t<std::is_void_v<Acc>, DefaultAccumulator<T>, Acc>;
    require(Ranks == 0 || team_.size == Ranks, team_.watch, -1, std::uint64_t(layout::Misuse::teamSize),
            static_cast<std::uint64_t>(Ranks), static_cast<std::uint64_t>(team_.size));
    require(in.count == out.count, team_.watch, -1, std::uint64_t(layout::Misuse::countMismatch), in.count, out.count);
    auto const astray =
        (reinterpret_cast<std::uintptr_t>(in.data) | reinterpret_cast<std::uintptr_t>(out.data)) % sizeof(T);
    require(astray == 0, team_.watch, -1, std::uint64_t(layout::Misuse::alignment), sizeof(T), astray);
    Schedule::template run<Tr, Reduction<T, A, Op, Ranks>, Ranks>(team_, blocks, View<T const>{in.data, in.count}, out,
                                                                  epilogue);
  }

  // What the team's workspace must offer for launches up to this shape. Less also works, in more rounds.
  static constexpr layout::WorkspaceRequirement requirement(std::uint32_t ranks, std::uint32_t blocks,
                                                            std::uint32_t threads) {
    return Tr::requirement(blocks, threads, Schedule::rows(ranks));
  }

 private:
  DeviceTeam const& team_;
};

// The same as a kernel of its own. With LaunchShape::overlapPrevious consecutive launches overlap their starts.
template <class Collective, Number T, class Epilogue = Identity>
struct AllReduceKernel {
  static constexpr unsigned maxThreads = 512;
  Epilogue epilogue{};

  MSCCLPP_DEVICE void operator()(T const* in, T* out, std::size_t count, DeviceTeam const& team) const {
    allowNextKernel();
    Collective{team}(thisGrid(), View{in, count}, View{out, count}, epilogue);
    // The collective has waited, unless there was nothing to do; a kernel must not end before the one ahead of it.
    waitForPreviousKernel();
  }
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
