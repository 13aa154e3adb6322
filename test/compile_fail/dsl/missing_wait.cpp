// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: this program is wrong
// expect: rank 0 signals rank 1 over channel 0 2 times, rank 1 waits for it 1 time
#include "mscclpp/dsl/build.hpp"

using namespace mscclpp;

struct Program {
  static constexpr dsl::Spec spec{.name = "missing_wait", .collective = dsl::allGather(2), .inPlace = true};
  static constexpr void define(dsl::Builder& p) {
    for (int rank = 0; rank < 2; ++rank) {
      int const peer = 1 - rank;
      auto channel = p.memoryChannel(peer, rank);
      channel.signal({.relaxed = true});
#if !defined(MSCCLPP_EXPECT_FAILURE)
      channel.wait({.relaxed = true});
#endif
      channel.put(p.rank(peer).output()[rank], p.rank(rank).output()[rank]);
      channel.signal();
      channel.wait();
    }
  }
};
static_assert(dsl::verify<Program>());
