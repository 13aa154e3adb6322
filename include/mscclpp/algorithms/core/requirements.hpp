// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What every collective checks before it begins: a launch that cannot work is refused with a report, and nothing hangs.
#pragma once

#include <cstdint>

#include "mscclpp/algorithms/core/traits.hpp"
#include "mscclpp/device/group.hpp"
#include "mscclpp/device/number.hpp"
#include "mscclpp/device/poll.hpp"
#include "mscclpp/device/team.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

// `compiledFor`: ranks that the collective is compiled for, 0 for any.
MSCCLPP_DEVICE void requireTeamSize(DeviceTeam const& team, int compiledFor) {
  require(compiledFor == 0 || team.size == compiledFor, team.watch, -1, std::uint64_t(layout::Misuse::teamSize),
          static_cast<std::uint64_t>(compiledFor), static_cast<std::uint64_t>(team.size));
}

// Two counts of elements that have to agree do: most often the input's and the output's.
MSCCLPP_DEVICE void requireSameCount(DeviceTeam const& team, std::uint64_t in, std::uint64_t out) {
  require(in == out, team.watch, -1, std::uint64_t(layout::Misuse::countMismatch), in, out);
}

// Both buffers lie at multiples of their elements' size.
template <class In, class T>
MSCCLPP_DEVICE void requireAligned(DeviceTeam const& team, In const* in, T const* out) {
  if constexpr (sizeof(In) == sizeof(T)) {
    auto const astray = (reinterpret_cast<std::uintptr_t>(in) | reinterpret_cast<std::uintptr_t>(out)) % sizeof(T);
    require(astray == 0, team.watch, -1, std::uint64_t(layout::Misuse::alignment), sizeof(T), astray);
  } else {
    requireAligned(team, in, in);
    requireAligned(team, out, out);
  }
}

// `root` is a rank of the team, of 0 to size - 1.
MSCCLPP_DEVICE void requireRoot(DeviceTeam const& team, int root) {
  require(root >= 0 && root < team.size, team.watch, -1, std::uint64_t(layout::Misuse::root),
          static_cast<std::uint64_t>(team.size), static_cast<std::uint64_t>(static_cast<std::int64_t>(root)));
}

// Elements of each part of a buffer that has one per rank, all of one count. `Ranks`: of the team, 0 for any; a
// division by what is known only at run time delays a small message by a tenth of a microsecond.
template <int Ranks>
MSCCLPP_DEVICE std::uint64_t requireWholeParts(DeviceTeam const& team, std::uint64_t count) {
  auto const ranks = static_cast<unsigned>(Ranks != 0 ? Ranks : team.size);
  auto const part = count / ranks;
  require(part * ranks == count, team.watch, -1, std::uint64_t(layout::Misuse::unevenParts), std::uint64_t{ranks},
          count);
  return part;
}

// Before parts are looked up that memory tells: the kernel ahead may have written them.
template <class Parts>
MSCCLPP_DEVICE void awaitParts() {
  if constexpr (!Parts::equal) waitForPreviousKernel();
}

// A team whose workspaces have multicast addresses; `also`: so have the buffers.
MSCCLPP_DEVICE void requireMulticast(DeviceTeam const& team, bool also = true) {
  require(team.multicast != nullptr && also, team.watch, -1, std::uint64_t(layout::Misuse::noMulticast), 1, 0);
}

// What every collective states of itself.
template <Collective Of, class S, class Tr>
struct Composed {
  static constexpr Collective collective = Of;
  using Schedule = S;
  using Transport = Tr;

  // What the team's workspace must offer for launches up to this shape. Less also works, in more rounds.
  static constexpr layout::WorkspaceRequirement requirement(std::uint32_t ranks, std::uint32_t blocks,
                                                            std::uint32_t threads) {
    if constexpr (requires { S::rows(ranks); }) {
      return Tr::requirement(blocks, threads, S::rows(ranks));
    } else {
      return Tr::requirement(blocks, threads, ranks);
    }
  }
};

// For static_assert's: an element that a transport cannot carry, or that is no number.
template <class T, class Tr>
inline constexpr bool fitsTransport = Number<T> && sizeof(T) <= Tr::granule;

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
