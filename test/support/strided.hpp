// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What Ulysses' attention does on either side of itself, on every rank: an all-to-all between a rank's tokens with all
// heads and all tokens with a rank's heads.
#pragma once

#include <algorithm>
#include <vector>

#include "mscclpp/algorithms/collective/alltoall.hpp"
#include "mscclpp/device/barrier.hpp"
#include "mscclpp/host/memory_window.hpp"
#include "support/world.hpp"

namespace mscclpp_test {
inline namespace MSCCLPP_BACKEND {

struct StridedShape {
  int ranks;
  std::size_t batch, tokens, heads, width;  // heads and tokens of one rank
  std::size_t offset = 0;                   // elements by which buffers begin off from their allocation
  MSCCLPP_HOST_DEVICE std::size_t elements() const {
    return batch * tokens * heads * width * static_cast<std::size_t>(ranks);
  }
};

// Of the tensor [batch][all tokens][all heads][width].
template <class T>
T elementOf(std::size_t b, std::size_t token, std::size_t head, std::size_t w) {
  return static_cast<T>((b * 131 + token * 31 + head * 7 + w) % 251);
}

// Queries, say, of a rank's tokens and all heads become those of all tokens and a rank's heads; and back.
template <class T>
struct ThereAndBack {
  MSCCLPP_DEVICE void operator()(T const* x, StridedShape const& s, DeviceTeam const& team,
                                 layout::WindowHandle const& window, layout::WindowHandle const& backWindow) const {
    auto const n = s.elements();
    SymmetricView<T> const y(window, s.offset * sizeof(T), n);
    SymmetricView<T> const z(backWindow, s.offset * sizeof(T), n);
    AllToAll<PushSchedule, PeerMemory<2>> exchange{team};
    exchange(thisGrid(), Permuted{Strided{View{x, n}, {s.batch, s.tokens, byRank, s.heads, s.width}},
                                  Strided{y, {s.batch, byRank, s.tokens, s.heads, s.width}}});
    gridBarrier(team, thisGrid());
    exchange(thisGrid(), Permuted{Strided{y.own(), {s.batch, byRank, s.tokens, s.heads, s.width}},
                                  Strided{z, {s.batch, s.tokens, byRank, s.heads, s.width}}});
  }
};

template <class T>
void checkStridedRank(Rank& rank, StridedShape const& s) {
  auto const me = static_cast<std::size_t>(rank.rank);
  auto const ranks = static_cast<std::size_t>(s.ranks);
  Team const team(rank.communicator, {.blocks = 3});
  auto const n = s.elements();
  GpuBuffer<T> const x(rank.device, n + s.offset), y(rank.device, n + s.offset + 3), z(rank.device, n + s.offset + 3);
  MemoryWindow const yw(rank.communicator, y.data(), y.bytes());
  MemoryWindow const zw(rank.communicator, z.data(), z.bytes());
  std::vector<T> in(n), there(n + s.offset + 3, T{77}), back;
  for (std::size_t b = 0, at = 0; b < s.batch; ++b)
    for (std::size_t t = 0; t < s.tokens; ++t)
      for (std::size_t h = 0; h < s.heads * ranks; ++h)
        for (std::size_t w = 0; w < s.width; ++w) in[at++] = elementOf<T>(b, me * s.tokens + t, h, w);
  copyToDevice(y, std::span<T const>(there));
  copyToDevice(z, std::span<T const>(there));
  back = there;
  for (std::size_t b = 0, at = s.offset; b < s.batch; ++b)
    for (std::size_t t = 0; t < s.tokens * ranks; ++t)
      for (std::size_t h = 0; h < s.heads; ++h)
        for (std::size_t w = 0; w < s.width; ++w) there[at++] = elementOf<T>(b, t, me * s.heads + h, w);
  std::copy(in.begin(), in.end(), back.begin() + static_cast<std::ptrdiff_t>(s.offset));
  copyToDevice(x, std::span<T const>(in), s.offset);
  rank.meet();
  launch(rank.stream, {.blocks = 3, .threads = 64}, ThereAndBack<T>{}, x.data() + s.offset, s, team.deviceHandle(),
         yw.deviceHandle(), zw.deviceHandle());
  rank.synchronize();
  CHECK(copyToHost(y) == there);
  CHECK(copyToHost(z) == back);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp_test
