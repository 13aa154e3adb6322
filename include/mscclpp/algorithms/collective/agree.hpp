// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The largest of one number of each rank, known to all of them: what ranks must have in common before a collective
// whose counts each knows only in part.
//
// All threads of the blocks call, and get the answer. A round of the team: one packet to every peer, about a
// microsecond.
#pragma once

#include <cstdint>

#include "mscclpp/algorithms/transport/packet_transport.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

template <BlockSet B>
MSCCLPP_DEVICE std::uint64_t agreeOnLargest(DeviceTeam const& team, B const& blocks, std::uint64_t mine) {
  using Tr = PacketTransport<LL16>;
  Tr::Session<B> session(team, blocks, static_cast<unsigned>(team.size));
  session.open();
  session.beginRound();
  bool const sends = blocks.block().rank() == 0;
  Payload<2> const payload{{static_cast<std::uint32_t>(mine), static_cast<std::uint32_t>(mine >> 32)}};
  for (int peer = 0; peer < team.size; ++peer) {
    if (peer != team.rank) session.put(team.workspace(peer), static_cast<unsigned>(team.rank), 0, payload, sends);
  }
  session.commit();
  session.exchange(0);
  auto largest = mine;
  for (int peer = 0; peer < team.size; ++peer) {
    if (peer == team.rank) continue;
    Source const sources[1] = {{peer, static_cast<unsigned>(peer), 0, true}};
    Payload<2> values[1];
    session.receive(sources, values);
    auto const theirs = values[0].word[0] | std::uint64_t{values[0].word[1]} << 32;
    largest = theirs > largest ? theirs : largest;
  }
  return largest;
}

// What agreeOnLargest() needs of the workspace; to be merged with what follows it.
constexpr layout::WorkspaceRequirement agreementRequirement(std::uint32_t ranks, std::uint32_t blocks) {
  return {blocks, std::uint64_t{ranks} * 128, 0, 0};
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
