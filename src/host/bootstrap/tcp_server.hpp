// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The background thread of one TcpBootstrap: accepts and examines connections, all at once and never waiting for one of
// them, and reads the messages of the admitted ones. The events below are called on that thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/log_budget.hpp"
#include "host/bootstrap/peer_socket.hpp"
#include "host/net/handshake.hpp"

namespace mscclpp {

class TcpServer {
 public:
  struct Events {
    // Of a hello whose proof is right.
    std::function<Admission(Hello const&)> decide;
    std::function<void(std::shared_ptr<PeerSocket>, Hello const&)> admitted;
    std::function<void(FrameHeader const&, int peer, std::vector<std::byte>)> message;
    // The last connection with the peer has ended.
    std::function<void(int peer, std::string const& reason)> lost;
    // One that was let in has not come about, and there is no other.
    std::function<void(int peer)> unconfirmed;
  };

  TcpServer(int rank, int ranks, FileHandle listener, Key128 key, Events events);
  ~TcpServer();
  TcpServer(TcpServer const&) = delete;
  TcpServer& operator=(TcpServer const&) = delete;

  // The events may come from now on.
  void start();
  // A connection that this rank has opened.
  void add(std::shared_ptr<PeerSocket> connection);
  // Also where one has been let in, which may bring messages before it is adopted.
  bool connectedTo(int peer);
  // A notice to all that are connected, and to those that will be. Waits for nobody.
  void tell(std::vector<std::byte> const& frame);
  // Ends the thread, says `frame` to all, and closes the connections.
  void leave(std::vector<std::byte> const& frame);

 private:
  struct Candidate;
  class Admitted;

  void run();
  void wake();
  void accept();
  // Each returns false where the connection is over.
  bool examine(Candidate& candidate);
  bool confirm(Candidate& candidate);
  bool read(PeerSocket& connection, std::string& reason);
  void drop(std::shared_ptr<PeerSocket> const& connection, std::string const& reason);
  bool flushNotices();
  // With mutex_ held.
  void adopt(std::shared_ptr<PeerSocket> connection);
  bool hasConnection(int peer) const;

  int const rank_;
  int const ranks_;
  FileHandle listener_;
  Key128 const key_;
  Events const events_;
  FileHandle wake_;
  std::atomic<bool> stop_{false};
  bool crowded_ = false;  // no descriptor was left for the last accept
  LogBudget refusals_;
  std::list<Candidate> candidates_;
  std::mutex mutex_;  // guards what follows
  std::vector<std::shared_ptr<PeerSocket>> connections_;
  std::vector<int> admitted_;  // peers of candidates that have been let in
  std::vector<std::byte> told_;
  std::thread thread_;
};

}  // namespace mscclpp
