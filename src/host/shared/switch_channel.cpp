// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/switch_channel.hpp"

#include <algorithm>
#include <utility>

#include "host/core/communicator_impl.hpp"

namespace mscclpp {
namespace {

// What is counted through the switch lies apart from what this rank alone writes.
constexpr std::size_t expectedOffset = 128;
constexpr std::size_t counterBytes = 256;

}  // namespace

SwitchChannel::SwitchChannel(Communicator const& communicator, void* memory, std::size_t bytes, std::vector<int> ranks)
    : counters_(communicator.device(), counterBytes, MemoryKind::shareable),
      window_(communicator, {{memory, bytes}, {counters_.data(), counters_.bytes()}}, ranks) {
  auto& shared = *CommunicatorImpl::of(communicator);
  auto* const counters = static_cast<std::byte*>(counters_.data());
  auto const at = std::find(ranks.begin(), ranks.end(), communicator.rank());
  handle_.rank = ranks.empty() ? communicator.rank() : static_cast<std::int32_t>(at - ranks.begin());
  handle_.multicast = window_.address(0);
  handle_.own = static_cast<std::byte*>(memory);
  handle_.memoryBytes = bytes;
  handle_.semaphore.inbound = reinterpret_cast<std::uint64_t*>(counters);
  handle_.semaphore.multicastInbound = reinterpret_cast<std::uint64_t*>(window_.address(1));
  handle_.semaphore.expected = reinterpret_cast<std::uint64_t*>(counters + expectedOffset);
  handle_.semaphore.watch = shared.watch;
  handle_.semaphore.ranks = ranks.empty() ? communicator.size() : static_cast<std::int32_t>(ranks.size());
  handle_.semaphore.id = shared.nextSemaphore.fetch_add(1);
}

}  // namespace mscclpp
