// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Two ranks that a channel joins.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/host/memory_channel.hpp"
#include "support/world.hpp"

namespace mscclpp_test {
inline namespace MSCCLPP_BACKEND {

// Each rank writes into the other's inbox, which is also its packet buffer.
struct Pair {
  GpuBuffer<std::uint8_t> local;
  GpuBuffer<std::uint8_t> inbox;
  MemoryChannel channel;

  Pair(Rank& rank, std::size_t bytes, std::size_t inboxBytes)
      : local(rank.device, bytes), inbox(rank.device, inboxBytes), channel(connect(rank, local, inbox)) {}

 private:
  static MemoryChannel connect(Rank& rank, GpuBuffer<std::uint8_t> const& local, GpuBuffer<std::uint8_t> const& inbox) {
    auto const all = rank.communicator.exchangeMemory(rank.communicator.registerMemory(inbox.data(), inbox.bytes()));
    auto const peer = 1 - rank.rank;
    return {rank.communicator.buildSemaphore(peer), all[static_cast<std::size_t>(peer)],
            rank.communicator.registerMemory(local.data(), local.bytes()), inbox.data()};
  }
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp_test
