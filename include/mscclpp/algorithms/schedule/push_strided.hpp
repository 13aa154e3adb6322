// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every rank stores runs that lie strewn in its buffer straight to their places in the peers': core/strided.hpp.
//
// Threads are dealt out over the accesses of all runs, so that short runs keep as many busy as long ones. An access is
// as wide, up to 16 bytes, as the runs' length and both buffers allow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "mscclpp/algorithms/core/strided.hpp"
#include "mscclpp/device/group.hpp"
#include "mscclpp/device/team.hpp"
#include "mscclpp/device/vector.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

// What an all-to-all of Permuted tensors does with each of them.
struct StridedPush {
  // Between the meetings of a DirectRound. `Unroll` accesses of a thread are in flight together.
  template <unsigned Unroll, int Ranks, BlockSet B, class In, class T>
  MSCCLPP_DEVICE static void run(DeviceTeam const& team, B const& blocks, Permuted<In, T> const& tensor) {
    auto const runs = impl::StridedRuns::make(tensor.in.before, tensor.in.behind, tensor.out.before, tensor.out.behind);
    auto const runBytes = std::uint64_t{runs.run} * sizeof(T);
    auto astray = reinterpret_cast<std::uintptr_t>(tensor.in.view.data) | runBytes;
    int const ranks = Ranks != 0 ? Ranks : team.size;
    for (int peer = 0; peer < ranks; ++peer) astray |= reinterpret_cast<std::uintptr_t>(tensor.out.view.at(peer));
    auto const bytes = runBytes * runs.outer * runs.inner;
    if (bytes / 4 > 0xffffffffu) astray |= 1;  // more accesses than 32 bits number
    if (astray % 16 == 0) {
      move<Unroll, Payload<4>>(team, blocks, tensor, runs, runBytes, ranks);
    } else if (astray % 4 == 0) {
      move<Unroll, Payload<1>>(team, blocks, tensor, runs, runBytes, ranks);
    } else {
      move<Unroll, T>(team, blocks, tensor, runs, runBytes, ranks);
    }
  }

 private:
  template <unsigned Unroll, class Access, class B, class In, class T>
  MSCCLPP_DEVICE static void move(DeviceTeam const& team, B const& blocks, Permuted<In, T> const& tensor,
                                  impl::StridedRuns const& runs, std::uint64_t runBytes, int ranks) {
    using Index = std::conditional_t<sizeof(Access) >= 4 && !std::is_same_v<Access, T>, std::uint32_t, std::uint64_t>;
    auto const each = static_cast<Index>(runBytes / sizeof(Access));  // accesses of a run
    auto const count = static_cast<Index>(runs.outer * runs.inner) * each;
    auto const size = static_cast<std::size_t>(ranks);
    auto const rank = static_cast<std::size_t>(team.rank);
    auto const* const from = reinterpret_cast<Access const*>(tensor.in.view.data);
    for (int distance = 1; distance <= ranks; ++distance) {  // the own part last
      int const peer = team.peerAt(distance, ranks);
      auto* const to = reinterpret_cast<Access*>(tensor.out.view.at(peer));
      for (std::uint64_t first = blocks.rank(); first < count; first += std::uint64_t{Unroll} * blocks.size()) {
        Access held[Unroll];
        MSCCLPP_UNROLL
        for (unsigned u = 0; u < Unroll; ++u) {
          auto const at = first + std::uint64_t{u} * blocks.size();
          if (at >= count) continue;
          auto const number = static_cast<Index>(at) / each;
          auto const in = runs.place(runs.inFirst, number, static_cast<std::size_t>(peer), size);
          held[u] = from[in * each + (at - number * each)];
        }
        MSCCLPP_UNROLL
        for (unsigned u = 0; u < Unroll; ++u) {
          auto const at = first + std::uint64_t{u} * blocks.size();
          if (at >= count) continue;
          auto const number = static_cast<Index>(at) / each;
          to[runs.place(!runs.inFirst, number, rank, size) * each + (at - number * each)] = held[u];
        }
      }
    }
  }
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
