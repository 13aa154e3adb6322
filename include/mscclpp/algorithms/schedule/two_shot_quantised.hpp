// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// TwoShot over quantised packets (transport/wire.hpp): each rank quantises what it sends of the others' shares, adds up
// its own share in float, in rank order, with its own contribution exact, quantises the sum and sends it to all.
//
// All ranks end with the same bits: the owner of a share stores what its packets say, as the others do. Sums and
// averages of float, Half and BFloat16. Two link latencies; 2(n-1)/n of the message leaves each rank, a byte an
// element.
//
// A group with an infinity or a NaN in it, of any rank or of the sum, is NaN in all its elements on all ranks. Groups
// are counted from the first element of the buffer on, the last one shorter. A team of one rounds as others do. The
// epilogue sees what has travelled, before it is rounded to the element type.
#pragma once

#include <concepts>
#include <cstdint>

#include "mscclpp/algorithms/core/partition.hpp"
#include "mscclpp/algorithms/core/prologue.hpp"
#include "mscclpp/algorithms/core/reduction.hpp"
#include "mscclpp/algorithms/schedule/two_shot.hpp"
#include "mscclpp/algorithms/transport/wire.hpp"
#include "mscclpp/base/bits.hpp"
#include "mscclpp/device/view.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

struct TwoShotQuantised {
  // By all threads of the blocks; in LL128's lines warps pass their scales on as a whole. Two waits a round. Refuses a
  // workspace whose rows have no room for the packets of one bundle of threads.
  template <WireTransport W, class R, int Ranks, BlockSet B, ElementSource S, class T, class Epilogue>
  MSCCLPP_DEVICE static void run(DeviceTeam const& team, B const& blocks, S const& in, View<T> out,
                                 Epilogue const& epilogue) {
    static_assert(std::same_as<T, float> || std::same_as<T, Half> || std::same_as<T, BFloat16>,
                  "Wire: elements are float, Half or BFloat16");
    static_assert(std::same_as<typename R::Accumulator, float>, "Wire: sums are kept in float");
    static_assert(std::same_as<typename R::Operation, Sum> || std::same_as<typename R::Operation, Avg>,
                  "Wire: sums and averages, of which the error is bounded");
    constexpr unsigned groupBytes = W::group * sizeof(T);
    int const ranks = Ranks != 0 ? Ranks : team.size;
    auto const rows = TwoShot::rows(static_cast<std::uint32_t>(ranks));
    auto const resultRow = static_cast<unsigned>(ranks);
    auto const rank = static_cast<unsigned>(team.rank);
    auto const thread = blocks.block().rank();

    typename W::Packets::template Session<B> session(team, blocks, rows);
    constexpr std::uint32_t leastSlots = W::slots * W::bundle;
    auto const threads = minimum<std::uint32_t>(session.threads(), session.rowSlots() / leastSlots * W::bundle);
    require(threads != 0, team.watch, -1, std::uint64_t(layout::Misuse::workspaceBytes),
            std::uint64_t{session.rowSlots()} * rows * W::Packets::slotBytes,
            std::uint64_t{leastSlots} * rows * W::Packets::slotBytes);
    // A warp takes part in moving values between its threads as a whole, however few of them have packets.
    bool const inWarp = thread < session.threads();
    auto const share =
        ceilDiv<std::uint64_t>(ceilDiv<std::uint64_t>(in.count, W::group), static_cast<std::uint64_t>(ranks));
    TilePartition const partition{share, threads / W::bundle * W::groupsOfBundle, W::groupsOfBundle,
                                  blocks.blockCount(), blocks.blockRank()};
    if (share == 0) return;

    auto const reader = readerOf<4, W::granule>(in);
    PayloadWriter<T, 4, W::granule> const writer(out);
    auto const tileBytes = std::uint64_t{partition.tile} * groupBytes;
    auto const own = W::groupOf(thread);
    for (std::uint64_t round = 0;;) {
      auto const tile = partition.at(round);
      bool const active = thread < threads && thread / W::bundle * W::groupsOfBundle < tile.exchanged;
      bool const valid = active && W::hasGroup(thread) && own < tile.valid;
      // Where this tile lies in the share of `owner`.
      auto const offsetOf = [&](int owner) {
        return (static_cast<std::uint64_t>(owner) * share + tile.first) * groupBytes;
      };
      auto const read = [&](int owner) {
        auto const source = reader.window(offsetOf(owner), tileBytes);
        return valid ? readGroup<W, R>(reader, source, own * groupBytes) : typename W::Values{};
      };
      auto const put = [&](int peer, unsigned row, typename W::Packed const& packed) {
        MSCCLPP_UNROLL
        for (unsigned i = 0; i < W::slots; ++i) {
          session.put(team.workspace(peer), row, i * threads + thread, packed.payload[i], active);
        }
      };
      auto const receive = [&](int peer, unsigned firstRow) {
        Source sources[W::slots];
        typename W::Packed packed;
        MSCCLPP_UNROLL
        for (unsigned i = 0; i < W::slots; ++i) {
          sources[i] = {peer, firstRow + static_cast<unsigned>(peer), i * threads + thread, active};
        }
        session.receive(sources, packed.payload);
        return W::unpack(packed, thread, inWarp);
      };
      auto const store = [&](int owner, typename W::Values const& values) {
        auto const offset = offsetOf(owner);
        auto const target = writer.window(offset, tileBytes);
        if (valid) storeGroup<W, R>(writer, target, epilogue, values, own * groupBytes, offset / sizeof(T));
      };

      if (round == 0) session.open();
      session.beginRound();
      for (int distance = 1; distance < ranks; ++distance) {
        auto const peer = team.peerAt(distance, ranks);
        put(peer, rank, W::pack(read(peer), thread, inWarp));
      }
      bool const last = partition.isLast(round);
      if (last) session.commit();
      session.exchange(0);

      typename W::Values totals{};
      for (int peer = 0; peer < ranks; ++peer) {
        R::combine(totals, peer == team.rank ? read(peer) : receive(peer, 0), peer);
      }
      R::finish(totals, ranks);
      auto const result = W::pack(totals, thread, inWarp);
      for (int distance = 1; distance < ranks; ++distance) {
        put(team.peerAt(distance, ranks), resultRow + rank, result);
      }
      store(team.rank, W::unpack(result, thread, inWarp));
      session.exchange(1);

      for (int distance = 1; distance < ranks; ++distance) {
        auto const peer = team.peerAt(distance, ranks);
        store(peer, receive(peer, resultRow));
      }
      if (last) return;
      session.endRound();
      round += partition.roundSlots();
    }
  }

 private:
  // 0 past the end, whatever a prologue has made of it: that must not count for the scale.
  template <class W, class R, class Reader, class Source>
  MSCCLPP_DEVICE static typename W::Values readGroup(Reader const& reader, Source const& source, std::uint32_t offset) {
    typename W::Values values{};
    constexpr unsigned each = 16 / R::elementBytes;
    MSCCLPP_UNROLL
    for (unsigned i = 0; i < W::group / each; ++i) {
      auto const at = offset + i * 16;
      auto const wide = R::widen(reader.read(source, at));
      MSCCLPP_UNROLL
      for (unsigned k = 0; k < each; ++k) {
        values[i * each + k] = at + k * R::elementBytes < source.bytes ? wide[k] : 0.0f;
      }
    }
    return values;
  }

  template <class W, class R, class Writer, class Target, class Epilogue>
  MSCCLPP_DEVICE static void storeGroup(Writer const& writer, Target const& target, Epilogue const& epilogue,
                                        typename W::Values const& values, std::uint32_t offset, std::uint64_t first) {
    constexpr unsigned each = 16 / R::elementBytes;
    MSCCLPP_UNROLL
    for (unsigned i = 0; i < W::group / each; ++i) {
      auto const at = offset + i * 16;
      if (at >= target.bytes) return;
      typename R::template Accumulators<4> part{};
      MSCCLPP_UNROLL
      for (unsigned k = 0; k < each; ++k) part[k] = values[i * each + k];
      writer.write(target, at,
                   R::template conclude<4>(epilogue, part, first + at / R::elementBytes, target.bytes - at));
    }
  }
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
