// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The signals of a port channel: this rank's proxy counts up a word in the peer's memory, the peer's kernels wait
// there, and the other way round. Copies share the counters.
#pragma once

#include <cstdint>
#include <memory>

#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/connection.hpp"

namespace mscclpp {

// One rank's end; waits are its kernels', signals its proxy's.
class Host2DeviceSemaphore {
 public:
  // Both ranks make it over their ends of one connection, with the same tag.
  Host2DeviceSemaphore(Communicator const& communicator, std::shared_ptr<Connection> connection, int tag = 0);

  std::shared_ptr<Connection> const& connection() const noexcept;
  int peer() const noexcept;

  // In this rank's memory: signals that arrived, and how many were waited for.
  std::uint64_t* inbound() const noexcept;
  std::uint64_t* expected() const noexcept;

  // Posts the next signal. By the thread that uses the connection.
  void signal() const;
  // This side has failed; see Connection::abandon.
  void abandon() const noexcept;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace mscclpp
