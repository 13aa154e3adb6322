// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a communicator holds, shared with the semaphores and teams made from it.
#pragma once

#include <atomic>
#include <memory>
#include <string_view>
#include <vector>

#include "mscclpp/host/communicator.hpp"
#include "random.hpp"

namespace mscclpp {

struct Communicator::Impl {
  // What each rank tells the others at the start.
  struct PeerInfo {
    std::uint64_t hostIdentity;
    Key128 process;
    std::uint32_t kind;
    std::int32_t ordinal;
    char busId[32];
  };

  Impl(std::shared_ptr<Bootstrap> with, Device on);
  ~Impl();

  int rank() const { return bootstrap->getRank(); }
  int size() const { return bootstrap->getNranks(); }
  PeerInfo const& peer(int of) const { return peers[static_cast<std::size_t>(of)]; }
  bool sameProcess(int of) const { return peer(of).process == peer(rank()).process; }
  // Throws invalidUsage naming the operation where there is no such other rank.
  void checkPeer(std::string_view operation, int of) const;
  void checkOwn(std::string_view operation, RegisteredMemory const& memory) const;

  std::shared_ptr<Bootstrap> bootstrap;
  Device device;
  Runtime& machine;
  layout::Watch* watch = nullptr;
  std::vector<PeerInfo> peers;
  std::atomic<bool> aborted{false};
  std::atomic<std::uint32_t> nextSemaphore{0};
};

}  // namespace mscclpp
