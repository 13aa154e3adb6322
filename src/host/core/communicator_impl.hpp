// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a communicator holds, shared with the semaphores and teams made from it: the one way to it for what is not a
// member.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.hpp"
#include "host/core/domains.hpp"
#include "host/transport/transport.hpp"
#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/error.hpp"

namespace mscclpp {

struct CommunicatorImpl {
  // What each rank tells the others at the start.
  struct PeerInfo {
    RankPlace place;
    Key128 process;
    std::uint32_t kind;
    std::int32_t ordinal;
    std::uint32_t transports;  // that it could use, but for mapped memory
    std::uint32_t unused;
    char busId[32];
    std::uint64_t random;  // rank 0's is the communicator's id
  };

  static std::shared_ptr<CommunicatorImpl> const& of(Communicator const& communicator) { return communicator.impl_; }

  CommunicatorImpl(std::shared_ptr<Bootstrap> with, Device on);
  ~CommunicatorImpl();

  int rank() const { return bootstrap->getRank(); }
  int size() const { return bootstrap->getNranks(); }
  PeerInfo const& peer(int of) const { return peers[static_cast<std::size_t>(of)]; }
  bool sameProcess(int of) const { return peer(of).process == peer(rank()).process; }
  // Whether file descriptors go there.
  bool sameHost(int of) const { return peer(of).place.host == peer(rank()).place.host; }
  // Whether kernels reach its memory (host/core/domains.hpp).
  bool sameDomain(int of) const {
    return domains[static_cast<std::size_t>(of)] == domains[static_cast<std::size_t>(rank())];
  }
  bool sameDevice(int one, int other) const;
  // Throws invalidUsage naming the operation where there is no such other rank.
  void checkPeer(std::string_view operation, int of) const;
  void checkOwn(std::string_view operation, RegisteredMemory const& memory) const;
  // Something beside the kernels has failed: their waits end, and checkReports() throws all such texts.
  void reportFault(ErrorCode code, std::string const& text);
  // Made at first use.
  std::shared_ptr<TransportContext> const& context(Transport transport);
  std::shared_ptr<Bootstrap> setup() const;
  struct Agreed {
    std::vector<int> left;
    std::vector<int> gone;     // that have ended
    bool rejoins = false;      // one of them is in rejoin()
    std::uint64_t number = 0;  // of the agreement, which all ranks that have no failure have in common
    std::optional<Error> failure{};
  };
  // What survivors() and rejoin() have in common, without throwing.
  Agreed agree(bool rejoins);

  std::shared_ptr<Bootstrap> bootstrap;
  Device device;
  Runtime& machine;
  layout::Watch* watch = nullptr;
  std::vector<PeerInfo> peers;
  std::vector<int> domains;  // domainsOf() all ranks
  std::atomic<bool> aborted{false};
  std::atomic<std::uint32_t> nextSemaphore{0};
  std::uint64_t id = 0;  // of no other communicator of these ranks
  std::mutex agreementMutex;
  std::uint64_t agreement = 0;  // the attempt of survivors() that this rank is in, or was in last
  std::map<int, std::vector<std::byte>> earlyBallots;  // of later attempts, by rank
  std::mutex groupsMutex;
  std::map<std::vector<int>, std::uint64_t> groups;  // made by shrink(), of these ranks
  std::atomic<std::uint64_t> failures{0};            // thrown by checkReports()
  mutable std::mutex setupMutex;
  std::shared_ptr<Bootstrap> renewed;  // by rejoin(); null before the first
  std::mutex countersMutex;            // of Watch::counters
  std::mutex faultMutex;               // held where Watch::abort is cleared
  std::optional<Error> fault;          // the first one's code
  std::mutex contextsMutex;
  std::map<Transport, std::shared_ptr<TransportContext>> contexts;
  std::shared_ptr<void> deaths;  // of other ranks, as the bootstrap tells of them
  std::shared_ptr<void> loss;    // of the device
};

}  // namespace mscclpp
