// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a TcpBootstrap is made of: how its ranks meet (tcp_bootstrap.cpp), and what they send each other afterwards,
// messages and news of ranks that have gone (tcp_messages.cpp).
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/loss_listeners.hpp"
#include "base/own_thread.hpp"
#include "host/bootstrap/at_exit.hpp"
#include "host/bootstrap/death_watch.hpp"
#include "host/bootstrap/mailbox.hpp"
#include "host/bootstrap/tcp_join.hpp"
#include "host/bootstrap/tcp_server.hpp"
#include "mscclpp/host/bootstrap/tcp_bootstrap.hpp"

namespace mscclpp {

class TcpBootstrap::Impl {
 public:
  Impl(int rank, int ranks);
  // Says to all that this rank leaves, and why.
  ~Impl();

  void initialize(UniqueId const& id, std::optional<std::chrono::nanoseconds> timeout);
  void initialize(std::string const& text, std::optional<std::chrono::nanoseconds> timeout);

  void requireInitialized(std::string_view operation) const;
  OwnProcess process() const { return process_; }
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  std::chrono::nanoseconds timeout() const { return timeout_; }
  int ranksPerNode() const;

  void send(MessageAddress const& to, MessageWait const& wait, void const* data, std::size_t bytes);
  std::vector<std::byte> recv(MessageAddress const& from, MessageWait const& wait);
  void send(int peer, int tag, void const* data, std::size_t bytes);
  std::vector<std::byte> recv(int peer, int tag) { return recv({0, peer, tag}, {timeout_, everyone_, false}); }
  std::shared_ptr<void> listen(Died died) { return deaths_.add(std::move(died)); }
  void declareLost(std::string const& reason);

 private:
  struct Peer {
    std::mutex connecting;
    std::shared_ptr<PeerSocket> connection;  // that this rank sends on; set once; guarded by mutex_
    std::shared_ptr<PeerSocket> inbound;     // that the peer opened; guarded by mutex_
  };

  static int checked(int rank, int ranks);
  Peer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  TableEntry& entry(int rank) { return table_[static_cast<std::size_t>(rank)]; }
  void begin(std::optional<std::chrono::nanoseconds> timeout);
  void complete();
  void watchNeighbours();

  // ---- joining
  std::vector<int> missing();
  // Rank 0: waits for all others and tells each where the others are.
  void gather(FileHandle listener, Key128 const& secret, Deadline const& deadline);
  // The others.
  void join(std::vector<SocketAddress> const& addresses, std::string const& interfaceName, Key128 const& secret,
            Deadline const& deadline);

  // ---- events of the server
  void startServer(FileHandle listener, Key128 const& key);
  Admission decide(Hello const& hello);
  void admit(std::shared_ptr<PeerSocket> connection, Hello const& hello);
  // The last connection with `from` has ended.
  void lose(int from, std::string const& reason);
  // A notice of `from`.
  void hear(int from, std::vector<std::byte> const& payload);
  // News of a rank that did not come by a connection with it.
  void learn(RankNews const& news);

  // Whoever hears something new tells it to all that it is connected to: rank 0 to everybody, and the others to enough
  // that it gets around without rank 0.
  void spread(RankNews const& news);
  std::vector<std::byte> farewell() const;
  // Throws with the reason why `to` does not answer, as soon as it is known here.
  void explain(MessageAddress const& to, MessageWait const& wait, std::string const& what);
  std::shared_ptr<PeerSocket> connectionTo(MessageAddress const& address, MessageWait const& wait,
                                           Deadline const& deadline);

  OwnProcess const process_;
  int const rank_;
  int const ranks_;
  std::vector<int> everyone_;
  bool begun_ = false;
  bool initialized_ = false;
  std::chrono::nanoseconds timeout_{};
  Key128 session_{};
  std::vector<TableEntry> table_;
  Mailbox mailbox_;
  std::mutex mutex_;
  std::condition_variable joined_;
  bool complete_ = false;
  std::map<int, RankNews> farewells_;
  std::mutex spreading_;  // held while ranks' ends are told on
  LossListeners deaths_;
  std::vector<Peer> peers_;
  FileHandle door_;                    // of the watch, until there is one
  std::unique_ptr<DeathWatch> watch_;  // its thread uses the members above, and the server; guarded by mutex_
  std::unique_ptr<TcpServer> server_;  // its thread uses the members above
  std::unique_ptr<AtExit> atExit_;     // uses both
};

}  // namespace mscclpp
