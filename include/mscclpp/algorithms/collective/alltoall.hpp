// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All-to-all: part p of this rank's `in` becomes the part of this rank in `out` of rank p.
//
//   AllToAll<OneExchange, PacketTransport<LL16>>{team}(thisGrid(), View{x, n * ranks}, View{y, n * ranks});
//   AllToAll<PushSchedule, PeerMemory<>>{team}(thisGrid(), View{x, n * ranks}, SymmetricView<T>(...));
//   AllToAll<OneExchange, Tr>{team}(thisGrid(), x, inParts, y, outParts);
//
// Called by all threads of the given blocks, on every rank, with the same blocks and type. Any count and alignment.
// With OneExchange `in` and `out` may be the same buffer where all parts have one size; otherwise they do not overlap.
// Parts of different counts are told by VariableParts on each side: `largest` of the parts of any pair, the same on all
// ranks, or agreeOnLargest() first. What is written on return: as for AllGather.
#pragma once

#include <type_traits>

#include "mscclpp/algorithms/collective/agree.hpp"
#include "mscclpp/algorithms/core/prologue.hpp"
#include "mscclpp/algorithms/core/requirements.hpp"
#include "mscclpp/algorithms/schedule/one_exchange.hpp"
#include "mscclpp/algorithms/schedule/plans.hpp"
#include "mscclpp/algorithms/schedule/push.hpp"
#include "mscclpp/device/symmetric_view.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

template <class Schedule, class Tr, int Ranks = 0>
class AllToAll : public Composed<Collective::allToAll, Schedule, Tr> {
 public:
  MSCCLPP_DEVICE explicit AllToAll(DeviceTeam const& team) : team_(team) {}

  template <BlockSet B, Input In, class T>
  requires SessionTransport<Tr> MSCCLPP_DEVICE void operator()(B const& blocks, In const& in, View<T> out) const {
    auto const count = viewOf(in).count;
    requireSameCount(team_, count, out.count);
    auto const parts = equalParts(count);
    (*this)(blocks, in, parts, out.data, parts);
  }

  template <BlockSet B, class In, class T, Parts P>
  requires SessionTransport<Tr> MSCCLPP_DEVICE void operator()(B const& blocks, In const& in, P const& inParts, T* out,
                                                               P const& outParts) const {
    awaitParts<P>();
    check(asInput(in), out);
    requireSameCount(team_, inParts.largest(), outParts.largest());
    using Plan = AllToAllPlan<SourceFor<T, In>, P>;
    Schedule::template moveParts<Tr, Ranks>(team_, blocks,
                                            Plan{sourceOf<T>(asInput(in)), out, inParts, outParts, inParts.largest()});
  }

  template <BlockSet B, Input In, class T>
  requires DirectTransport<Tr> MSCCLPP_DEVICE void operator()(B const& blocks, In const& in,
                                                              SymmetricView<T> const& out) const {
    auto const count = viewOf(in).count;
    out.check(team_.watch, team_.size);
    requireSameCount(team_, count, out.count());
    check(in, out.at(team_.rank));
    auto const parts = equalParts(count);
    using Plan = Pushed<SourceFor<T, In>>;
    Schedule::template run<Tr, Ranks>(team_, blocks, Plan{sourceOf<T>(in), out, parts, parts.offset(team_.rank)});
  }

 private:
  template <ElementSource S>
  struct Pushed {
    using Element = typename S::Element;
    static constexpr bool sameToAll = false;
    S in;
    SymmetricView<Element> const& out;
    EqualParts parts;
    std::uint64_t offset;

    MSCCLPP_DEVICE S send(int peer) const { return partOf(in, parts, peer); }
    MSCCLPP_DEVICE Element* target(int peer) const { return out.at(peer) + offset; }
  };

  MSCCLPP_DEVICE EqualParts equalParts(std::size_t count) const { return {requireWholeParts<Ranks>(team_, count)}; }

  template <class In, class T>
  MSCCLPP_DEVICE void check(In const& in, T* out) const {
    static_assert(givesElements<T, In>,
                  "AllToAll: input and output have the same element type, or a prologue converts");
    requireTeamSize(team_, Ranks);
    requireAligned(team_, viewOf(in).data, out);
  }

  DeviceTeam const& team_;
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
