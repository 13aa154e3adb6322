// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sets counters of rounds, for what happens after more of them than a test can wait for.
#pragma once

#include <cstdint>
#include <type_traits>

#include "mscclpp/layout/round_counter.hpp"
#include "support/world.hpp"

namespace mscclpp_test {
inline namespace MSCCLPP_BACKEND {

template <class Counter>
struct SetRounds {
  MSCCLPP_DEVICE void operator()(Counter* counters, unsigned count, std::uint64_t rounds) const {
    for (unsigned i = 0; i < count; ++i) {
      if constexpr (std::is_same_v<Counter, layout::RoundCounter>) {
        counters[i].rounds = rounds;
      } else {
        counters[i] = rounds;
      }
    }
  }
};

// Of this rank, in its stream.
template <class Counter>
void setRounds(Rank const& rank, Counter* counters, unsigned count, std::uint64_t rounds) {
  launch(rank.stream, {.blocks = 1, .threads = 1}, SetRounds<Counter>{}, counters, count, rounds);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp_test
