// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What Dispatch and Combine work with: the memory of host/fused/experts.hpp in a kernel, a rank's routing, and the
// pieces in which warps go through rows.
//
//   DeviceExperts const& experts                       a parameter of the kernel; Experts::deviceHandle()
//   Routing{indices, weights, tokens, topK}            which experts each of this rank's tokens goes to
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include "mscclpp/base/bits.hpp"
#include "mscclpp/base/config.hpp"
#include "mscclpp/device/copy.hpp"
#include "mscclpp/device/group.hpp"
#include "mscclpp/device/number.hpp"
#include "mscclpp/device/packet.hpp"
#include "mscclpp/device/poll.hpp"
#include "mscclpp/device/tiles/matrix_view.hpp"
#include "mscclpp/device/tiles/slots.hpp"
#include "mscclpp/device/tiles/tile_flags.hpp"
#include "mscclpp/device/vector.hpp"
#include "mscclpp/layout/experts_handle.hpp"

namespace mscclpp {

// Index and weight of a token's k-th expert lie at [token * topK + k], for the tokens of this rank. A negative index:
// none. An expert that a token names twice gets it twice. Without weights all are 1. What is not sent since the
// expert's rank has failed can be told, where memory for it is given.
template <class Index>
struct Routing {
  Index const* experts;
  float const* weights;
  std::uint32_t tokens;
  std::uint32_t topK;
  std::uint8_t* unsent = nullptr;        // [token * topK + k]: 1 or 0, by Dispatch
  std::uint32_t* unsentCount = nullptr;  // is counted up, likewise
  std::uint32_t gap = 0;                 // entries between those of two tokens, in both tables

  MSCCLPP_HOST_DEVICE constexpr Index const* of(std::uint32_t token) const { return experts + first(token); }
  MSCCLPP_HOST_DEVICE constexpr float weight(std::uint32_t token, std::uint32_t k) const {
    return weights == nullptr ? 1 : weights[first(token) + k];
  }

 private:
  MSCCLPP_HOST_DEVICE constexpr std::size_t first(std::uint32_t token) const {
    return std::size_t{token} * (topK + gap);
  }
};

template <class I>
Routing(I const*, float const*, std::uint32_t, std::uint32_t) -> Routing<I>;

inline namespace MSCCLPP_BACKEND {

// Taken by value and passed on by reference, as DeviceTeam.
struct DeviceExperts {
  static constexpr unsigned rankShift = 22;

  layout::ExpertsLayout layout;
  layout::WindowHandle window;
  DeviceTileFlags flags;
  std::int32_t const* failed;
  std::uint32_t unitsOfExpert;  // 2^22 / layout.perRank, rounded up

  DeviceExperts() = default;
  MSCCLPP_HOST_DEVICE DeviceExperts(layout::ExpertsHandle const& handle)
      : layout(handle.layout),
        window(handle.window),
        flags(handle.flags),
        failed(handle.failed),
        unitsOfExpert(ceilDiv(1u << rankShift, handle.layout.perRank)) {}

  MSCCLPP_DEVICE int rank() const { return flags.rank; }
  MSCCLPP_DEVICE int size() const { return flags.size; }
  // Nothing is sent to such a rank, and nothing of it awaited.
  MSCCLPP_DEVICE bool hasFailed(int of) const { return failed != nullptr && of != rank() && failed[of] != 0; }
  // expert / perRank without a division, as there are at most 512 = 2^9 experts, and so 2^9 of a rank: what is rounded
  // up makes less than 2^18 units.
  template <std::integral I>
  MSCCLPP_DEVICE int rankOf(I expert) const {
    return static_cast<int>(static_cast<std::uint32_t>(expert) * unitsOfExpert >> rankShift);
  }

  // In the memory of rank `at`, what `source` has sent there.
  template <class T>
  MSCCLPP_DEVICE T* row(int at, int source, std::uint32_t slot) const {
    return reinterpret_cast<T*>(window.bases[at] + layout.rows + place(source, slot) * layout.rowBytes);
  }
  MSCCLPP_DEVICE float* scales(int at, int source, std::uint32_t slot) const {
    return reinterpret_cast<float*>(window.bases[at] + layout.scales) + place(source, slot) * layout.scalesOfRow;
  }
  MSCCLPP_DEVICE layout::ExpertRow& head(int at, int source, std::uint32_t slot) const {
    return reinterpret_cast<layout::ExpertRow*>(window.bases[at] + layout.heads)[place(source, slot)];
  }
  // Packets, of LL8, of which each round that dispatches writes all: tokens for each expert, then rows.
  MSCCLPP_DEVICE std::byte* count(int at, int source, std::uint32_t number) const {
    auto const first = static_cast<std::uint32_t>(source) * (layout.perRank + 1);
    return window.bases[at] + layout.counts + std::size_t{first + number} * LL8::slotBytes;
  }
  // Of the rows that `source` has sent here, where they have come.
  MSCCLPP_DEVICE std::uint32_t rowsFrom(int source) const {
    return LL8::payloadOf(LL8::load(count(rank(), source, layout.perRank))).word[0];
  }
  template <class T>
  MSCCLPP_DEVICE T* part(int home, std::uint32_t token, std::uint32_t part) const {
    auto const number = std::size_t{token} * layout.partsOfToken + part;
    return reinterpret_cast<T*>(window.bases[home] + layout.parts + number * layout.partBytes);
  }

  // Refuse what the memory was not made for.
  MSCCLPP_DEVICE void requireLimit(std::uint64_t given, std::uint64_t limit) const {
    require(given <= limit, flags.watch, -1, std::uint64_t(layout::Misuse::expertLimit), limit, given);
  }
  template <class T>
  MSCCLPP_DEVICE void check(MatrixView<T> const& rows) const {
    requireLimit(sizeof(T), layout.limits.elementBytes);
    require(rows.columns == layout.limits.hidden, flags.watch, -1, std::uint64_t(layout::Misuse::expertLimit),
            layout.limits.hidden, rows.columns);
  }
  // A row for each token.
  template <class I, class T>
  MSCCLPP_DEVICE void check(Routing<I> const& routing, MatrixView<T> const& rows) const {
    check(rows);
    requireLimit(routing.topK, layout.limits.topK);
    requireLimit(routing.tokens, minimum<std::uint64_t>(layout.limits.tokens, rows.rows));
  }
  MSCCLPP_DEVICE void requireWholeWarps() const {
    auto const threads = arch::blockThreads();
    require(threads % arch::warpSize == 0, flags.watch, -1, std::uint64_t(layout::Misuse::blockThreads),
            roundUp(threads, arch::warpSize), threads);
  }

 private:
  MSCCLPP_DEVICE std::size_t place(int source, std::uint32_t slot) const {
    return static_cast<std::size_t>(source) * layout.limits.tokens + slot;
  }
};

namespace impl {

// Some columns of a row, by which a warp goes through it.
struct RowPiece {
  std::uint32_t first;
  std::uint32_t count;

  MSCCLPP_DEVICE static RowPiece of(layout::ExpertsLayout const& layout, std::uint32_t number) {
    auto const first = number * layout.pieceColumns;
    return {first, minimum(layout.pieceColumns, layout.limits.hidden - first)};
  }
};

// The warps of blocks, as those that share out work: where there is little, each block gets some.
struct Warps {
  std::uint32_t rank, count;

  template <BlockSet B>
  MSCCLPP_DEVICE static Warps of(B const& blocks) {
    auto const own = ofBlock();
    return {own.rank * blocks.blockCount() + blocks.blockRank(), own.count * blocks.blockCount()};
  }
  MSCCLPP_DEVICE static Warps ofBlock() {
    return {arch::threadIndex() / arch::warpSize, arch::blockThreads() / arch::warpSize};
  }
};

// Vectors of N elements of a piece of a row, of which a lane has two at a time: vector i begins at element at(i) of the
// piece, and count(i) of its elements are there, with Whole all or none.
inline constexpr unsigned vectorsAtATime = 2;
template <unsigned N, bool Whole>
struct LaneVectors {
  std::uint32_t first, end;

  MSCCLPP_DEVICE std::uint32_t at(unsigned i) const { return first + i * arch::warpSize * N; }
  MSCCLPP_DEVICE std::uint32_t count(unsigned i) const { return at(i) < end ? minimum(N, end - at(i)) : 0; }
  // Of a piece that begins there.
  template <class T>
  MSCCLPP_DEVICE void load(Payload<4>& to, unsigned i, T const* piece) const {
    loadElements<Whole>(to, piece + at(i), count(i));
  }
  template <class T>
  MSCCLPP_DEVICE void store(unsigned i, T* piece, Vector<T, N> const& values) const {
    storeElements<N>(piece + at(i), values, count(i), Whole);
  }
};

// By a warp: f(LaneVectors) for all vectors of a piece. `whole`: what is loaded and stored lies at multiples of 16
// bytes.
template <unsigned N, class F>
MSCCLPP_DEVICE void forEachVectors(std::uint32_t count, bool whole, F const& f) {
  withConstant(whole && count % N == 0, [&](auto all) {
    auto const own = thisWarp().rank() * N;
    for (std::uint32_t first = 0; first < count; first += vectorsAtATime * arch::warpSize * N) {
      f(LaneVectors<N, decltype(all)::value>{first + own, count});
    }
  });
}

MSCCLPP_DEVICE unsigned bitsSet(std::uint32_t word) {
  word -= word >> 1 & 0x55555555u;
  word = (word & 0x33333333u) + (word >> 2 & 0x33333333u);
  return ((word + (word >> 4)) & 0x0f0f0f0fu) * 0x01010101u >> 24;
}

// Some of the ranks.
struct RankSet {
  std::uint64_t low, high;
  static_assert(maxTeamSize <= 128);

  MSCCLPP_DEVICE bool has(int rank) const { return ((rank < 64 ? low : high) >> rank % 64 & 1) != 0; }
  // Whether it was not there.
  MSCCLPP_DEVICE bool add(int rank) {
    bool const is = has(rank);
    (rank < 64 ? low : high) |= std::uint64_t{1} << rank % 64;
    return !is;
  }
};

// By a warp: a part of a row, read once, to each place that each(found, f) calls f(to) for, by all lanes. `found` is
// what find() gives, which is asked behind the first loads, and returned. `whole`: all places lie at multiples of 16
// bytes.
template <class T, class Find, class Each>
MSCCLPP_DEVICE auto copyToEach(T const* from, std::uint32_t count, bool whole, Find const& find, Each const& each) {
  constexpr unsigned together = 4;  // loads on their way
  auto const bytes = count * static_cast<std::uint32_t>(sizeof(T));
  auto const words = whole && bytes % 16 == 0 ? bytes / 16 : 0;
  auto const* const source = reinterpret_cast<Payload<4> const*>(from);
  Payload<4> held[together];
  arch::leaveUnset(held);
  std::uint32_t first = 0;
  auto const inTurn = [&](auto const& f) {
    auto const at = first + thisWarp().rank();
    MSCCLPP_UNROLL
    for (unsigned i = 0; i < together; ++i) {
      if (at + i * arch::warpSize < words) f(at + i * arch::warpSize, held[i]);
    }
  };
  auto const load = [&] { inTurn([&](std::uint32_t word, Payload<4>& to) { to = source[word]; }); };
  load();
  auto const found = find();
  while (first < words) {
    each(found, [&](T* to) {
      inTurn([&](std::uint32_t word, Payload<4> const& value) { reinterpret_cast<Payload<4>*>(to)[word] = value; });
    });
    first += together * arch::warpSize;
    load();
  }
  if (words == 0) each(found, [&](T* to) { copy(thisWarp(), to, from, bytes); });
  return found;
}

// What a token's experts have to do with a row that a warp works on: found by a lane each, in the block's shared memory
// for all lanes.
struct ExpertTerm {
  std::uint32_t row;  // noExpertRow: nothing
  float weight;
};
class ExpertTerms {
 public:
  // All lanes call; f(k) is asked by lane k, for each k below `count`.
  template <class F>
  MSCCLPP_DEVICE ExpertTerms(std::uint32_t count, F const& f) : ExpertTerms(count) {
    auto const warp = thisWarp();
    warp.sync();  // all have read the ones before
    if (warp.rank() < count) terms_[warp.rank()] = f(warp.rank());
    syncWhole(warp);
  }
  // Of a term for each lane those that have something to do, in the same order.
  MSCCLPP_DEVICE static ExpertTerms packed(ExpertTerm const& term) {
    auto const warp = thisWarp();
    bool const isThere = term.row != layout::noExpertRow;
    auto const there = arch::ballot(isThere);
    ExpertTerms const terms(bitsSet(there));
    warp.sync();
    if (isThere) terms.terms_[bitsSet(there & ((1u << warp.rank()) - 1))] = term;
    syncWhole(warp);
    return terms;
  }

  MSCCLPP_DEVICE std::uint32_t count() const { return count_; }
  MSCCLPP_DEVICE std::uint32_t row(std::uint32_t k) const { return terms_[k].row; }
  template <class F>
  MSCCLPP_DEVICE void forEachRow(F const& f) const {
    for (std::uint32_t k = 0; k < count_; ++k) {
      if (row(k) != layout::noExpertRow) f(row(k));
    }
  }

  // Of packed terms, the sums of weight times what fetch(held, first) takes, for the terms from `first` on, in the
  // order of the experts.
  static constexpr unsigned together = 4;  // rows whose loads are on their way
  using Held = Payload<4>[together * vectorsAtATime];
  template <class T, unsigned N, class Fetch>
  MSCCLPP_DEVICE void sum(Vector<float, N> (&totals)[vectorsAtATime], Fetch const& fetch) const {
    MSCCLPP_UNROLL
    for (auto& total : totals) total = {};
    for (std::uint32_t first = 0; first < count_; first += together) {
      Held held;
      arch::leaveUnset(held);
      fetch(held, first);
      MSCCLPP_UNROLL
      for (unsigned i = 0; i < together * vectorsAtATime; ++i) {
        auto const term = first + i / vectorsAtATime;
        if (term >= count_) continue;
        auto const weight = terms_[term].weight;
        auto const values = unpack<T>(held[i]);
        auto& total = totals[i % vectorsAtATime];
        MSCCLPP_UNROLL
        for (unsigned k = 0; k < N; ++k) total[k] = total[k] + static_cast<float>(values[k]) * weight;
      }
    }
  }
  // load(held, row, i) for vector i of each of them.
  template <class Load>
  MSCCLPP_DEVICE void loadEach(Held& held, std::uint32_t first, Load const& load) const {
    MSCCLPP_UNROLL
    for (unsigned i = 0; i < together * vectorsAtATime; ++i) {
      auto const term = first + i / vectorsAtATime;
      if (term < count_) load(held[i], row(term), i % vectorsAtATime);
    }
  }

 private:
  struct Table {
    ExpertTerm of[32][layout::ExpertLimits::mostTopK];
  };

  MSCCLPP_DEVICE explicit ExpertTerms(std::uint32_t count)
      : count_(count), terms_(arch::blockShared<Table, ExpertTerms>().of[Warps::ofBlock().rank]) {}

  std::uint32_t count_;
  ExpertTerm* terms_;
};

}  // namespace impl
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
