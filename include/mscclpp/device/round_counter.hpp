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

// Rounds done so far, or astray; the load is only begun here: code that does not need the number at once hides its
// latency.
MSCCLPP_DEVICE std::uint64_t loadRounds(layout::RoundCounter const* counter) {
  static_assert(sizeof(layout::RoundCounter) == sizeof(Words4));
  auto const words = loadWords4(reinterpret_cast<Words4 const*>(counter));
  auto const rounds = words.w[0] | std::uint64_t{words.w[1]} << 32;
  return rounds + (words.w[2] | std::uint64_t{words.w[3]} << 32);
}

// Refuses astray rounds. Called before anything is sent to a peer, but for packets, of which it is before any is waited
// for: a branch between a packet's data and its store would keep the compiler from loading the data early.
MSCCLPP_DEVICE void requireTogether(layout::Watch* watch, std::uint64_t rounds) {
  require(rounds < layout::firstStray, watch, -1, std::uint64_t(layout::Misuse::astray), 0, 0);
}

// Of rounds that are not astray. A reduction in memory would take its time at the end of the kernel (H200: 0.19 of 1.58
// us for an all-reduce of 1 KiB).
MSCCLPP_DEVICE void storeRounds(layout::RoundCounter* counter, std::uint64_t rounds) {
  store<Order::relaxed, Scope::device>(&counter->rounds, rounds);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
