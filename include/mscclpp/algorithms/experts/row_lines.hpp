// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rows as packets, on their way to experts and home: lines of 128 bytes as those of LL128 (device/packet.hpp), of which
// each has its flag. Who finds the flag has the line, without a fence on either side.
//
// A row is its head's lines and behind them those of each of its pieces. A warp goes through a piece in steps of eight
// lines; each lane has a slot of 16 bytes in two of them, numbers 0 and 1: those of its eight lanes, and those four
// lines further on. The last slot of each line has 8 bytes and the flag.
//   plain    60 words of 16 bytes. The last lane of eight has one in both its slots, half in each
//   scaled   seven groups of 128 columns that share a scale, a line each. The eighth line has of each what is left: its
//            last 8 columns, and the scale
// So all columns are read and written 16 bytes at a time, and a scale is found by eight lanes. A part home is the same
// without a head, and plain.
//
// A flag is the number of its round, of 64 bits. It never comes again, so nothing is ever cleared, and what is left of
// an earlier round is never taken. There is one buffer: who writes a line has heard that its reader has begun this
// round (TileRound::ready()), so that the kernel that read the line before has ended.
//
// All lanes of a warp call everything here. Cost: 128 bytes for 120; of scaled groups, for 115.5.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/base/bits.hpp"
#include "mscclpp/base/config.hpp"
#include "mscclpp/device/memory.hpp"
#include "mscclpp/device/packet.hpp"
#include "mscclpp/device/poll.hpp"
#include "mscclpp/device/thread.hpp"
#include "mscclpp/device/tiles/slots.hpp"
#include "mscclpp/device/vector.hpp"
#include "mscclpp/layout/experts_handle.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace impl {

// In place of the last two words of a line.
struct LineFlag {
  std::uint32_t low, high;

  MSCCLPP_DEVICE static LineFlag of(std::uint64_t round) {
    return {static_cast<std::uint32_t>(round), static_cast<std::uint32_t>(round >> 32)};
  }
  MSCCLPP_DEVICE Words4 behind(std::uint32_t first, std::uint32_t second) const { return {{first, second, low, high}}; }
  // Without branches, since warps poll with it.
  MSCCLPP_DEVICE bool isLacking(Words4 const& slot) const {
    return LL128::carriesFlag() & ((slot.w[2] != low) | (slot.w[3] != high));
  }
};

// What a lane has of a step: vectors 0 and 1 of N elements. Vector i begins at element at(i) of the piece, and count(i)
// of its elements are there, with Whole all or none; lane by lane isThere(i) is the same for the slots of a line.
template <unsigned N, bool Scaled, bool Whole>
struct LineVectors {
  using Layout = layout::ExpertsLayout;
  static constexpr std::uint32_t columns = Scaled ? Layout::stepGroups * Layout::scaleColumns : Layout::stepWords * N;
  static_assert(!Scaled || N * 8 == Layout::scaleColumns);

  std::uint32_t first, end;  // of the step and of the piece

  MSCCLPP_DEVICE std::uint32_t step() const { return first / columns; }  // its number
  MSCCLPP_DEVICE static unsigned slot() { return arch::threadIndex() % 8; }
  MSCCLPP_DEVICE static unsigned line(unsigned i) { return i * 4 + arch::threadIndex() % arch::warpSize / 8; }
  MSCCLPP_DEVICE std::uint32_t at(unsigned i) const {
    if constexpr (Scaled) return first + line(i) * Layout::scaleColumns + slot() * N;
    return first + (slot() < 7 ? line(i) * 7 + slot() : 56 + line(0)) * N;
  }
  MSCCLPP_DEVICE std::uint32_t count(unsigned i) const {
    bool const has = i == 0 || (Scaled ? line(1) < Layout::stepGroups : slot() < 7);
    return has && at(i) < end ? minimum(N, end - at(i)) : 0;
  }
  MSCCLPP_DEVICE bool isThere(unsigned i) const {
    if constexpr (Scaled) return line(i) == Layout::stepGroups || first + line(i) * Layout::scaleColumns < end;
    return first + line(i) * 7 * N < end;
  }
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

// This lane's slots of a step, on their way.
struct LineSlots {
  Words4 of[2];

  MSCCLPP_DEVICE static LineSlots plain(Payload<4> const (&own)[2], LineFlag const& flag) {
    auto const &a = own[0].word, &b = own[1].word;
    if (LL128::carriesFlag()) return {{flag.behind(a[0], a[1]), flag.behind(a[2], a[3])}};
    return {{{{a[0], a[1], a[2], a[3]}}, {{b[0], b[1], b[2], b[3]}}}};
  }
  // `scale`: of the group of each, known to all lanes of the line.
  MSCCLPP_DEVICE static LineSlots scaled(Payload<4> const (&own)[2], float const (&scale)[2], LineFlag const& flag) {
    // The lane at the end of the line whose rest this one has if its own is the eighth.
    auto const from = arch::threadIndex() % 4 * 8 + 7;
    bool const ofSecond = arch::threadIndex() % 8 >= 4;
    Rest rest[2];
    MSCCLPP_UNROLL
    for (unsigned i = 0; i < 2; ++i) rest[i] = arch::shuffle(Rest{own[i].word[2], own[i].word[3], scale[i]}, from);
    // No index, which would put them on the stack.
    Rest const mine{ofSecond ? rest[1].low : rest[0].low, ofSecond ? rest[1].high : rest[0].high,
                    ofSecond ? rest[1].scale : rest[0].scale};
    bool const isLast = arch::threadIndex() % arch::warpSize >= 24;
    LineSlots slots{};
    MSCCLPP_UNROLL
    for (unsigned i = 0; i < 2; ++i) {
      auto const& w = own[i].word;
      slots.of[i] = LL128::carriesFlag() ? flag.behind(w[0], w[1]) : Words4{{w[0], w[1], w[2], w[3]}};
    }
    if (isLast && !LL128::carriesFlag()) slots.of[1] = {{mine.low, mine.high, bitCast<std::uint32_t>(mine.scale), 0}};
    return slots;
  }

  MSCCLPP_DEVICE void takePlain(Payload<4> (&own)[2]) const {
    auto const &a = of[0].w, &b = of[1].w;
    bool const last = LL128::carriesFlag();
    own[0] = {{a[0], a[1], last ? b[0] : a[2], last ? b[1] : a[3]}};
    own[1] = {{b[0], b[1], b[2], b[3]}};
  }
  MSCCLPP_DEVICE void takeScaled(Payload<4> (&own)[2], float (&scale)[2]) const {
    bool const last = LL128::carriesFlag();
    MSCCLPP_UNROLL
    for (unsigned i = 0; i < 2; ++i) {
      auto const& w = of[i].w;
      auto const rest = arch::shuffle(Rest{of[1].w[0], of[1].w[1], bitCast<float>(of[1].w[2])},
                                      24 + i * 4 + arch::threadIndex() % arch::warpSize / 8);
      own[i] = {{w[0], w[1], last ? rest.low : w[2], last ? rest.high : w[3]}};
      scale[i] = rest.scale;
    }
  }

  // Where this lane's slot of lines `i` of a step lies.
  template <class Byte>
  MSCCLPP_DEVICE static auto place(Byte* step, unsigned i) {
    using Slot = std::conditional_t<std::is_const_v<Byte>, Words4 const, Words4>;
    return reinterpret_cast<Slot*>(step) + i * arch::warpSize + arch::threadIndex() % arch::warpSize;
  }
  template <class V>
  MSCCLPP_DEVICE void store(std::byte* step, V const& vectors) const {
    MSCCLPP_UNROLL
    for (unsigned i = 0; i < 2; ++i) storeLines(place(step, i), of[i], vectors.isThere(i));
  }

 private:
  struct Rest {
    std::uint32_t low, high;
    float scale;
  };
};

// By a warp: f(LineVectors) for all steps of a piece that is plain. `whole`: what is loaded and
// stored lies at multiples of 16 bytes.
template <unsigned N, class F>
MSCCLPP_DEVICE void forEachLines(std::uint32_t count, bool whole, F const& f) {
  withConstant(whole && count % N == 0, [&](auto all) {
    using Vectors = LineVectors<N, false, decltype(all)::value>;
    for (std::uint32_t first = 0; first < count; first += Vectors::columns) f(Vectors{first, count});
  });
}

// From one step to the next.
inline constexpr std::uint32_t lineStepBytes = layout::ExpertsLayout::stepLines * layout::ExpertsLayout::lineBytes;

// Waits until all that are `there` of the slots at place(i) have come. They are all loaded before one is looked at, and
// looked at together, so that the last to come costs one look. what(i) is for reports.
template <unsigned Count, class Place, class What>
MSCCLPP_DEVICE void awaitLines(layout::Watch* watch, Place const& place, bool const (&there)[Count],
                               LineFlag const& flag, Words4 (&slots)[Count], What const& what) {
  bool any = false;
  MSCCLPP_UNROLL
  for (unsigned i = 0; i < Count; ++i) any |= there[i];
  bool const awaited = arch::warpAny(any);
  auto const look = [&] {
    MSCCLPP_UNROLL
    for (unsigned i = 0; i < Count; ++i) slots[i] = loadLines(place(i), there[i]);
    bool missing = false;
    MSCCLPP_UNROLL
    for (unsigned i = 0; i < Count; ++i) missing |= there[i] & flag.isLacking(slots[i]);
    // A lane that has given up hands nothing on: then no other lane goes on either.
    return !awaited || arch::ballot(!missing) == 0xffffffffu;
  };
  pollUntil(watch, look, [&](std::uint64_t& seen) {
    unsigned lacking = 0;
    MSCCLPP_UNROLL
    for (unsigned i = 0; i < Count; ++i) {
      if (!there[i] || !flag.isLacking(slots[i])) continue;
      seen = std::uint64_t{slots[i].w[3]} << 32 | slots[i].w[2];
      lacking = i;
    }
    return what(lacking);
  });
}

// A row's head, of whose experts each lane has one.
struct LaneHead {
  layout::ExpertEntry entry{.expert = -1, .position = 0, .weight = 0, .row = layout::noExpertRow};
  std::uint32_t token = 0, part = 0, row = layout::noExpertRow;

  // In memory, but for the rows, which other warps may be noting.
  MSCCLPP_DEVICE static LaneHead read(layout::ExpertRow const& from, std::uint32_t topK) {
    auto const lane = arch::threadIndex() % arch::warpSize;
    LaneHead head;
    if (lane < topK) {
      auto const& entry = from.entries[lane];
      head.entry = {entry.expert, entry.position, entry.weight, layout::noExpertRow};
    }
    head.token = from.token;
    head.part = from.part;
    return head;
  }
  MSCCLPP_DEVICE void noteRows(layout::ExpertRow& to, std::uint32_t topK) const {
    auto const lane = arch::threadIndex() % arch::warpSize;
    if (lane < topK) to.entries[lane].row = entry.row;
    if (lane == 0) to.row = row;
  }
  MSCCLPP_DEVICE void write(layout::ExpertRow& to, std::uint32_t topK) const {
    auto const lane = arch::threadIndex() % arch::warpSize;
    if (lane < topK) to.entries[lane] = entry;
    if (lane != 0) return;
    to.token = token;
    to.part = part;
    to.row = row;
  }

  // As lines, at the beginning of a row, without the rows: units of 8 bytes, the token and its part, then the experts.
  MSCCLPP_DEVICE void store(std::byte* lines, std::uint32_t count, LineFlag const& flag) const {
    auto const lane = arch::threadIndex() % arch::warpSize;
    Unit const own{(static_cast<std::uint32_t>(entry.expert) & 0xffff) | entry.position << 16,
                   bitCast<std::uint32_t>(entry.weight)};
    auto const unit = lane / 8 * 15 + lane % 8 * 2;
    auto first = arch::shuffle(own, unit == 0 ? 0 : unit - 1);
    auto const second = arch::shuffle(own, unit);
    if (unit == 0) first = {token, part};
    auto const slot = LL128::carriesFlag() ? flag.behind(first.low, first.high)
                                           : Words4{{first.low, first.high, second.low, second.high}};
    storeLines(LineSlots::place(lines, 0), slot, lane / 8 < count);
  }
  // By all lanes, from the slot of each.
  MSCCLPP_DEVICE static LaneHead of(Words4 const& slot, std::uint32_t topK) {
    auto const lane = arch::threadIndex() % arch::warpSize;
    auto const unit = lane + 1;
    auto const held = arch::shuffle(slot, unit / 15 * 8 + unit % 15 / 2);
    bool const isSecond = unit % 15 % 2 == 1;
    auto const placeOf = isSecond ? held.w[2] : held.w[0];
    LaneHead head;
    head.token = arch::shuffle(slot.w[0], 0);
    head.part = arch::shuffle(slot.w[1], 0);
    if (lane >= topK) return head;
    auto const expert = static_cast<std::int16_t>(placeOf & 0xffff);
    head.entry.expert = expert;
    head.entry.position = expert < 0 ? 0 : placeOf >> 16;
    head.entry.weight = bitCast<float>(isSecond ? held.w[3] : held.w[1]);
    return head;
  }

 private:
  struct Unit {
    std::uint32_t low, high;
  };
};

}  // namespace impl
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
