// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All-to-all: part p of this rank's `in` becomes the part of this rank in `out` of rank p.
//
//   AllToAll<OneExchange, PacketTransport<LL16>>{team}(thisGrid(), View{x, n * ranks}, View{y, n * ranks});
//   AllToAll<PushSchedule, PeerMemory<>>{team}(thisGrid(), View{x, n * ranks}, SymmetricView<T>(...));
//   AllToAll<OneExchange, Tr>{team}(thisGrid(), x, inParts, y, outParts);
//   AllToAll<PushSchedule, PeerMemory<>>{team}(thisGrid(), Permuted{Strided{...}, Strided{...}}, ...);
//
// Called by all threads of the given blocks, on every rank, with the same blocks and type. Any count and alignment.
// With OneExchange `in` and `out` may be the same buffer where all parts have one size; otherwise they do not overlap.
// Parts of different counts are told by VariableParts on each side: `largest` of the parts of any pair, the same on all
// ranks, or agreeOnLargest() first. Parts that lie strewn, as sequences and heads of attention do, are told by Strided
// (algorithms/core/strided.hpp); several such tensors go in one exchange. What is written on return: as for AllGather.
#pragma once

#include <type_traits>

#include "mscclpp/algorithms/collective/agree.hpp"
#include "mscclpp/algorithms/core/prologue.hpp"
#include "mscclpp/algorithms/core/requirements.hpp"
#include "mscclpp/algorithms/core/strided.hpp"
#include "mscclpp/algorithms/schedule/one_exchange.hpp"
#include "mscclpp/algorithms/schedule/plans.hpp"
#include "mscclpp/algorithms/schedule/push.hpp"
#include "mscclpp/algorithms/schedule/push_strided.hpp"
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

  // Tensors in one exchange; in and out do not overlap.
  template <BlockSet B, class... In, class... T>
  requires(sizeof...(T) != 0 && DirectTransport<Tr> && !impl::isBulkMemory<Tr>) MSCCLPP_DEVICE void operator()(
      B const& blocks, Permuted<In, T> const&... tensors) const {
    (check(tensors), ...);
    DirectRound const round(team_, blocks);
    (StridedPush::run<Tr::unroll, Ranks>(team_, blocks, tensors), ...);
    round.finish();
  }

 private:
  template <class In, class T>
  MSCCLPP_DEVICE void check(Permuted<In, T> const& tensor) const {
    auto const& in = tensor.in;
    auto const& out = tensor.out;
    check(in.view, out.view.at(team_.rank));
    out.view.check(team_.watch, team_.size);
    auto const ranks = static_cast<std::size_t>(team_.size);
    requireSameCount(team_, in.view.count, in.before * in.behind * ranks);
    requireSameCount(team_, in.view.count, out.view.count());
    requireSameCount(team_, in.view.count, out.before * out.behind * ranks);
    auto const larger = in.before > out.before ? in.before : out.before;
    auto const smaller = in.before > out.before ? out.before : in.before;
    require(in.view.count == 0 || larger % smaller == 0, team_.watch, -1, std::uint64_t(layout::Misuse::strewnParts),
            larger, smaller);
  }

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
