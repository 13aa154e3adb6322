// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All-to-all: part p of this rank's `in` becomes the part of this rank in `out` of rank p.
//
//   AllToAll<OneExchange, PacketTransport<LL16>>{team}(thisGrid(), View{x, n * ranks}, View{y, n * ranks});
//   AllToAll<Push, PeerMemory<>>{team}(thisGrid(), View{x, n * ranks}, SymmetricView<T>(window, offset, n * ranks));
//   AllToAll<OneExchange, Tr>{team}(thisGrid(), x, inParts, y, outParts);
//
// Called by all threads of the given blocks, on every rank, with the same blocks and type. Any count and alignment.
// With OneExchange `in` and `out` may be the same buffer where all parts have one size; otherwise they do not overlap.
// Parts of different counts are told by VariableParts on each side: `largest` of the parts of any pair, the same on all
// ranks, or agreeOnLargest() first. What is written on return: as for AllGather.
#pragma once

#include <type_traits>

#include "mscclpp/algorithms/agree.hpp"
#include "mscclpp/algorithms/requirements.hpp"
#include "mscclpp/algorithms/schedule/one_exchange.hpp"
#include "mscclpp/algorithms/schedule/plans.hpp"
#include "mscclpp/algorithms/schedule/push.hpp"
#include "mscclpp/device/symmetric_view.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

template <class Schedule, class Tr, int Ranks = 0>
class AllToAll : public RowPerRank<Tr> {
 public:
  MSCCLPP_DEVICE explicit AllToAll(DeviceTeam const& team) : team_(team) {}

  template <BlockSet B, class In, class T>
  requires SessionTransport<Tr> MSCCLPP_DEVICE void operator()(B const& blocks, View<In> in, View<T> out) const {
    requireSameCount(team_, in.count, out.count);
    auto const parts = equalParts(in.count);
    (*this)(blocks, in.data, parts, out.data, parts);
  }

  template <BlockSet B, class In, class T, Parts P>
  requires SessionTransport<Tr> MSCCLPP_DEVICE void operator()(B const& blocks, In* in, P const& inParts, T* out,
                                                               P const& outParts) const {
    check(in, out);
    requireSameCount(team_, inParts.largest(), outParts.largest());
    Schedule::template moveParts<Tr, Ranks>(team_, blocks,
                                            AllToAllPlan<T, P>{in, out, inParts, outParts, inParts.largest()});
  }

  template <BlockSet B, class In, class T>
  requires DirectTransport<Tr> MSCCLPP_DEVICE void operator()(B const& blocks, View<In> in,
                                                              SymmetricView<T> const& out) const {
    out.check(team_.watch, team_.size);
    requireSameCount(team_, in.count, out.count());
    check(in.data, out.at(team_.rank));
    auto const parts = equalParts(in.count);
    Schedule::template run<Tr, Ranks>(team_, blocks, Pushed<T>{in.data, out, parts, parts.offset(team_.rank)});
  }

 private:
  template <class T>
  struct Pushed {
    using Element = T;
    static constexpr bool sameToAll = false;
    T const* in;
    SymmetricView<T> const& out;
    EqualParts parts;
    std::uint64_t offset;

    MSCCLPP_DEVICE View<T const> send(int peer) const { return partOf(in, parts, peer); }
    MSCCLPP_DEVICE T* target(int peer) const { return out.at(peer) + offset; }
  };

  MSCCLPP_DEVICE EqualParts equalParts(std::size_t count) const {
    return {requireWholeParts<Ranks>(team_, count)};
  }

  template <class In, class T>
  MSCCLPP_DEVICE void check(In* in, T* out) const {
    static_assert(std::same_as<std::remove_const_t<In>, T>, "AllToAll: input and output have the same element type");
    requireTeamSize(team_, Ranks);
    requireAligned<T>(team_, in, out);
  }

  DeviceTeam const& team_;
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
