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
// Without copies, where buffers lie in symmetric memory (device/symmetric_view.hpp):
//
//   AllReduce<TwoShotPush, MemoryTransport<8>, Sum>{team}(thisGrid(), View{x, n}, SymmetricView<T>(...));
//   AllReduce<RingSchedule, StagePieces<>, Sum>{team}(thisGrid(), View{x, n}, SymmetricView<T>(...));
//   AllReduce<PullSchedule, PeerMemory<2>, Sum>{team}(thisGrid(), SymmetricView<T>(...), SymmetricView<T>(...));
//   AllReduce<SwitchSchedule, SwitchMemory<4>, Sum>{team}(thisGrid(), SymmetricView<T>(...), SymmetricView<T>(...));
//
// Then on return the blocks have written `out`, and who reads others' parts meets them first; with PullSchedule the
// same goes for a change of the input, and with SwitchSchedule.
//
// Through the switch of devices that have one (transport/switch_memory.hpp), with other buffers too:
//
//   AllReduce<OneShot, SwitchPackets<LL8>, Sum>{team}(thisGrid(), View{x, n}, View{y, n});
//   AllReduce<SwitchPipeline<WarpRoles>, SwitchStage<4>, Sum>{team}(thisGrid(), View{x, n}, View{y, n});
//
// Quantised on the way, with a bound of the error (transport/wire.hpp); nothing chooses it but its caller:
//
//   AllReduce<TwoShot, Wire<Float8E4M3, 64>, Sum>{team}(thisGrid(), View{x, n}, View{y, n});
//
// The input may have a prologue (algorithms/core/prologue.hpp), where this rank reads it.
//
// The epilogue runs in registers before the store, on every rank, on Vectors of the accumulator type; with TwoShot the
// values were rounded to the element type on their way, and without copies it runs on one rank for each element. It is
// told, if it takes that, the index of the Vector's first element and how many of its elements are stored: where it
// stores something itself, it leaves out the others, which are padding or another thread's.
//
// Template arguments: Ranks fixes the team's size (faster; 0 is any), Acc the type that sums are kept in.
#pragma once

#include <cstdint>
#include <type_traits>

#include "mscclpp/algorithms/core/prologue.hpp"
#include "mscclpp/algorithms/core/requirements.hpp"
#include "mscclpp/algorithms/schedule/one_shot.hpp"
#include "mscclpp/algorithms/schedule/pull.hpp"
#include "mscclpp/algorithms/schedule/ring.hpp"
#include "mscclpp/algorithms/schedule/switch.hpp"
#include "mscclpp/algorithms/schedule/switch_pipeline.hpp"
#include "mscclpp/algorithms/schedule/two_shot.hpp"
#include "mscclpp/algorithms/schedule/two_shot_push.hpp"
#include "mscclpp/algorithms/schedule/two_shot_quantised.hpp"
#include "mscclpp/algorithms/transport/memory_transport.hpp"
#include "mscclpp/algorithms/transport/packet_transport.hpp"
#include "mscclpp/algorithms/transport/wire.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

template <class Schedule, class Tr, class Op, int Ranks = 0, class Acc = void>
class AllReduce : public Composed<Collective::allReduce, Schedule, Tr> {
 public:
  MSCCLPP_DEVICE explicit AllReduce(DeviceTeam const& team) : team_(team) {}

  template <BlockSet B, Input In, class T, class Epilogue = Identity>
  requires SessionTransport<Tr> MSCCLPP_DEVICE void operator()(B const& blocks, In const& in, View<T> out,
                                                               Epilogue const& epilogue = {}) const {
    check(in, out);
    Schedule::template run<Tr, ReductionOf<T>, Ranks>(team_, blocks, sourceOf<T>(in), out, epilogue);
  }

  // Quantised packets.
  template <BlockSet B, Input In, class T, class Epilogue = Identity>
  requires WireTransport<Tr> MSCCLPP_DEVICE void operator()(B const& blocks, In const& in, View<T> out,
                                                            Epilogue const& epilogue = {}) const {
    static_assert(std::is_same_v<Schedule, TwoShot>, "AllReduce: Wire goes with TwoShot");
    check(in, out);
    TwoShotQuantised::run<Tr, ReductionOf<T>, Ranks>(team_, blocks, sourceOf<T>(in), out, epilogue);
  }

  // The output is symmetric, and peers store into it.
  template <BlockSet B, Input In, class T, class Epilogue = Identity>
  requires(SessionTransport<Tr> || StagePieceTransport<Tr>) MSCCLPP_DEVICE void operator()(
      B const& blocks, In const& in, SymmetricView<T> const& out, Epilogue const& epilogue = {}) const {
    out.check(team_.watch, team_.size);
    check(in, out.own());
    Schedule::template run<Tr, ReductionOf<T>, Ranks>(team_, blocks, sourceOf<T>(in), out, epilogue);
  }

  // Both are symmetric: peers read the input and store into the output.
  template <BlockSet B, class T, class Epilogue = Identity>
  requires DirectTransport<Tr> MSCCLPP_DEVICE void operator()(B const& blocks, SymmetricView<T> const& in,
                                                              SymmetricView<T> const& out,
                                                              Epilogue const& epilogue = {}) const {
    in.check(team_.watch, team_.size);
    out.check(team_.watch, team_.size);
    check(in.own(), out.own());
    auto const share = shareOf<T>(in.count(), static_cast<unsigned>(team_.size), static_cast<unsigned>(team_.rank));
    Schedule::template run<Tr, ReductionOf<T>, Ranks>(team_, blocks, Pulled<T>{in, out, share}, epilogue);
  }

  // Any buffers, by way of the workspaces and the switch.
  template <BlockSet B, Input In, class T, class Epilogue = Identity>
  requires StagedTransport<Tr> MSCCLPP_DEVICE void operator()(B const& blocks, In const& in, View<T> out,
                                                              Epilogue const& epilogue = {}) const {
    check(in, out);
    Schedule::template run<Tr, ReductionOf<T>, Ranks>(team_, blocks, sourceOf<T>(in), out, epilogue);
  }

 private:
  template <class T>
  using ReductionOf = ReductionFor<T, Acc, Op, Ranks>;

  // This rank's share of everybody's input goes to everybody.
  template <class T>
  struct Pulled {
    using Element = T;
    SymmetricView<T> const& in;
    SymmetricView<T> const& out;
    Share share;

    MSCCLPP_DEVICE View<T const> source(int rank) const { return {in.at(rank) + share.first, share.count}; }
    MSCCLPP_DEVICE T* target(int rank) const { return out.at(rank) + share.first; }
    MSCCLPP_DEVICE bool hasMulticast() const { return in.multicast() != nullptr && out.multicast() != nullptr; }
    MSCCLPP_DEVICE T const* multicastSource() const { return in.multicast() + share.first; }
    MSCCLPP_DEVICE T* multicastTarget() const { return out.multicast() + share.first; }
    MSCCLPP_DEVICE std::uint64_t firstElement() const { return share.first; }
  };

  template <class In, class T>
  MSCCLPP_DEVICE void check(In const& in, View<T> out) const {
    static_assert(givesElements<T, In>,
                  "AllReduce: input and output have the same element type, or a prologue converts");
    static_assert(Number<T>, "AllReduce: elements are float, double, Half, BFloat16, FP8 or integers of 8 to 64 bits");
    static_assert(sizeof(T) <= Tr::granule,
                  "AllReduce: elements of this type do not fit into a packet of this transport");
    requireTeamSize(team_, Ranks);
    auto const from = viewOf(in);
    requireSameCount(team_, from.count, out.count);
    requireAligned(team_, from.data, out.data);
  }

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
