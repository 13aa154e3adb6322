// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The collectives by name, and what they ask of their buffers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace mscclpp {

enum class Collective : std::uint8_t {
  allReduce,
  allGather,
  reduceScatter,
  allToAll,
  broadcast,
  reduce,
  gather,
  scatter,
  sendRecv,
  barrier,
};

inline constexpr std::array collectives{Collective::allReduce, Collective::allGather, Collective::reduceScatter,
                                        Collective::allToAll,  Collective::broadcast, Collective::reduce,
                                        Collective::gather,    Collective::scatter,   Collective::sendRecv,
                                        Collective::barrier};

constexpr std::string_view nameOf(Collective collective) {
  constexpr std::array<std::string_view, collectives.size()> names{
      "allreduce", "allgather", "reducescatter", "alltoall", "broadcast",
      "reduce",    "gather",    "scatter",       "sendrecv", "barrier"};
  return names[static_cast<std::size_t>(collective)];
}

constexpr std::optional<Collective> collectiveByName(std::string_view wanted) {
  for (auto collective : collectives) {
    if (nameOf(collective) == wanted) return collective;
  }
  return std::nullopt;
}

// The others move bytes and take no operation.
constexpr bool reduces(Collective collective) {
  return collective == Collective::allReduce || collective == Collective::reduceScatter ||
         collective == Collective::reduce;
}

// One rank differs from the others.
constexpr bool hasRoot(Collective collective) {
  return collective == Collective::broadcast || collective == Collective::reduce || collective == Collective::gather ||
         collective == Collective::scatter;
}

}  // namespace mscclpp
