// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The receiving side of the TCP transport: one thread per context that accepts lanes, reads what peers write into
// registered memory, and answers. It serves a connection from the moment its endpoint exists, whether or not this rank
// has connected yet or calls progress().
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/file_handle.hpp"
#include "base/log_budget.hpp"
#include "base/own_thread.hpp"
#include "host/net/handshake.hpp"
#include "host/net/socket.hpp"
#include "host/transport/tcp/tcp_frame.hpp"
#include "mscclpp/host/error.hpp"

namespace mscclpp {

// How a connection stands, as both of its directions see it.
class TcpLink {
 public:
  // Only the first is kept.
  void fail(ErrorCode code, std::string reason);
  bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }
  // Of a failed one.
  ErrorCode code() const;
  std::string reason() const;

 private:
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  ErrorCode code_ = ErrorCode::remoteError;
  std::string reason_;
};

// Applies to both directions: small messages go at once, and a peer that cannot be reached is noticed within `limit`.
void prepareTcpLane(int socket, std::chrono::nanoseconds limit);

class TcpService {
 public:
  // Listens on the named interface, or on the best one. `lanes`: that each peer shall open.
  TcpService(std::string const& interfaceName, int lanes, std::chrono::nanoseconds limit);
  ~TcpService();
  TcpService(TcpService const&) = delete;
  TcpService& operator=(TcpService const&) = delete;

  std::uint64_t addMemory(OpenMemory const& memory);
  void removeMemory(std::uint64_t id) noexcept;  // returns when nothing is written there any more

  TcpAddress addEndpoint(int rank, std::shared_ptr<TcpLink> link);
  // Stops the thread for as long as what is returned lives; for tests of peers that fall silent.
  std::unique_lock<std::mutex> pause() { return std::unique_lock(mutex_); }
  // Ends what the endpoint's peer sends; returns when nothing of it is written any more.
  void removeEndpoint(std::uint64_t id) noexcept;

 private:
  struct Endpoint {
    int rank;
    std::shared_ptr<TcpLink> link;
    std::shared_ptr<TcpInbound> inbound;
    std::vector<bool> taken;  // lanes that are here
  };
  struct Candidate;
  struct Lane;
  class Turn;  // the service's state, held between two steps of its thread

  void run();
  void serve(std::uint64_t source);
  void accept();
  void examine(std::uint64_t source, Candidate& candidate);
  Admission decide(Hello const& hello) const;
  void read(Lane& lane);
  void answer(Lane& lane);
  void expireCandidates();
  int waitMilliseconds() const;
  void watch(int descriptor, std::uint64_t source);

  OwnProcess const process_;
  int const lanesPerPeer_;
  std::chrono::nanoseconds const limit_;
  Key128 const secret_;
  FileHandle listener_;
  FileHandle wake_;
  FileHandle epoll_;
  std::atomic<bool> stop_{false};
  std::atomic<int> waiting_{0};  // for their turn
  std::mutex mutex_;             // guards what follows
  TcpMemories memories_;
  std::map<std::uint64_t, Endpoint> endpoints_;
  std::map<std::uint64_t, std::unique_ptr<Candidate>> candidates_;
  std::map<std::uint64_t, std::unique_ptr<Lane>> lanes_;
  std::uint64_t nextSource_;
  bool crowded_ = false;  // no descriptor was left for the last accept
  LogBudget refusals_;
  std::thread thread_;
};

}  // namespace mscclpp
