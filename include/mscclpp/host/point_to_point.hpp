// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Host side of messages between pairs of ranks (algorithms/collective/send_recv.hpp): the rings in device memory that
// they go through, mapped by all ranks.
//
//   PointToPoint links(communicator);
//   launch(stream, shape, Kernel{}, ..., links.deviceHandle(), messages);
//
// Making it is collective over its ranks, which ask for the same; using it concerns only the ranks of a message.
// Kernels at the same time have no peer and direction in common: make one for each stream whose messages may. Destroy
// it when the kernels of all ranks that use it have ended.
//
// Memory of each rank: for each peer lanes x slots x (stageBytes + 2 x packetBytes), by default 18 MiB.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/memory_window.hpp"
#include "mscclpp/layout/point_to_point_handle.hpp"

namespace mscclpp {

class PointToPoint {
 public:
  // `ranks`: of the communicator, in the same order on each; a rank's place is its rank in messages. Empty: all.
  // Throws invalidUsage on every member where they ask for different things, or for what cannot be.
  PointToPoint(Communicator const& communicator, layout::PointToPointRequirement const& requirement = {},
               std::vector<int> ranks = {});
  // Logs a warning that names the peers where messages were sent that nobody has received.
  ~PointToPoint();
  PointToPoint(PointToPoint&&) noexcept = default;
  PointToPoint& operator=(PointToPoint&&) = delete;

  int rank() const noexcept { return handle_.rank; }
  int size() const noexcept { return handle_.size; }
  Device device() const noexcept { return memory_->device(); }
  // As the communicator's, which grids of messages have to leave room for.
  int ranksPerDevice() const noexcept { return ranksPerDevice_; }
  layout::PointToPointHandle const& deviceHandle() const noexcept { return handle_; }

  // Chunks of this rank's messages to `peer` that are in its rings and not taken. The kernels of both have ended.
  std::uint64_t undelivered(int peer) const;

 private:
  std::unique_ptr<DeviceMemory> memory_;
  std::optional<MemoryWindow> window_;
  std::shared_ptr<void> guard_;  // of the counters
  layout::PointToPointHandle handle_{};
  int ranksPerDevice_ = 1;
};

}  // namespace mscclpp
