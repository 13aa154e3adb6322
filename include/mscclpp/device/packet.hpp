// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Packets: data that carries its own flag, so that the receiver needs no signal. A slot is written by a peer and polled
// here until its flag is the awaited one; then its data is whole, with no fence on either side.
//
//   kind   slot   payload  written by         whole because
//   LL8     8 B     4 B    one thread         one 8-byte store
//   LL16   16 B     8 B    one thread         each 8-byte half has its own flag
//   LL128  16 B*   15 B*   a whole warp       the link delivers 128-byte lines whole (NVLink does, PCIe does not)
//   *: of a line of 8 slots, 120 bytes are data and the last 8 are the flag
//
// A slot's flag must differ each time the slot is used; 0 is what fresh memory holds and never a flag.
// A `Format` is a stateless type: `P::store(slot, payload, flag, active)`; `P::load(slot)` for the raw slot, of which
// `P::lacks(raw, flag)`, `P::seenIn(raw, flag)` and `P::payloadOf(raw)` tell the rest. LL128's functions are called by
// all 32 lanes of a warp, its load with `active` as well, the same for the 8 lanes of a line, and a line is whole when
// no lane lacks its flag. `awaitPacket` waits for one slot, `awaitPackets` for some at once.
#pragma once

#include <concepts>
#include <cstdint>

#include "mscclpp/device/memory.hpp"
#include "mscclpp/device/multimem.hpp"
#include "mscclpp/device/poll.hpp"
#include "mscclpp/device/thread.hpp"
#include "mscclpp/device/vector.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

// Which region of a workspace slots lie in: LL8 and LL16 share one, the lines of LL128 have their own.
enum class PacketRegion : std::uint8_t { packets, lines };

struct LL8 {
  using Raw = Words2;
  static constexpr unsigned words = 1;  // of payload in registers
  static constexpr unsigned slotBytes = 8;
  static constexpr unsigned granule = 4;        // user data is accessed in pieces of this many bytes
  static constexpr unsigned slotsPerGroup = 1;  // slots that belong together
  static constexpr bool wholeWarp = false;
  static constexpr PacketRegion region = PacketRegion::packets;

  // Slot `slot` carries dataBytes(slot) bytes of the message, from dataOffset(slot) on; the message takes
  // slotsFor(bytes) slots.
  template <class U>
  MSCCLPP_DEVICE static constexpr U dataOffset(U slot) {
    return slot * 4;
  }
  MSCCLPP_DEVICE static constexpr unsigned dataBytes(std::uint32_t) { return 4; }
  MSCCLPP_HOST_DEVICE static constexpr std::uint64_t slotsFor(std::uint64_t bytes) { return (bytes + 3) / 4; }

  MSCCLPP_DEVICE static void store(std::byte* slot, Payload<1> const& payload, std::uint32_t flag, bool active) {
    if (active) storeWords2(reinterpret_cast<Words2*>(slot), Words2{{payload.word[0], flag}});
  }
  // Into every rank's slot; `slot` is a multicast address.
  MSCCLPP_DEVICE static void storeMulticast(std::byte* slot, Payload<1> const& payload, std::uint32_t flag) {
    auto const whole = std::uint64_t{flag} << 32 | payload.word[0];
    multimemStore<Order::relaxed, Scope::system>(reinterpret_cast<std::uint64_t*>(slot), whole);
  }
  MSCCLPP_DEVICE static Raw load(std::byte const* slot) { return loadWords2(reinterpret_cast<Words2 const*>(slot)); }
  MSCCLPP_DEVICE static bool lacks(Raw const& raw, std::uint32_t flag) { return raw.w[1] != flag; }
  MSCCLPP_DEVICE static std::uint64_t seenIn(Raw const& raw, std::uint32_t) { return raw.w[1]; }
  MSCCLPP_DEVICE static Payload<1> payloadOf(Raw const& raw) { return {{raw.w[0]}}; }
};

struct LL16 {
  using Raw = Words4;
  static constexpr unsigned words = 2;
  static constexpr unsigned slotBytes = 16;
  static constexpr unsigned granule = 8;
  static constexpr unsigned slotsPerGroup = 1;
  static constexpr bool wholeWarp = false;
  static constexpr PacketRegion region = PacketRegion::packets;

  template <class U>
  MSCCLPP_DEVICE static constexpr U dataOffset(U slot) {
    return slot * 8;
  }
  MSCCLPP_DEVICE static constexpr unsigned dataBytes(std::uint32_t) { return 8; }
  MSCCLPP_HOST_DEVICE static constexpr std::uint64_t slotsFor(std::uint64_t bytes) { return (bytes + 7) / 8; }

  MSCCLPP_DEVICE static void store(std::byte* slot, Payload<2> const& payload, std::uint32_t flag, bool active) {
    if (active) storeWords4(reinterpret_cast<Words4*>(slot), Words4{{payload.word[0], flag, payload.word[1], flag}});
  }
  // The switch delivers no more than 8 bytes whole, and each half has its flag.
  MSCCLPP_DEVICE static void storeMulticast(std::byte* slot, Payload<2> const& payload, std::uint32_t flag) {
    LL8::storeMulticast(slot, {{payload.word[0]}}, flag);
    LL8::storeMulticast(slot + 8, {{payload.word[1]}}, flag);
  }
  MSCCLPP_DEVICE static Raw load(std::byte const* slot) { return loadWords4(reinterpret_cast<Words4 const*>(slot)); }
  MSCCLPP_DEVICE static bool lacks(Raw const& raw, std::uint32_t flag) { return raw.w[1] != flag || raw.w[3] != flag; }
  MSCCLPP_DEVICE static std::uint64_t seenIn(Raw const& raw, std::uint32_t flag) {
    return raw.w[1] == flag ? raw.w[3] : raw.w[1];
  }
  MSCCLPP_DEVICE static Payload<2> payloadOf(Raw const& raw) { return {{raw.w[0], raw.w[2]}}; }
};

struct LL128 {
  using Raw = Words4;
  static constexpr unsigned words = 4;
  static constexpr unsigned slotBytes = 16;
  static constexpr unsigned granule = 8;
  static constexpr unsigned slotsPerGroup = 8;
  static constexpr bool wholeWarp = true;
  static constexpr PacketRegion region = PacketRegion::lines;

  // In whole lines: 8 slots for each 120 bytes.
  template <class U>
  MSCCLPP_DEVICE static constexpr U dataOffset(U slot) {
    return slot / 8 * 120 + slot % 8 * 16;
  }
  MSCCLPP_DEVICE static constexpr unsigned dataBytes(std::uint32_t slot) { return slot % 8 == 7 ? 8 : 16; }
  MSCCLPP_HOST_DEVICE static constexpr std::uint64_t slotsFor(std::uint64_t bytes) { return (bytes + 119) / 120 * 8; }

  // Slot number modulo 8 is the lane modulo 8: lane 7 of each line carries the flag, twice.
  MSCCLPP_DEVICE static bool carriesFlag() { return arch::threadIndex() % 8 == 7; }

  MSCCLPP_DEVICE static void store(std::byte* slot, Payload<4> const& payload, std::uint32_t flag, bool active) {
    bool const last = carriesFlag();
    storeLines(reinterpret_cast<Words4*>(slot),
               Words4{{payload.word[0], payload.word[1], last ? flag : payload.word[2], last ? flag : payload.word[3]}},
               active);
  }
  MSCCLPP_DEVICE static Raw load(std::byte const* slot, bool active) {
    return loadLines(reinterpret_cast<Words4 const*>(slot), active);
  }
  // Each lane says it of the flag that it carries. Without branches, since warps poll with it.
  MSCCLPP_DEVICE static bool lacks(Raw const& raw, std::uint32_t flag) {
    return carriesFlag() & ((raw.w[2] != flag) | (raw.w[3] != flag));
  }
  MSCCLPP_DEVICE static std::uint64_t seenIn(Raw const& raw, std::uint32_t) { return carriesFlag() ? raw.w[2] : 0; }
  MSCCLPP_DEVICE static Payload<4> payloadOf(Raw const& raw) { return {{raw.w[0], raw.w[1], raw.w[2], raw.w[3]}}; }
};

// No others: code goes by what these three are.
template <class P>
concept PacketFormat = std::same_as<P, LL8> || std::same_as<P, LL16> || std::same_as<P, LL128>;

// Those that a switch can deliver to all at once.
template <class P>
concept MulticastPacketFormat = PacketFormat<P> && !P::wholeWarp;

// Waits until each active slot holds the flag, and takes their payloads; those of the others are left as they are. All
// are looked at in each turn, so that the last to arrive costs one look, not one look per slot. `waitFor(i)` says what
// slot `i` is, for reports.
template <PacketFormat P, unsigned Count, class What>
MSCCLPP_DEVICE void awaitPackets(layout::Watch* watch, std::byte const* const (&slots)[Count],
                                 bool const (&active)[Count], std::uint32_t flag, Payload<P::words> (&payloads)[Count],
                                 What&& waitFor) {
  typename P::Raw raw[Count];
  bool awaited = true;
  if constexpr (P::wholeWarp) {
    // The lanes of an incomplete warp have no slots.
    bool any = false;
    MSCCLPP_UNROLL
    for (unsigned i = 0; i < Count; ++i) any |= active[i];
    awaited = arch::warpAny(any);
  }
  auto const look = [&] {
    MSCCLPP_UNROLL
    for (unsigned i = 0; i < Count; ++i) {
      if constexpr (P::wholeWarp) {
        raw[i] = P::load(slots[i], active[i]);
      } else if (active[i]) {
        raw[i] = P::load(slots[i]);
      }
    }
    bool missing = false;
    MSCCLPP_UNROLL
    for (unsigned i = 0; i < Count; ++i) {
      if constexpr (P::wholeWarp) {
        missing |= active[i] & P::lacks(raw[i], flag);
      } else {
        missing = (active[i] && P::lacks(raw[i], flag)) || missing;
      }
    }
    // A lane that has given up looks at no flag any more, and hands nothing on: then no other lane goes on either.
    return P::wholeWarp ? !awaited || arch::ballot(!missing) == 0xffffffffu : !missing;
  };
  pollUntil(watch, look, [&](std::uint64_t& seen) {
    WaitFor what = waitFor(0);
    MSCCLPP_UNROLL
    for (unsigned i = 0; i < Count; ++i) {
      if (!active[i] || !P::lacks(raw[i], flag)) continue;
      seen = P::seenIn(raw[i], flag);
      what = waitFor(i);
    }
    return what;
  });
  MSCCLPP_UNROLL
  for (unsigned i = 0; i < Count; ++i) {
    if (active[i]) payloads[i] = P::payloadOf(raw[i]);
  }
}

template <PacketFormat P>
MSCCLPP_DEVICE Payload<P::words> awaitPacket(layout::Watch* watch, std::byte const* slot, std::uint32_t flag,
                                             WaitFor const& what) {
  Payload<P::words> payloads[1]{};
  awaitPackets<P>(watch, {slot}, {true}, flag, payloads, [&](unsigned) { return what; });
  return payloads[0];
}

// Flag of a round: odd, so never 0, and the same again after layout::flagPeriod rounds, before which whoever reuses
// slots clears them.
MSCCLPP_HOST_DEVICE constexpr std::uint32_t packetFlag(std::uint64_t epoch) {
  return static_cast<std::uint32_t>(epoch << 1) | 1u;
}
// The round, modulo layout::flagPeriod.
MSCCLPP_HOST_DEVICE constexpr std::uint32_t roundOf(std::uint32_t flag) { return flag >> 1; }

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
