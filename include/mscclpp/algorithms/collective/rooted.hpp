// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Collectives with a root.
//
//   Broadcast  the root's `in` becomes everybody's `out`
//   Scatter    part p of the root's `in` becomes `out` of rank p
//   Gather     `in` of rank r becomes part r of the root's `out`
//   Reduce     everybody's `in`, combined in rank order (ChainSchedule, SwitchSchedule: another), becomes the root's
//   `out`
//
//   Broadcast<OneExchange, PacketTransport<LL16>>{team}(thisGrid(), View{x, n}, View{y, n}, root);
//   Broadcast<PushSchedule, PeerMemory<>>{team}(thisGrid(), SymmetricView<T>(in...), SymmetricView<T>(out...), root);
//
// Called by all threads of the given blocks, on every rank, with the same blocks, type, counts and root. A buffer that
// a rank neither gives nor gets (`in` of others than a broadcast's or scatter's root, `out` of others than a gather's
// or reduce's) is not touched and may be null. `in` and `out` may be the same for Broadcast and Reduce, and the own
// part for Scatter and Gather; but a symmetric output of Scatter is no part of the input. Any count and alignment.
//
// With SwitchSchedule the root stores once for all, and reductions are the switch's work. The others let no link carry
// more than the message once. Broadcast: with PushSchedule every rank but the root reads its share of the root's input
// and stores it to all; with ChainSchedule the message goes from rank to rank in pieces, and `in` needs no symmetric
// memory, nor does `out` where it goes through the stages. Reduce: every rank but the root reduces a share and stores
// it to the root; with PullSchedule it reads the others' inputs, with TwoShotPush they store theirs into its workspace,
// and `in` needs no symmetric memory; with ChainSchedule sums go from rank to rank to the root, in this order and
// rounded on each link, and neither buffer needs any. With TwoShotRooted, broadcast and reduce take two exchanges
// between any buffers; with OneExchange one, but the root's link carries the message once for each of the others.
//
//   Broadcast<ChainSchedule, PeerMemory<>>{team}(thisGrid(), View{x, n}, SymmetricView<T>(out...), root);
//   Broadcast<ChainSchedule, StagePieces<>>{team}(thisGrid(), View{x, n}, View{y, n}, root);
//   Reduce<ChainSchedule, StagePieces<>, Sum>{team}(thisGrid(), View{x, n}, out, root);
//   Reduce<TwoShotPush, MemoryTransport<8>, Sum>{team}(thisGrid(), View{x, n}, SymmetricView<T>(out...), root);
//   Reduce<TwoShotRooted, PacketTransport<LL128>, Sum>{team}(thisGrid(), View{x, n}, out, root);
#pragma once

#include <type_traits>

#include "mscclpp/algorithms/core/prologue.hpp"
#include "mscclpp/algorithms/core/requirements.hpp"
#include "mscclpp/algorithms/schedule/chain.hpp"
#include "mscclpp/algorithms/schedule/one_exchange.hpp"
#include "mscclpp/algorithms/schedule/plans.hpp"
#include "mscclpp/algorithms/schedule/pull.hpp"
#include "mscclpp/algorithms/schedule/push.hpp"
#include "mscclpp/algorithms/schedule/shares.hpp"
#include "mscclpp/algorithms/schedule/switch.hpp"
#include "mscclpp/algorithms/schedule/two_shot_push.hpp"
#include "mscclpp/algorithms/schedule/two_shot_rooted.hpp"
#include "mscclpp/device/symmetric_view.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

template <class Schedule, class Tr, int Ranks = 0>
class Broadcast : public Composed<Collective::broadcast, Schedule, Tr> {
 public:
  MSCCLPP_DEVICE explicit Broadcast(DeviceTeam const& team) : team_(team) {}

  template <BlockSet B, Input In, class T>
  requires(SessionTransport<Tr> || StagePieceTransport<Tr>) MSCCLPP_DEVICE void operator()(B const& blocks,
                                                                                           In const& in, View<T> out,
                                                                                           int root) const {
    static_assert(givesElements<T, In>,
                  "Broadcast: input and output have the same element type, or a prologue converts");
    requireTeamSize(team_, Ranks);
    requireRoot(team_, root);
    requireSameCount(team_, viewOf(in).count, out.count);
    requireAligned(team_, viewOf(in).data, out.data);
    if constexpr (StagePieceTransport<Tr>) {
      Schedule::template broadcast<Tr>(team_, blocks, sourceOf<T>(in), out, root);
    } else if constexpr (std::same_as<Schedule, TwoShotRooted>) {
      Schedule::template broadcast<Tr, Ranks>(team_, blocks, sourceOf<T>(in), out, root);
    } else {
      Schedule::template moveParts<Tr, Ranks>(team_, blocks,
                                              BroadcastPlan<SourceFor<T, In>>{sourceOf<T>(in), out, team_.rank, root});
    }
  }

  template <BlockSet B, class In, class T>
  requires DirectTransport<Tr> MSCCLPP_DEVICE void operator()(B const& blocks, View<In> in, SymmetricView<T> const& out,
                                                              int root) const {
    static_assert(std::same_as<std::remove_const_t<In>, T>, "Broadcast: input and output have the same element type");
    requireTeamSize(team_, Ranks);
    requireRoot(team_, root);
    out.check(team_.watch, team_.size);
    requireSameCount(team_, in.count, out.count());
    requireAligned<T>(team_, in.data, out.at(team_.rank));
    Schedule::template broadcast<Tr>(team_, blocks, View<T const>{in.data, in.count}, out, root);
  }

  template <BlockSet B, class T>
  requires DirectTransport<Tr> MSCCLPP_DEVICE void operator()(B const& blocks, SymmetricView<T> const& in,
                                                              SymmetricView<T> const& out, int root) const {
    requireTeamSize(team_, Ranks);
    requireRoot(team_, root);
    in.check(team_.watch, team_.size);
    out.check(team_.watch, team_.size);
    requireSameCount(team_, in.count(), out.count());
    requireAligned<T>(team_, in.at(team_.rank), out.at(team_.rank));
    if constexpr (Schedule::relays) {
      auto const share = shareBesideRoot<T>(in.count(), team_.size, team_.rank, root);
      Schedule::template run<Tr, Ranks>(team_, blocks, Relayed<T>{in, out, share, root});
    } else {
      Schedule::template run<Tr, Ranks>(team_, blocks, Announced<T>{in, out, root, team_.rank == root});
    }
  }

 private:
  // All of the root's input, from the root to everybody.
  template <class T>
  struct Announced {
    using Element = T;
    SymmetricView<T> const& in;
    SymmetricView<T> const& out;
    int root;
    bool sends;

    MSCCLPP_DEVICE View<T const> send(int) const { return {in.at(root), sends ? in.count() : 0}; }
    MSCCLPP_DEVICE T* target(int peer) const { return out.at(peer); }
    MSCCLPP_DEVICE bool hasMulticast() const { return out.multicast() != nullptr; }
    MSCCLPP_DEVICE T* multicastTarget() const { return sends ? out.multicast() : nullptr; }
  };

  // The rank's share of the root's input, to everybody.
  template <class T>
  struct Relayed {
    using Element = T;
    static constexpr bool sameToAll = true;
    SymmetricView<T> const& in;
    SymmetricView<T> const& out;
    Share share;
    int root;

    MSCCLPP_DEVICE View<T const> send(int) const { return {in.at(root) + share.first, share.count}; }
    MSCCLPP_DEVICE T* target(int peer) const {
      // In place the root has it all.
      bool const there = peer == root && in.at(root) == out.at(root);
      return there ? nullptr : out.at(peer) + share.first;
    }
  };

  DeviceTeam const& team_;
};

template <class Schedule, class Tr, int Ranks = 0>
class Scatter : public Composed<Collective::scatter, Schedule, Tr> {
 public:
  MSCCLPP_DEVICE explicit Scatter(DeviceTeam const& team) : team_(team) {}

  // `out` tells the count of each part.
  template <BlockSet B, class In, class T>
  requires SessionTransport<Tr> MSCCLPP_DEVICE void operator()(B const& blocks, In const& in, View<T> out,
                                                               int root) const {
    (*this)(blocks, in, EqualParts{out.count}, out, root);
  }

  template <BlockSet B, class In, class T, Parts P>
  requires SessionTransport<Tr> MSCCLPP_DEVICE void operator()(B const& blocks, In const& in, P const& parts,
                                                               View<T> out, int root) const {
    static_assert(givesElements<T, std::remove_cvref_t<decltype(asInput(in))>>,
                  "Scatter: input and output have the same element type, or a prologue converts");
    requireTeamSize(team_, Ranks);
    requireRoot(team_, root);
    requireAligned(team_, viewOf(asInput(in)).data, out.data);
    awaitParts<P>();
    requireSameCount(team_, parts.count(team_.rank), out.count);
    using Plan = ScatterPlan<SourceFor<T, In>, P>;
    Schedule::template moveParts<Tr, Ranks>(team_, blocks,
                                            Plan{sourceOf<T>(asInput(in)), out, parts, team_.rank, root});
  }

  template <BlockSet B, class In, class T>
  requires DirectTransport<Tr> MSCCLPP_DEVICE void operator()(B const& blocks, In* in, SymmetricView<T> const& out,
                                                              int root) const {
    static_assert(std::same_as<std::remove_const_t<In>, T>, "Scatter: input and output have the same element type");
    requireTeamSize(team_, Ranks);
    requireRoot(team_, root);
    out.check(team_.watch, team_.size);
    requireAligned<T>(team_, in, out.at(team_.rank));
    Schedule::template run<Tr, Ranks>(team_, blocks, Pushed<T>{in, out, team_.rank == root});
  }

 private:
  template <class T>
  struct Pushed {
    using Element = T;
    static constexpr bool sameToAll = false;
    T const* in;
    SymmetricView<T> const& out;
    bool sends;

    MSCCLPP_DEVICE View<T const> send(int peer) const {
      if (!sends) return {out.at(peer), 0};
      return {in + static_cast<std::size_t>(peer) * out.count(), out.count()};
    }
    MSCCLPP_DEVICE T* target(int peer) const { return out.at(peer); }
  };

  DeviceTeam const& team_;
};

template <class Schedule, class Tr, int Ranks = 0>
class Gather : public Composed<Collective::gather, Schedule, Tr> {
 public:
  MSCCLPP_DEVICE explicit Gather(DeviceTeam const& team) : team_(team) {}

  // `in` tells the count of each part.
  template <BlockSet B, Input In, class T>
  requires SessionTransport<Tr> MSCCLPP_DEVICE void operator()(B const& blocks, In const& in, T* out, int root) const {
    (*this)(blocks, in, out, EqualParts{viewOf(in).count}, root);
  }

  template <BlockSet B, Input In, class T, Parts P>
  requires SessionTransport<Tr> MSCCLPP_DEVICE void operator()(B const& blocks, In const& in, T* out, P const& parts,
                                                               int root) const {
    static_assert(givesElements<T, In>, "Gather: input and output have the same element type, or a prologue converts");
    requireTeamSize(team_, Ranks);
    requireRoot(team_, root);
    requireAligned(team_, viewOf(in).data, out);
    awaitParts<P>();
    requireSameCount(team_, viewOf(in).count, parts.count(team_.rank));
    using Plan = GatherPlan<SourceFor<T, In>, P>;
    Schedule::template moveParts<Tr, Ranks>(team_, blocks, Plan{sourceOf<T>(in), out, parts, team_.rank, root});
  }

  template <BlockSet B, class In, class T>
  requires DirectTransport<Tr> MSCCLPP_DEVICE void operator()(B const& blocks, View<In> in, SymmetricView<T> const& out,
                                                              int root) const {
    static_assert(std::same_as<std::remove_const_t<In>, T>, "Gather: input and output have the same element type");
    requireTeamSize(team_, Ranks);
    requireRoot(team_, root);
    out.check(team_.watch, team_.size);
    requireSameCount(team_, in.count * static_cast<std::size_t>(team_.size), out.count());
    requireAligned<T>(team_, in.data, out.at(team_.rank));
    Schedule::template run<Tr, Ranks>(team_, blocks, Pushed<T>{{in.data, in.count}, out, team_.rank, root});
  }

 private:
  template <class T>
  struct Pushed {
    using Element = T;
    static constexpr bool sameToAll = false;
    View<T const> in;
    SymmetricView<T> const& out;
    int rank;
    int root;

    MSCCLPP_DEVICE View<T const> send(int peer) const { return {in.data, peer == root ? in.count : 0}; }
    MSCCLPP_DEVICE T* target(int peer) const { return out.at(peer) + static_cast<std::size_t>(rank) * in.count; }
  };

  DeviceTeam const& team_;
};

template <class Schedule, class Tr, class Op, int Ranks = 0, class Acc = void>
class Reduce : public Composed<Collective::reduce, Schedule, Tr> {
 public:
  MSCCLPP_DEVICE explicit Reduce(DeviceTeam const& team) : team_(team) {}

  template <BlockSet B, Input In, class T, class Epilogue = Identity>
  requires SessionTransport<Tr> MSCCLPP_DEVICE void operator()(B const& blocks, In const& in, T* out, int root,
                                                               Epilogue const& epilogue = {}) const {
    check<In, T>(root);
    requireAligned(team_, viewOf(in).data, out);
    if constexpr (std::same_as<Schedule, TwoShotRooted>) {
      Schedule::template reduce<Tr, ReductionOf<T>, Ranks>(team_, blocks, sourceOf<T>(in), out, root, epilogue);
    } else {
      Schedule::template reduceParts<Tr, ReductionOf<T>, Ranks>(
          team_, blocks, ReduceToRootPlan<SourceFor<T, In>>{sourceOf<T>(in), out, team_.rank, root}, epilogue);
    }
  }

  template <BlockSet B, Input In, class T, class Epilogue = Identity>
  requires StagePieceTransport<Tr> MSCCLPP_DEVICE void operator()(B const& blocks, In const& in, T* out, int root,
                                                                  Epilogue const& epilogue = {}) const {
    check<In, T>(root);
    requireAligned(team_, viewOf(in).data, out);
    Schedule::template reduce<Tr, ReductionOf<T>>(team_, blocks, sourceOf<T>(in), out, root, epilogue);
  }

  template <BlockSet B, class T, class Epilogue = Identity>
  requires DirectTransport<Tr> MSCCLPP_DEVICE void operator()(B const& blocks, SymmetricView<T> const& in,
                                                              SymmetricView<T> const& out, int root,
                                                              Epilogue const& epilogue = {}) const {
    check<View<T>, T>(root);
    in.check(team_.watch, team_.size);
    out.check(team_.watch, team_.size);
    requireSameCount(team_, in.count(), out.count());
    requireAligned<T>(team_, in.at(team_.rank), out.at(team_.rank));
    auto const share =
        std::same_as<Schedule, PullSchedule>
            ? shareBesideRoot<T>(in.count(), team_.size, team_.rank, root)
            : shareOf<T>(in.count(), static_cast<unsigned>(team_.size), static_cast<unsigned>(team_.rank));
    Schedule::template run<Tr, ReductionOf<T>, Ranks>(team_, blocks, Pulled<T>{in, out, share, root}, epilogue);
  }

  template <BlockSet B, Input In, class T, class Epilogue = Identity>
  requires SessionTransport<Tr> MSCCLPP_DEVICE void operator()(B const& blocks, In const& in,
                                                               SymmetricView<T> const& out, int root,
                                                               Epilogue const& epilogue = {}) const {
    check<In, T>(root);
    out.check(team_.watch, team_.size);
    requireSameCount(team_, viewOf(in).count, out.count());
    requireAligned(team_, viewOf(in).data, out.at(team_.rank));
    Schedule::template reduce<Tr, ReductionOf<T>, Ranks>(team_, blocks, sourceOf<T>(in), out, root, epilogue);
  }

 private:
  template <class T>
  using ReductionOf = ReductionFor<T, Acc, Op, Ranks>;

  template <class T>
  struct Pulled {
    using Element = T;
    SymmetricView<T> const& in;
    SymmetricView<T> const& out;
    Share share;
    int root;

    MSCCLPP_DEVICE View<T const> source(int rank) const { return {in.at(rank) + share.first, share.count}; }
    MSCCLPP_DEVICE T* target(int rank) const { return rank == root ? out.at(rank) + share.first : nullptr; }
    MSCCLPP_DEVICE bool hasMulticast() const { return in.multicast() != nullptr; }
    MSCCLPP_DEVICE T const* multicastSource() const { return in.multicast() + share.first; }
    MSCCLPP_DEVICE T* multicastTarget() const { return nullptr; }
    MSCCLPP_DEVICE std::uint64_t firstElement() const { return share.first; }
  };

  template <class In, class T>
  MSCCLPP_DEVICE void check(int root) const {
    static_assert(givesElements<T, In>, "Reduce: input and output have the same element type, or a prologue converts");
    static_assert(fitsTransport<T, Tr>, "Reduce: elements of this type do not fit into a packet, or are none");
    requireTeamSize(team_, Ranks);
    requireRoot(team_, root);
  }

  DeviceTeam const& team_;
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
