// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "dsl/plan_ports.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>

#include "base/format.hpp"

namespace mscclpp::dsl {
namespace {

// Memory on other hosts has no address here to be known by.
bool sameMemory(layout::WindowHandle const& a, layout::WindowHandle const& b) {
  return a.size == b.size && a.bytes == b.bytes && std::equal(a.bases, a.bases + a.size, b.bases) &&
         std::find(a.bases, a.bases + a.size, nullptr) == a.bases + a.size;
}

}  // namespace

bool usesPorts(Program const& program) {
  for (auto const& rank : program.ranks) {
    for (auto const& channel : rank.channels) {
      if (channel.kind == ChannelKind::port) return true;
    }
  }
  return false;
}

PlanPorts::PlanPorts(Communicator const& communicator, Program const& program,
                     std::vector<RegisteredMemory> const& shared)
    : rank_(communicator.rank()), ranks_(communicator.size()), service_(communicator), shared_(add(shared)) {
  auto const& mine = program.ranks[static_cast<std::size_t>(rank_)].channels;
  std::vector<layout::BasePortChannelHandle> handles(std::max<std::size_t>(mine.size(), 1));
  std::map<int, std::shared_ptr<Connection>> connections;
  auto const join = [&](int peer, int channel) {
    auto& connection = connections[peer];
    // Windows are registered for mapped memory only.
    if (!connection) {
      connection = communicator.reaches(peer) ? communicator.connect(peer, {.transport = Transport::memory})
                                              : communicator.connect(peer);
    }
    auto const semaphore = service_.buildAndAddSemaphore(connection);
    if (channel < 0) return;  // the peer's alone: it has no signals
    handles[static_cast<std::size_t>(channel)] = service_.basePortChannel(semaphore).deviceHandle();
  };
  auto const pairs = pairChannels(program);
  // Every rank goes through the channels of all in one order, so that both ends of each meet.
  for (int rank = 0; rank < ranks_; ++rank) {
    auto const& channels = program.ranks[static_cast<std::size_t>(rank)].channels;
    for (int c = 0; c < static_cast<int>(channels.size()); ++c) {
      auto const& channel = channels[static_cast<std::size_t>(c)];
      if (channel.kind != ChannelKind::port) continue;
      int const pair = pairs[static_cast<std::size_t>(rank)][static_cast<std::size_t>(c)];
      if (pair >= 0 && channel.peer < rank) continue;  // met from its other end
      if (rank == rank_) join(channel.peer, c);
      if (channel.peer == rank_) join(rank, pair);
    }
  }
  handles_ = DeviceMemory(communicator.device(), handles.size() * sizeof handles[0]);
  copyToDevice(communicator.device(), static_cast<layout::BasePortChannelHandle*>(handles_.data()),
               std::span<layout::BasePortChannelHandle const>(handles));
  service_.startProxy();
}

MemoryId PlanPorts::add(std::vector<RegisteredMemory> const& memories) {
  auto const first = service_.nextMemoryId(static_cast<std::uint32_t>(memories.size()));
  for (auto const& memory : memories) service_.addMemory(memory);
  return first;
}

MemoryId PlanPorts::ofWindow(MemoryWindow const& window) {
  auto const& handle = window.deviceHandle();
  for (auto const& known : windows_) {
    if (known.id == window.id() || sameMemory(known.window, handle)) return known.first;
  }
  if (handle.size != ranks_) {
    fail(ErrorCode::invalidUsage, "rank {}: a window of {} ranks for a program of {}; make it of all ranks", rank_,
         handle.size, ranks_);
  }
  windows_.push_back({window.id(), handle, add(window.memories())});
  return windows_.back().first;
}

}  // namespace mscclpp::dsl
