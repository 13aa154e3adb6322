// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One exchange between all pairs of a team, through the workspaces: what most collectives are, or begin with.
//
//   moveParts     every rank sends a part to every peer and stores those that it gets
//   reduceParts   the same, but what a rank gets is combined with its own part to one result
//
// What goes where is told by a plan: for a rank of the team, where the part for (or from) it lies. Parts may have no
// elements; a pair that exchanges nothing still meets once a round, because the epochs rely on that. The count of the
// part from a to b must be known alike to both. Each rank's own part is moved too, unless it is where it should be.
#pragma once

#include <concepts>
#include <cstdint>

#include "mscclpp/algorithms/core/concepts.hpp"
#include "mscclpp/algorithms/core/facts.hpp"
#include "mscclpp/algorithms/core/partition.hpp"
#include "mscclpp/algorithms/core/prologue.hpp"
#include "mscclpp/algorithms/core/reduction.hpp"
#include "mscclpp/algorithms/core/requirements.hpp"
#include "mscclpp/device/view.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

// `equal`: all parts have the same count. `sameToAll`: all that a rank sends is the same part.
template <class P>
concept SendPlan = requires(P const& plan, int peer) {
  typename P::Element;
  { P::equal } -> std::convertible_to<bool>;
  { P::sameToAll } -> std::convertible_to<bool>;
  { plan.largest() } -> std::same_as<std::size_t>;
  { plan.send(peer) } -> SourceOf<typename P::Element>;
};
template <class P>
concept MovePlan = SendPlan<P> && requires(P const& plan, int peer) {
  { plan.receive(peer) } -> std::same_as<View<typename P::Element>>;
};
// own(): this rank's contribution. result(i), for i below results(): where the result goes, as many elements.
// firstElement(): the index that the epilogue is told for the first. Where `remote`, results go into peers' memory.
template <class P>
concept FoldPlan = SendPlan<P> && requires(P const& plan) {
  { P::remote } -> std::convertible_to<bool>;
  { plan.own() } -> SourceOf<typename P::Element>;
  { plan.results() } -> std::same_as<int>;
  { plan.result(0) } -> std::same_as<View<typename P::Element>>;
  { plan.firstElement() } -> std::same_as<std::uint64_t>;
};

struct OneExchange {
  // Rows of the workspace: one per source.
  MSCCLPP_HOST_DEVICE static constexpr std::uint32_t rows(std::uint32_t ranks) { return ranks; }
  static constexpr Movement movement(Volume const& of) { return oneExchange(of); }

  template <class Tr, int Ranks, BlockSet B, MovePlan P>
  MSCCLPP_DEVICE static void moveParts(DeviceTeam const& team, B const& blocks, P const& plan) {
    using Round = ExchangeRound<Tr, Ranks, B, P>;
    constexpr unsigned U = Tr::unroll;
    constexpr unsigned W = Tr::words;
    constexpr int ahead = Round::ahead;
    Round round(team, blocks, plan);
    if (!round.begin()) return;
    for (;;) {
      round.send();

      auto const from = plan.send(team.rank);
      auto const to = plan.receive(team.rank);
      if (!liesAt(from, to.data)) {
        auto const source = round.reader(from);
        auto const target = round.writer(to);
        auto const mine = round.slotsOf(from);
        MSCCLPP_UNROLL
        for (unsigned i = 0; i < U; ++i) {
          if (mine.valid[i]) round.write(target, mine.slot[i], round.read(source, mine.slot[i]));
        }
      }

      MSCCLPP_UNROLL
      for (int first = 1; first < round.ranks; first += ahead) {
        Source sources[ahead * U];
        Payload<W> values[ahead * U];
        ThreadSlots<U> slots[ahead];
        typename Round::Writer targets[ahead];
        MSCCLPP_UNROLL
        for (int k = 0; k < ahead; ++k) {
          int const peer = round.peerAt(first + k);
          slots[k] = round.slotsOf(plan.receive(peer));
          targets[k] = round.writer(plan.receive(peer));  // while the peers' parts are on their way
          MSCCLPP_UNROLL
          for (unsigned i = 0; i < U; ++i) {
            sources[static_cast<unsigned>(k) * U + i] = {peer, static_cast<unsigned>(peer), slots[k].slot[i],
                                                         slots[k].active[i]};
          }
        }
        round.session.receive(sources, values);
        MSCCLPP_UNROLL
        for (int k = 0; k < ahead; ++k) {
          MSCCLPP_UNROLL
          for (unsigned i = 0; i < U; ++i) {
            if (slots[k].valid[i]) {
              round.write(targets[k], slots[k].slot[i], values[static_cast<unsigned>(k) * U + i]);
            }
          }
        }
      }
      if (!round.next()) return;
    }
  }

  template <class Tr, class R, int Ranks, BlockSet B, FoldPlan P, class Epilogue>
  MSCCLPP_DEVICE static void reduceParts(DeviceTeam const& team, B const& blocks, P const& plan,
                                         Epilogue const& epilogue) {
    using Round = ExchangeRound<Tr, Ranks, B, P>;
    constexpr unsigned U = Tr::unroll;
    constexpr unsigned W = Tr::words;
    constexpr unsigned batch = Tr::batch;
    static_assert(U % batch == 0);
    static_assert(!P::remote || Tr::signals, "results in peers' memory need a transport that signals");
    Round round(team, blocks, plan);
    if (!round.begin()) return;
    for (;;) {
      round.send();
      auto const own = plan.own();
      auto const source = round.reader(own);
      auto const mine = round.slotsOf(own);
      auto const firstTarget = round.writer(plan.result(0));
      MSCCLPP_UNROLL
      for (unsigned first = 0; first < U; first += batch) {
        Payload<W> payloads[batch];
        std::uint32_t slots[batch];
        bool active[batch];
        typename R::template Accumulators<W> totals[batch]{};
        MSCCLPP_UNROLL
        for (unsigned i = 0; i < batch; ++i) {
          slots[i] = mine.slot[first + i];
          active[i] = mine.active[first + i];
          payloads[i] = mine.valid[first + i] ? round.read(source, slots[i]) : Payload<W>{};
        }
        R::template fold<batch>(team, round.session, 0, slots, active, payloads, totals);
        MSCCLPP_UNROLL
        for (unsigned i = 0; i < batch; ++i) {
          if (!mine.valid[first + i]) continue;
          auto const offset = Tr::dataOffset(slots[i]);
          if (R::template isPastEnd<Epilogue>(source.window, offset)) continue;
          auto const index = plan.firstElement() + (round.tileOffset + offset) / R::elementBytes;
          auto const stored = minimum(source.window.bytes - offset, Tr::dataBytes(slots[i]));
          auto const result = R::template conclude<W>(epilogue, totals[i], index, stored);
          MSCCLPP_UNROLL
          for (int k = 0; k < plan.results(); ++k) {
            round.write(k == 0 ? firstTarget : round.writer(plan.result(k)), slots[i], result);
          }
        }
      }
      if (!round.next()) break;
    }
    // The peers' results have come when they say that they are done.
    if constexpr (P::remote) round.session.exchange(1);
  }

 private:
  // The state of a call and the steps that its rounds have in common.
  template <class Tr, int Ranks, BlockSet B, SendPlan P>
  struct ExchangeRound {
    static constexpr unsigned U = Tr::unroll;
    static constexpr unsigned W = Tr::words;
    static constexpr int ahead = peersTogether<Tr, Ranks>;
    using Element = typename P::Element;
    using Session = typename Tr::template Session<B>;

    // Reader or writer of a whole part, and what of the part lies in this round's tile.
    template <class Whole>
    struct Access {
      Whole all;
      decltype(all.window(0)) window;
    };
    using Reader = Access<decltype(readerOf<W, Tr::granule>(std::declval<P const&>().send(0)))>;
    using Writer = Access<PayloadWriter<Element, W, Tr::granule>>;

    MSCCLPP_DEVICE ExchangeRound(DeviceTeam const& t, B const& blocks, P const& p)
        : team(t),
          plan(p),
          ranks(Ranks != 0 ? Ranks : t.size),
          session(t, blocks, rows(static_cast<unsigned>(ranks))),
          thread(blocks.block().rank()),
          threads(session.threads()),
          partition{Tr::slotsFor(std::uint64_t{p.largest()} * sizeof(Element)),
                    minimum<std::uint32_t>(threads * U, session.rowSlots()), Tr::slotsPerGroup, blocks.blockCount(),
                    blocks.blockRank()} {}

    // False: there is nothing to do. The session is opened by the first send(), once all addresses are known.
    MSCCLPP_DEVICE bool begin() {
      if (partition.slots == 0) return false;
      if constexpr (putsToAll<Tr>) requireMulticast(team);
      enter(0);
      return true;
    }
    MSCCLPP_DEVICE bool next() {
      if constexpr (putsToAll<Tr>) receiveOwn(session, team.rank, sent);
      if (partition.isLast(start)) return false;
      session.endRound();
      enter(start + partition.roundSlots());
      return true;
    }

    // Puts this rank's parts, and returns when those of the peers may be read.
    MSCCLPP_DEVICE void send() {
      static_assert(P::sameToAll || !putsToAll<Tr>,
                    "a transport that puts to all ranks at once cannot send each rank a part of its own");
      if constexpr (P::sameToAll) {
        sendSame();
      } else {
        sendEach();
      }
      if (ranks == 1 && !P::sameToAll) {  // nobody is sent anything
        openFirst();
        session.beginRound();
      }
      if (partition.isLast(start)) session.commit();
      session.exchange(0);
    }

    MSCCLPP_DEVICE int peerAt(int distance) const { return team.peerAt(distance, ranks); }
    // This thread's slots of a part in this round.
    template <class Part>
    MSCCLPP_DEVICE ThreadSlots<U> slotsOf(Part const& part) const {
      if constexpr (P::equal) {
        return all;
      } else {
        return threadSlots<U>(thread, threads, partition.at(start, Tr::slotsFor(part.bytes())));
      }
    }
    template <SourceOf<Element> S>
    MSCCLPP_DEVICE Reader reader(S const& part) const {
      return inTile(readerOf<W, Tr::granule>(part));
    }
    MSCCLPP_DEVICE Writer writer(View<Element> const& part) const {
      return inTile(PayloadWriter<Element, W, Tr::granule>(part));
    }
    MSCCLPP_DEVICE Payload<W> read(Reader const& from, std::uint32_t slot) const {
      return from.all.read(from.window, Tr::dataOffset(slot), Tr::dataBytes(slot));
    }
    MSCCLPP_DEVICE void write(Writer const& to, std::uint32_t slot, Payload<W> const& payload) const {
      to.all.write(to.window, Tr::dataOffset(slot), payload, Tr::dataBytes(slot));
    }

    DeviceTeam const& team;
    P const& plan;
    int ranks;
    Session session;
    std::uint32_t thread;
    std::uint32_t threads;
    TilePartition partition;
    std::uint64_t start = 0;
    std::uint64_t tileOffset = 0;  // bytes from the beginning of a part
    ThreadSlots<U> all;            // of a part of the largest count
    ThreadSlots<U> sent;           // of this rank's part

   private:
    template <class Whole>
    MSCCLPP_DEVICE Access<Whole> inTile(Whole const& whole) const {
      return {whole, whole.window(tileOffset, Tr::dataOffset(partition.tile))};
    }
    MSCCLPP_DEVICE void openFirst() {
      if (start == 0) session.open();
    }
    MSCCLPP_DEVICE void enter(std::uint64_t at) {
      start = at;
      auto const tile = partition.at(start);
      tileOffset = Tr::dataOffset(tile.first);
      all = threadSlots<U>(thread, threads, tile);
    }

    MSCCLPP_DEVICE void fetch(Reader const& source, ThreadSlots<U> const& slots, Payload<W> (&payloads)[U]) const {
      MSCCLPP_UNROLL
      for (unsigned i = 0; i < U; ++i) payloads[i] = slots.valid[i] ? read(source, slots.slot[i]) : Payload<W>{};
    }

    MSCCLPP_DEVICE void sendSame() {
      auto const part = plan.send(team.rank);
      auto const slots = slotsOf(part);
      Payload<W> payloads[U];
      auto const source = reader(part);
      PeerWorkspaces<Ranks> const peers(team);
      openFirst();
      fetch(source, slots, payloads);
      session.beginRound();
      putSame<Tr>(team, peers, session, slots, payloads);
      if constexpr (putsToAll<Tr>) sent = slots;
    }

    MSCCLPP_DEVICE void sendEach() {
      MSCCLPP_UNROLL
      for (int first = 1; first < ranks; first += ahead) {
        Payload<W> payloads[ahead][U];
        ThreadSlots<U> slots[ahead];
        Reader sources[ahead];
        std::byte* peers[ahead];
        MSCCLPP_UNROLL
        for (int k = 0; k < ahead; ++k) {
          auto const part = plan.send(peerAt(first + k));
          slots[k] = slotsOf(part);
          sources[k] = reader(part);
          peers[k] = team.workspace(peerAt(first + k));
        }
        if (first == 1) openFirst();
        MSCCLPP_UNROLL
        for (int k = 0; k < ahead; ++k) fetch(sources[k], slots[k], payloads[k]);
        if (first == 1) session.beginRound();
        MSCCLPP_UNROLL
        for (int k = 0; k < ahead; ++k) {
          MSCCLPP_UNROLL
          for (unsigned i = 0; i < U; ++i) {
            session.put(peers[k], static_cast<unsigned>(team.rank), slots[k].slot[i], payloads[k][i],
                        slots[k].active[i]);
          }
        }
      }
    }
  };
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
