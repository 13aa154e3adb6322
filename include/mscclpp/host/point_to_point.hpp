// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Host side of messages between pairs of ranks (algorithms/collective/send_recv.hpp): the rings in device memory that
// they go through, mapped by all ranks of a node, and boxes for those with ranks of other nodes, between which a proxy
// of each rank puts.
//
//   PointToPoint links(communicator);
//   launch(stream, shape, Kernel{}, ..., links.deviceHandle(), messages);
//
// Making it is collective over its ranks, which ask for the same; using it concerns only the ranks of a message.
// Kernels at the same time have no peer and direction in common: make one for each stream whose messages may. Destroy
// it when the kernels of all ranks that use it have ended.
//
// Memory of each rank: for each peer of its node lanes x slots x (stageBytes + 2 x packetBytes), by default 18 MiB; for
// each of another node 2 x farLanes x slots x (farBytes + 128), by default 4 MiB. With `stagesLater` the part of
// stageBytes comes later, for all peers together: the first message beyond packetLimit to a rank makes it there, by
// handleFor(), whichever side calls first. A sender waits for the receiver's process then, in which a thread of the
// library makes and shares it, but never for a call of its program. No kernel with such a message is launched before
// its side has the memory, so kernels wait for no more than they do without `stagesLater`.
#pragma once

#include <cstddef>
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
  // Throws invalidUsage on every member where they ask for different things, or for what cannot be. With ranks of other
  // hosts also as Communicator::connect.
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
  // What a kernel of these messages gets; only with `stagesLater` another than deviceHandle(). By one thread at a time.
  // Throws remoteError where a receiver's process has ended or lacks the memory.
  layout::PointToPointHandle const& handleFor(layout::Messages const& messages) const;
  // Of device memory that this rank has for its messages by now. From any thread.
  std::size_t bytes() const;

  // Chunks of this rank's messages to `peer` that are in its rings and not taken. The kernels of both have ended.
  std::uint64_t undelivered(int peer) const;

 private:
  std::unique_ptr<DeviceMemory> memory_;
  std::optional<MemoryWindow> window_;
  struct LateStages;
  std::shared_ptr<LateStages> late_;  // null: they are part of memory_
  struct Far;
  std::shared_ptr<Far> far_;                     // null: all ranks are on one node
  std::shared_ptr<void> guard_;                  // of the counters
  mutable layout::PointToPointHandle handle_{};  // late stages are entered as they come
  int ranksPerDevice_ = 1;
};

}  // namespace mscclpp
