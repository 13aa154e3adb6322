// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All-gather: everybody's `out` ends with the inputs of all ranks, by rank.
//
//   AllGather<OneExchange, PacketTransport<LL128>>{team}(thisGrid(), View{x, n}, View{y, n * ranks});
//   AllGather<PushSchedule, PeerMemory<>>{team}(thisGrid(), View{x, n}, SymmetricView<T>(window, offset, n * ranks));
//   AllGather<SwitchSchedule, SwitchMemory<4>>{team}(thisGrid(), View{x, n}, SymmetricView<T>(...));
//
// Called by all threads of the given blocks, on every rank, with the same blocks and type. Any count and alignment;
// `in` may be this rank's part of `out`, and otherwise does not overlap it. Parts of different counts are told by
// VariableParts, the same on all ranks. With OneExchange each thread has written its own slots of `out` on return, with
// PushSchedule the blocks have; who reads others' parts meets them first. The input may be changed at once.
#pragma once

#include <type_traits>

#include "mscclpp/algorithms/core/prologue.hpp"
#include "mscclpp/algorithms/core/requirements.hpp"
#include "mscclpp/algorithms/schedule/one_exchange.hpp"
#include "mscclpp/algorithms/schedule/plans.hpp"
#include "mscclpp/algorithms/schedule/push.hpp"
#include "mscclpp/algorithms/schedule/switch.hpp"
#include "mscclpp/device/symmetric_view.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

template <class Schedule, class Tr, int Ranks = 0>
class AllGather : public Composed<Collective::allGather, Schedule, Tr> {
 public:
  MSCCLPP_DEVICE explicit AllGather(DeviceTeam const& team) : team_(team) {}

  template <BlockSet B, Input In, class T>
  MSCCLPP_DEVICE void operator()(B const& blocks, In const& in, View<T> out) const {
    auto const count = viewOf(in).count;
    requireSameCount(team_, count * static_cast<std::size_t>(team_.size), out.count);
    (*this)(blocks, in, out.data, EqualParts{count});
  }

  template <BlockSet B, Input In, class T, Parts P>
  requires SessionTransport<Tr> MSCCLPP_DEVICE void operator()(B const& blocks, In const& in, T* out,
                                                               P const& parts) const {
    awaitParts<P>();
    check(in, out, parts);
    Schedule::template moveParts<Tr, Ranks>(team_, blocks,
                                            GatherToAllPlan<SourceFor<T, In>, P>{sourceOf<T>(in), out, parts});
  }

  template <BlockSet B, Input In, class T>
  MSCCLPP_DEVICE void operator()(B const& blocks, In const& in, SymmetricView<T> const& out) const {
    auto const count = viewOf(in).count;
    requireSameCount(team_, count * static_cast<std::size_t>(team_.size), out.count());
    (*this)(blocks, in, out, EqualParts{count});
  }

  template <BlockSet B, Input In, class T, Parts P>
  requires DirectTransport<Tr> MSCCLPP_DEVICE void operator()(B const& blocks, In const& in,
                                                              SymmetricView<T> const& out, P const& parts) const {
    awaitParts<P>();
    out.check(team_.watch, team_.size);
    check(in, out.at(team_.rank), parts);
    auto const offset = static_cast<std::uint64_t>(parts.offset(team_.rank));
    Schedule::template run<Tr, Ranks>(team_, blocks, Pushed<SourceFor<T, In>>{sourceOf<T>(in), out, offset});
  }

 private:
  template <ElementSource S>
  struct Pushed {
    using Element = typename S::Element;
    static constexpr bool sameToAll = true;
    S in;
    SymmetricView<Element> const& out;
    std::uint64_t offset;

    MSCCLPP_DEVICE S send(int) const { return in; }
    MSCCLPP_DEVICE Element* target(int peer) const { return out.at(peer) + offset; }
    MSCCLPP_DEVICE bool hasMulticast() const { return out.multicast() != nullptr; }
    MSCCLPP_DEVICE Element* multicastTarget() const { return out.multicast() + offset; }
  };

  template <class In, class T, class P>
  MSCCLPP_DEVICE void check(In const& in, T* out, P const& parts) const {
    static_assert(givesElements<T, In>,
                  "AllGather: input and output have the same element type, or a prologue converts");
    requireTeamSize(team_, Ranks);
    requireSameCount(team_, viewOf(in).count, parts.count(team_.rank));
    requireAligned(team_, viewOf(in).data, out);
  }

  DeviceTeam const& team_;
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
