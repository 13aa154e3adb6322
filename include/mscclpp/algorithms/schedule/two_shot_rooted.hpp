// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Broadcast and reduce in two exchanges: each rank but the root has a share of the message. Broadcast: the root sends
// each its share, and they send it to each other. Reduce: everybody sends each its share, which it reduces in rank
// order and sends to the root. Called through Broadcast<TwoShotRooted, Tr> and Reduce<TwoShotRooted, Tr, Op>.
//
// Two link latencies however many ranks there are, and in each exchange no link carries more than the message: for
// messages that are too short for the pieces from rank to rank (ChainSchedule), which load all links at once. No buffer
// needs symmetric memory. With two ranks one exchange (OneExchange) is enough.
//
// Every pair of ranks exchanges something in each round, on which the epochs rely: to the root of a broadcast ranks
// send one group of slots that holds nothing.
#pragma once

#include <cstdint>

#include "mscclpp/algorithms/core/concepts.hpp"
#include "mscclpp/algorithms/core/facts.hpp"
#include "mscclpp/algorithms/core/partition.hpp"
#include "mscclpp/algorithms/core/prologue.hpp"
#include "mscclpp/algorithms/schedule/share_result.hpp"
#include "mscclpp/device/view.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

struct TwoShotRooted {
  // Rows of the workspace: one per source. What comes in the first exchange and in the second has other sources.
  MSCCLPP_HOST_DEVICE static constexpr std::uint32_t rows(std::uint32_t ranks) { return ranks; }
  static constexpr bool dealsOut(Collective) { return true; }
  // Blocks are in different exchanges at a time, which load different links: each carries the message once. So it is on
  // 4 H100 from 4 MiB on, but that a reduce takes 1.15 times as long, and blocks that wait for stages wait as for
  // three.
  template <class Tr>
  static constexpr Movement movement(Volume const& of) {
    auto const sent = of.bytes * of.onWire * (traitsOf(of.collective).reduces ? 1.15 : 1.0);
    return {.traffic = {.part = of.bytes / of.others(), .sent = sent, .stored = sent, .local = sent + of.bytes},
            .exchanges = Tr::signals ? 3 : 2};
  }

  // The root's `in` becomes everybody's `out`; the others' is not touched.
  template <class Tr, int Ranks, BlockSet B, ElementSource S, class T>
  MSCCLPP_DEVICE static void broadcast(DeviceTeam const& team, B const& blocks, S const& in, View<T> const& out,
                                       int root) {
    using Round = TwoExchanges<Tr, Ranks, B>;
    if (out.count == 0) return;
    bool const begins = team.rank == root;
    auto const from = given<T>(begins, in.part(0, out.count), out.data);
    bool const keeps = begins && !liesAt(from, out.data);
    auto const reader = readerOf<Tr::words, Tr::granule>(from);
    PayloadWriter<T, Tr::words, Tr::granule> const writer(out);
    Round round(team, blocks, out.bytes(), root);
    do {
      round.begin();
      auto const write = [&](int owner, unsigned i, Payload<Tr::words> const& payload) {
        auto const slot = round.mine.slot[i];
        writer.write(round.tileOf(owner, writer), Tr::dataOffset(slot), payload, Tr::dataBytes(slot));
      };
      if (begins) {
        round.sendShares(reader, [&](int owner, unsigned i, Payload<Tr::words> const& payload) {
          if (keeps) write(owner, i, payload);
        });
        round.exchangeFirst();
        if constexpr (!Tr::signals) round.meetOwners();
        round.session.exchange(1);
      } else {
        if constexpr (!Tr::signals) round.meetRoot();
        round.exchangeFirst();
        Payload<Tr::words> share[Round::U];
        round.receiveOwn(share);
        round.forward(share);
        MSCCLPP_UNROLL
        for (unsigned i = 0; i < Round::U; ++i) {
          if (round.mine.valid[i]) write(team.rank, i, share[i]);
        }
        round.session.exchange(1);
        round.receiveShares(write);
      }
    } while (round.next());
  }

  // Everybody's `in`, combined in rank order, becomes the root's `out`; the others' is not touched.
  template <class Tr, class R, int Ranks, BlockSet B, ElementSource S, class T, class Epilogue>
  MSCCLPP_DEVICE static void reduce(DeviceTeam const& team, B const& blocks, S const& in, T* out, int root,
                                    Epilogue const& epilogue) {
    if (in.count == 0) return;
    bool const ends = team.rank == root;
    auto const reader = readerOf<Tr::words, Tr::granule>(in);
    PayloadWriter<T, Tr::words, Tr::granule> const writer(View<T>{out, ends ? in.count : 0});
    TwoExchanges<Tr, Ranks, B> round(team, blocks, in.bytes(), root);
    do {
      round.begin();
      auto const write = [&](int owner, unsigned i, Payload<Tr::words> const& result) {
        impl::storeResult<Tr, R>(writer, round.tileOf(owner, writer), epilogue, result, round.offsetOf(owner),
                                 round.mine.slot[i]);
      };
      round.sendShares(reader, [](int, unsigned, auto const&) {});
      round.exchangeFirst();
      if (!ends || round.alone()) {
        auto* const roots = team.workspace(root);
        impl::reduceShare<Tr, R>(team, round.session, round.tileOf(team.rank, reader), reader, round.mine,
                                 [&](unsigned i, Payload<Tr::words> const& result) {
                                   if (!ends) {
                                     round.session.put(roots, round.ownRow(), round.mine.slot[i], result,
                                                       round.mine.active[i]);
                                   } else if (round.mine.valid[i]) {
                                     write(team.rank, i, result);
                                   }
                                 });
      }
      round.session.exchange(1);
      if (ends) round.receiveShares(write);
    } while (round.next());
  }

 private:
  // A call's rounds, and what both collectives do in them.
  template <class Tr, int Ranks, BlockSet B>
  struct TwoExchanges {
    static constexpr unsigned U = Tr::unroll;
    static constexpr int ahead = peersTogether<Tr, Ranks>;
    using Data = Payload<Tr::words>;

    MSCCLPP_DEVICE TwoExchanges(DeviceTeam const& t, B const& blocks, std::uint64_t bytes, int r)
        : team(t),
          root(r),
          ranks(Ranks != 0 ? Ranks : t.size),
          session(t, blocks, rows(static_cast<unsigned>(ranks))),
          share(shareSlots(Tr::slotsFor(bytes), static_cast<unsigned>(alone() ? 1 : ranks - 1), Tr::slotsPerGroup)),
          partition{share, minimum<std::uint32_t>(session.threads() * U, session.rowSlots()), Tr::slotsPerGroup,
                    blocks.blockCount(), blocks.blockRank()},
          thread(blocks.block().rank()) {
      session.open();
    }

    MSCCLPP_DEVICE void begin() {
      tile = partition.at(start);
      mine = threadSlots<U>(thread, session.threads(), tile);
      session.beginRound();
    }
    // Between the exchanges.
    MSCCLPP_DEVICE void exchangeFirst() {
      if (partition.isLast(start)) session.commit();
      session.exchange(0);
    }
    MSCCLPP_DEVICE bool next() {
      if (partition.isLast(start)) return false;
      session.endRound();
      start += partition.roundSlots();
      return true;
    }

    MSCCLPP_DEVICE bool alone() const { return ranks == 1; }
    MSCCLPP_DEVICE unsigned ownRow() const { return static_cast<unsigned>(team.rank); }
    // Where this round's tile lies in the share of `owner`, in bytes.
    MSCCLPP_DEVICE std::uint64_t offsetOf(int owner) const {
      int const behind = owner - root + (owner < root ? ranks : 0);
      return Tr::dataOffset(static_cast<std::uint64_t>(alone() ? 0 : behind - 1) * share + tile.first);
    }
    // That tile, of a reader or writer of the message.
    template <class Whole>
    MSCCLPP_DEVICE auto tileOf(int owner, Whole const& whole) const {
      return whole.window(offsetOf(owner), Tr::dataOffset(partition.tile));
    }

    // What `reader` has goes to its owners, and keep(owner, i, payload) is told of it.
    template <class Reader, class Keep>
    MSCCLPP_DEVICE void sendShares(Reader const& reader, Keep const& keep) const {
      MSCCLPP_UNROLL
      for (int first = 1; first < (alone() ? 2 : ranks); first += ahead) {
        Data part[ahead][U];
        MSCCLPP_UNROLL
        for (int k = 0; k < ahead; ++k) {
          int const owner = team.peerAt(first + k, ranks);
          bool const has = owner != root || alone();
          auto const source = tileOf(has ? owner : team.rank, reader);
          MSCCLPP_UNROLL
          for (unsigned i = 0; i < U; ++i) {
            auto const slot = mine.slot[i];
            part[k][i] = has && mine.valid[i] ? reader.read(source, Tr::dataOffset(slot), Tr::dataBytes(slot)) : Data{};
          }
        }
        MSCCLPP_UNROLL
        for (int k = 0; k < ahead; ++k) {
          int const owner = team.peerAt(first + k, ranks);
          MSCCLPP_UNROLL
          for (unsigned i = 0; i < U; ++i) {
            if (owner != root) session.put(team.workspace(owner), ownRow(), mine.slot[i], part[k][i], mine.active[i]);
            if (mine.valid[i] && (owner != root || alone())) keep(owner, i, part[k][i]);
          }
        }
      }
    }

    // This rank's share, from the root.
    MSCCLPP_DEVICE void receiveOwn(Data (&values)[U]) const {
      Source sources[U];
      MSCCLPP_UNROLL
      for (unsigned i = 0; i < U; ++i) {
        sources[i] = {root, static_cast<unsigned>(root), mine.slot[i], mine.active[i]};
      }
      session.receive(sources, values);
    }
    // To the other owners.
    MSCCLPP_DEVICE void forward(Data const (&values)[U]) const {
      for (int distance = 1; distance < ranks; ++distance) {
        int const peer = team.peerAt(distance, ranks);
        if (peer == root) continue;
        auto* const to = team.workspace(peer);
        MSCCLPP_UNROLL
        for (unsigned i = 0; i < U; ++i) session.put(to, ownRow(), mine.slot[i], values[i], mine.active[i]);
      }
    }
    // Packets that hold nothing tell the root that this rank has read those of the round before. It waits for them when
    // it has sent its own, so it is up to a round ahead.
    MSCCLPP_DEVICE void meetRoot() const {
      MSCCLPP_UNROLL
      for (unsigned i = 0; i < U; ++i) {
        session.put(team.workspace(root), ownRow(), mine.slot[i], Data{}, isFirstGroup(i));
      }
    }
    MSCCLPP_DEVICE void meetOwners() const {
      receive([&](unsigned i) { return isFirstGroup(i); }, [](int, unsigned, Data const&) {});
    }
    // What the owners send in the second exchange.
    template <class Emit>
    MSCCLPP_DEVICE void receiveShares(Emit const& emit) const {
      receive([&](unsigned i) { return mine.active[i]; },
              [&](int owner, unsigned i, Data const& value) {
                if (mine.valid[i]) emit(owner, i, value);
              });
    }

    DeviceTeam const& team;
    int root;
    int ranks;
    typename Tr::template Session<B> session;
    std::uint64_t share;  // slots
    TilePartition partition;
    std::uint32_t thread;
    std::uint64_t start = 0;
    Tile tile{};
    ThreadSlots<U> mine{};

   private:
    MSCCLPP_DEVICE bool isFirstGroup(unsigned i) const { return mine.active[i] && mine.slot[i] < Tr::slotsPerGroup; }

    template <class Active, class Emit>
    MSCCLPP_DEVICE void receive(Active const& active, Emit const& emit) const {
      MSCCLPP_UNROLL
      for (int first = 1; first < ranks; first += ahead) {
        Source sources[ahead * U];
        Data values[ahead * U];
        MSCCLPP_UNROLL
        for (unsigned k = 0; k < ahead * U; ++k) {
          int const owner = team.peerAt(first + static_cast<int>(k / U), ranks);
          sources[k] = {owner, static_cast<unsigned>(owner), mine.slot[k % U], owner != root && active(k % U)};
        }
        session.receive(sources, values);
        MSCCLPP_UNROLL
        for (unsigned k = 0; k < ahead * U; ++k) {
          if (sources[k].peer != root) emit(sources[k].peer, k % U, values[k]);
        }
      }
    }
  };
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
