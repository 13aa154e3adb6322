// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reduce-scatter: `out` of rank r ends with the reduction of part r of all ranks' inputs.
//
//   ReduceScatter<OneExchange, PacketTransport<LL128>, Sum>{team}(thisGrid(), View{x, n * ranks}, View{y, n});
//   ReduceScatter<PullSchedule, PeerMemory<2>, Sum>{team}(thisGrid(), SymmetricView<T>(...), View{y, n});
//   ReduceScatter<SwitchSchedule, SwitchMemory<4>, Sum>{team}(thisGrid(), SymmetricView<T>(...), View{y, n});
//
// Called by all threads of the given blocks, on every rank, with the same blocks and type. Any count and alignment;
// `out` may be this rank's part of `in`, and otherwise does not overlap it. Contributions are combined in rank order,
// but through a switch, which has an order of its own. Parts of different counts are told by VariableParts, the same on
// all ranks. The epilogue runs in registers before the store, on Vectors of the accumulator type. With PullSchedule the
// input may be changed only when the blocks have met; with OneExchange at once.
#pragma once

#include <type_traits>

#include "mscclpp/algorithms/core/prologue.hpp"
#include "mscclpp/algorithms/core/requirements.hpp"
#include "mscclpp/algorithms/schedule/one_exchange.hpp"
#include "mscclpp/algorithms/schedule/plans.hpp"
#include "mscclpp/algorithms/schedule/pull.hpp"
#include "mscclpp/algorithms/schedule/switch.hpp"
#include "mscclpp/device/symmetric_view.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

template <class Schedule, class Tr, class Op, int Ranks = 0, class Acc = void>
class ReduceScatter : public Composed<Collective::reduceScatter, Schedule, Tr> {
 public:
  MSCCLPP_DEVICE explicit ReduceScatter(DeviceTeam const& team) : team_(team) {}

  template <BlockSet B, Input In, class T, class Epilogue = Identity>
  requires SessionTransport<Tr> MSCCLPP_DEVICE void operator()(B const& blocks, In const& in, View<T> out,
                                                               Epilogue const& epilogue = {}) const {
    requireSameCount(team_, viewOf(in).count, out.count * static_cast<std::size_t>(team_.size));
    (*this)(blocks, in, EqualParts{out.count}, out.data, epilogue);
  }

  template <BlockSet B, class In, class T, Parts P, class Epilogue = Identity>
  requires SessionTransport<Tr> MSCCLPP_DEVICE void operator()(B const& blocks, In const& in, P const& parts, T* out,
                                                               Epilogue const& epilogue = {}) const {
    awaitParts<P>();
    check<T>(asInput(in), out);
    using Plan = ReduceScatterPlan<SourceFor<T, In>, P>;
    Schedule::template reduceParts<Tr, ReductionOf<T>, Ranks>(
        team_, blocks, Plan{sourceOf<T>(asInput(in)), out, parts, team_.rank}, epilogue);
  }

  template <BlockSet B, class T, class Epilogue = Identity>
  requires DirectTransport<Tr> MSCCLPP_DEVICE void operator()(B const& blocks, SymmetricView<T> const& in, View<T> out,
                                                              Epilogue const& epilogue = {}) const {
    in.check(team_.watch, team_.size);
    requireSameCount(team_, in.count(), out.count * static_cast<std::size_t>(team_.size));
    check<T>(in.own(), out.data);
    Schedule::template run<Tr, ReductionOf<T>, Ranks>(team_, blocks, Pulled<T>{in, out, team_.rank}, epilogue);
  }

 private:
  template <class T>
  using ReductionOf = ReductionFor<T, Acc, Op, Ranks>;

  template <class T>
  struct Pulled {
    using Element = T;
    SymmetricView<T> const& in;
    View<T> out;
    int rank;

    MSCCLPP_DEVICE View<T const> source(int ofRank) const {
      return {in.at(ofRank) + static_cast<std::size_t>(rank) * out.count, out.count};
    }
    MSCCLPP_DEVICE T* target(int ofRank) const { return ofRank == rank ? out.data : nullptr; }
    MSCCLPP_DEVICE std::uint64_t firstElement() const { return 0; }
    MSCCLPP_DEVICE bool hasMulticast() const { return in.multicast() != nullptr; }
    MSCCLPP_DEVICE T const* multicastSource() const {
      return in.multicast() + static_cast<std::size_t>(rank) * out.count;
    }
    MSCCLPP_DEVICE T* multicastTarget() const { return nullptr; }
  };

  template <class T, class In>
  MSCCLPP_DEVICE void check(In const& in, T* out) const {
    static_assert(givesElements<T, In>,
                  "ReduceScatter: input and output have the same element type, or a prologue converts");
    static_assert(fitsTransport<T, Tr>, "ReduceScatter: elements of this type do not fit into a packet, or are none");
    requireTeamSize(team_, Ranks);
    requireAligned(team_, viewOf(in).data, out);
  }

  DeviceTeam const& team_;
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
