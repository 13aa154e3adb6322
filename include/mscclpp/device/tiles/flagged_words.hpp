// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Values that blocks of a cluster put into each other's shared memory, with a flag beside each: whoever waits for one
// sees its flag and the value at once, so that there is neither a fence nor a barrier. A barrier of the cluster orders
// all that its threads have written, what is on its way to other GPUs too, and so takes a microsecond behind a packet.
//
//   putFlagged(arch::ofClusterBlock(words, block)->at, value, flag)      one thread
//   awaitFlagged<T>(words.at, flag, watch)                               any thread of the block that has the words
//
// A flag differs from those before it at the same place, and from 0, which the words hold at first: who has them writes
// that, and a barrier of the cluster stands behind it. Two sets of words are used in turn where each side both puts and
// awaits: who puts into one again has awaited the other, for which its peer had to be through with the first.
#pragma once

#include <cstdint>

#include "mscclpp/base/bits.hpp"
#include "mscclpp/device/poll.hpp"

#if defined(__CUDACC__)
#include "mscclpp/device/arch/cuda/shared_words.hpp"
#else
#include "mscclpp/device/arch/sim/shared_words.hpp"
#endif

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

// Room for a value of up to 4 * N bytes, each 4 of them with a flag.
template <unsigned N>
struct FlaggedWords {
  std::uint64_t word[N];
};

namespace impl {

template <class T, unsigned N>
struct WordsOf {
  static constexpr unsigned count = sizeof(T) / 4;
  static_assert(sizeof(T) % 4 == 0 && count <= N);
  std::uint32_t word[count];
};

}  // namespace impl

// Without a flag: ahead of the first use, with a barrier behind it.
template <unsigned N>
MSCCLPP_DEVICE void clearFlagged(FlaggedWords<N>& words) {
  MSCCLPP_UNROLL
  for (unsigned i = 0; i < N; ++i) arch::storeSharedWord(&words.word[i], 0);
}

template <class T, unsigned N>
MSCCLPP_DEVICE void putFlagged(FlaggedWords<N>& to, T const& value, std::uint32_t flag) {
  using Words = impl::WordsOf<T, N>;
  auto const words = bitCast<Words>(value);
  MSCCLPP_UNROLL
  for (unsigned i = 0; i < Words::count; ++i) {
    arch::storeSharedWord(&to.word[i], std::uint64_t{flag} << 32 | words.word[i]);
  }
}

template <class T, unsigned N>
MSCCLPP_DEVICE T awaitFlagged(FlaggedWords<N> const& from, std::uint32_t flag, layout::Watch* watch) {
  using Words = impl::WordsOf<T, N>;
  Words words{};
  poll(watch, {layout::WaitKind::gridBarrier, -1, 0, flag}, [&](std::uint64_t& seen) {
    bool there = true;
    MSCCLPP_UNROLL
    for (unsigned i = 0; i < Words::count; ++i) {
      auto const word = arch::loadSharedWord(&from.word[i]);
      words.word[i] = static_cast<std::uint32_t>(word);
      seen = word >> 32;
      there = there && seen == flag;
    }
    return there;
  });
  return bitCast<T>(words);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
