// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a kernel pushes to a proxy: 128 bits, of which the last belongs to the FIFO.
//
//   fst  size [31:0]  source offset [63:32]
//   snd  target offset [31:0]  source memory [40:32]  target memory [49:41]  type [52:50]  semaphore [62:53]
//        parity [63]
//
// This is the format of MSCCL++. A user's own handler may give all but the parity another meaning. Values that do not
// fit are refused where a trigger is made, never cut off.
#pragma once

#include <cstdint>

#include "mscclpp/base/config.hpp"

namespace mscclpp::layout {

struct alignas(16) Trigger {
  std::uint64_t fst;
  std::uint64_t snd;
  friend constexpr bool operator==(Trigger const&, Trigger const&) = default;
};

// May be combined: data, then flag, then sync.
enum TriggerType : std::uint32_t {
  triggerData = 1,  // copy
  triggerFlag = 2,  // signal
  triggerSync = 4,  // tell when everything of this channel so far is complete
};

inline constexpr std::uint64_t maxTriggerBytes = (std::uint64_t{1} << 32) - 1;  // also of offsets
inline constexpr std::uint32_t maxTriggerMemories = 512;
inline constexpr std::uint32_t maxTriggerSemaphores = 1024;
inline constexpr std::uint64_t triggerParity = std::uint64_t{1} << 63;

// What a trigger says, taken apart; memories and semaphore are numbers in the proxy service.
struct TriggerFields {
  std::uint64_t bytes = 0;
  std::uint64_t srcOffset = 0;
  std::uint64_t dstOffset = 0;
  std::uint32_t srcMemory = 0;
  std::uint32_t dstMemory = 0;
  std::uint32_t type = 0;
  std::uint32_t semaphore = 0;

  // Whether encode() can keep all of them.
  MSCCLPP_HOST_DEVICE constexpr bool fits() const {
    return (bytes | srcOffset | dstOffset) <= maxTriggerBytes && (srcMemory | dstMemory) < maxTriggerMemories &&
           type < 8 && semaphore < maxTriggerSemaphores;
  }
  friend constexpr bool operator==(TriggerFields const&, TriggerFields const&) = default;
};

// Of fields that fit.
MSCCLPP_HOST_DEVICE constexpr Trigger encode(TriggerFields const& f) {
  return {f.bytes | f.srcOffset << 32, f.dstOffset | std::uint64_t{f.srcMemory} << 32 |
                                           std::uint64_t{f.dstMemory} << 41 | std::uint64_t{f.type} << 50 |
                                           std::uint64_t{f.semaphore} << 53};
}

// What encode() was given. The parity is left out.
MSCCLPP_HOST_DEVICE constexpr TriggerFields decode(Trigger const& t) {
  return {t.fst & maxTriggerBytes,
          t.fst >> 32,
          t.snd & maxTriggerBytes,
          static_cast<std::uint32_t>(t.snd >> 32) % maxTriggerMemories,
          static_cast<std::uint32_t>(t.snd >> 41) % maxTriggerMemories,
          static_cast<std::uint32_t>(t.snd >> 50) % 8,
          static_cast<std::uint32_t>(t.snd >> 53) % maxTriggerSemaphores};
}

static_assert(sizeof(Trigger) == 16 && alignof(Trigger) == 16);
static_assert(decode(encode({maxTriggerBytes, maxTriggerBytes, maxTriggerBytes, 511, 511, 7, 1023})) ==
              TriggerFields{maxTriggerBytes, maxTriggerBytes, maxTriggerBytes, 511, 511, 7, 1023});
static_assert((encode({maxTriggerBytes, maxTriggerBytes, maxTriggerBytes, 511, 511, 7, 1023}).snd & triggerParity) ==
              0);

}  // namespace mscclpp::layout
