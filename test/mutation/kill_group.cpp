// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Groups share, vote, reduce and meet; each barrier inside counts.
#include "mscclpp/device/group_ops.hpp"

#include <vector>

#include "explored.hpp"
#include "mscclpp/device/reduce_op.hpp"

using namespace mscclpp_test;

namespace {

// What a group shares is used again at once, so every barrier inside counts.
struct ShareKernel {
  MSCCLPP_DEVICE void operator()(int* out) const {
    auto const block = thisBlock();
    int const mine = static_cast<int>(block.rank()) - 20;
    int total = 0;
    for (unsigned round = 0; round < 4; ++round) total += broadcast(block, mine + static_cast<int>(round), 63 - round);
    out[block.rank() * 4 + 0] = total;
    out[block.rank() * 4 + 1] =
        reduce(block, mine, Sum{}) - reduce(block, 2 * mine, Sum{}) + reduce(block, mine, Max{});
    out[block.rank() * 4 + 2] = any(thisWarp(), mine == 30) ? 1 : 0;
    out[block.rank() * 4 + 3] = all(thisWarp(), mine < 12) ? 1 : 0;
  }
};

// Not commutative: keeps the first and the last that it has seen, so that the order shows.
struct Span {
  unsigned first, last;
};
struct Join {
  MSCCLPP_DEVICE Span operator()(Span a, Span b) const {
    return {a.last + 1 == b.first ? a.first : 1000u, a.last + 1 == b.first ? b.last : 2000u};
  }
};
struct OrderKernel {
  MSCCLPP_DEVICE void operator()(unsigned* out) const {
    auto const rank = thisBlock().rank();
    auto const span = reduce(thisBlock(), Span{rank, rank}, Join{});
    auto const inWarp = reduce(thisWarp(), Span{rank, rank}, Join{});
    out[rank * 4 + 0] = span.first;
    out[rank * 4 + 1] = span.last;
    out[rank * 4 + 2] = inWarp.first;
    out[rank * 4 + 3] = inWarp.last;
  }
};

// Warps hand values to each other by memory and meet at the barrier of their group.
struct WarpsKernel {
  struct Shared;
  struct Values {
    unsigned value[96];
  };
  MSCCLPP_DEVICE void operator()(unsigned* out) const {
    auto& shared = arch::blockShared<Values, Shared>();
    auto const warp = thisWarp();
    auto const thread = thisBlock().rank();
    shared.value[thread] = thread;
    warp.sync();
    auto seen = shared.value[thread - warp.rank() + (warp.rank() + 7) % 32];
    warp.sync();
    if (thread >= 32) {
      auto const pair = warpsOfBlock(1, 2, 3);
      shared.value[thread] = 100 + pair.rank();
      pair.sync();
      seen = seen * 1000 + shared.value[32 + (pair.rank() + 40) % pair.size()];
    }
    out[thread] = seen;
  }
};

}  // namespace

TEST_CASE("groups share, vote, reduce and meet") {
  everySchedule(1, [](Rank& rank) {
    GpuBuffer<int> shared(rank.device, 64 * 4);
    GpuBuffer<unsigned> joined(rank.device, 96 * 4);
    GpuBuffer<unsigned> seen(rank.device, 96);
    launch(rank.stream, {.blocks = 1, .threads = 64}, ShareKernel{}, shared.data());
    launch(rank.stream, {.blocks = 1, .threads = 96}, OrderKernel{}, joined.data());
    launch(rank.stream, {.blocks = 1, .threads = 96}, WarpsKernel{}, seen.data());
    rank.synchronize();
    auto const values = copyToHost(shared);
    for (int thread = 0; thread < 64; ++thread) {
      auto const* const mine = &values[static_cast<std::size_t>(thread) * 4];
      CHECK(mine[0] == 43 + 43 + 43 + 43);
      CHECK(mine[1] == -(63 * 32 - 64 * 20) + 43);
      CHECK(mine[2] == (thread >= 32 ? 1 : 0));
      CHECK(mine[3] == (thread < 32 ? 1 : 0));
    }
    auto const ends = copyToHost(joined);
    for (std::size_t thread = 0; thread < 96; ++thread) {
      CHECK(ends[thread * 4 + 0] == 0);
      CHECK(ends[thread * 4 + 1] == 95);
      CHECK(ends[thread * 4 + 2] == thread / 32 * 32);
      CHECK(ends[thread * 4 + 3] == thread / 32 * 32 + 31);
    }
    auto const met = copyToHost(seen);
    for (unsigned thread = 0; thread < 96; ++thread) {
      unsigned const neighbour = thread / 32 * 32 + (thread % 32 + 7) % 32;
      CHECK(met[thread] == (thread < 32 ? neighbour : neighbour * 1000 + 100 + (thread - 32 + 40) % 64));
    }
  });
}
