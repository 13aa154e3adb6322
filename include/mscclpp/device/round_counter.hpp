// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Counts rounds across kernels, and refuses to go on once any rank has given up a wait (layout/round_counter.hpp).
#pragma once

#include <cstdint>

#include "mscclpp/base/config.hpp"
#include "mscclpp/device/memory.hpp"
#include "mscclpp/device/poll.hpp"
#include "mscclpp/layout/round_counter.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

// The load is only begun here. Code that needs neither word at once hides its latency, if nothing at all is made from
// them before what it loads meanwhile: an addition stands where its operands are loaded, and all that follows waits for
// it (H200: 0.27 us of 1.85 for an all-reduce of 1 KiB).
MSCCLPP_DEVICE layout::RoundCounter loadRounds(layout::RoundCounter const* counter) {
  static_assert(sizeof(layout::RoundCounter) == sizeof(Words4));
  auto const words = loadWords4(reinterpret_cast<Words4 const*>(counter));
  return {words.w[0] | std::uint64_t{words.w[1]} << 32, words.w[2] | std::uint64_t{words.w[3]} << 32};
}

// Refuses to go on where RoundCounter::astray is set. Called before anything is sent to a peer, but for packets, of
// which it is before any is waited for: those that are sent astray are nobody's, and a branch would come between their
// data's load and their store.
MSCCLPP_DEVICE void requireTogether(layout::Watch* watch, std::uint64_t astray) {
  require(astray == 0, watch, -1, std::uint64_t(layout::Misuse::astray), 0, 0);
}

// A reduction in memory would take its time at the end of the kernel (H200: 0.19 of 1.77
// us for an all-reduce of 1 KiB).
MSCCLPP_DEVICE void storeRounds(layout::RoundCounter* counter, std::uint64_t rounds) {
  store<Order::relaxed, Scope::device>(&counter->rounds, rounds);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
