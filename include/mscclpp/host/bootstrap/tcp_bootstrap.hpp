// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Bootstrap over TCP (IPv4 and IPv6) among processes or threads.
//
//   auto id = rank == 0 ? TcpBootstrap::createUniqueId() : receivedFromRank0;
//   auto bootstrap = std::make_shared<TcpBootstrap>(rank, nRanks);
//   bootstrap->initialize(id);                          // or initialize("10.0.0.1:5000"), the same on every rank
//
// Every connection proves by a keyed hash of a fresh nonce that it knows the unique id's secret, which never travels.
// Whoever does not (a port scanner, a rank of another job) is refused and logged, and delays nobody. With a bare
// address the secret is MSCCLPP_SECRET; without one anyone who reaches the port can join, and rank 0 warns of it.
//
// One background thread per bootstrap serves its sockets. Rank 0 is connected to all from the start, each other rank to
// a few; other pairs connect when they first exchange a message. A rank that ends is told to all within milliseconds:
// it ends the waits for it, and for collectives that it takes part in, with remoteError naming it. It has left where
// its bootstrap was destroyed or its process calls exit(), which harms no call that it has done its part of. It has
// died where its process ended otherwise, _exit() included: then kernels of all communicators with it leave their
// waits, too. A second thread waits for the deaths of ranks on this host, which it hears of before their sockets close.
//
// After fork() a bootstrap of the parent is of no use in the child, whose copies of the sockets are closed: the child
// must make its own. What it does with the parent's, exit() included, touches nothing of the parent. An id that nobody
// has used yet can be used in a child.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mscclpp/host/bootstrap/bootstrap.hpp"
#include "mscclpp/host/bootstrap/unique_id.hpp"

namespace mscclpp {

class TcpBootstrap final : public Bootstrap {
 public:
  TcpBootstrap(int rank, int nRanks);
  ~TcpBootstrap() override;
  TcpBootstrap(TcpBootstrap const&) = delete;
  TcpBootstrap& operator=(TcpBootstrap const&) = delete;

  // Keeps a port until rank 0 initialises with the id (once), in this process or elsewhere on this host as the same
  // user; a port that is named, in this process only. Of more than 64 that nobody uses, the oldest is given up. Without
  // an address it takes a free port of MSCCLPP_SOCKET_IFNAME or of the first usable interface. `address` is "ip:port",
  // "[ipv6]:port" or "interface:ip:port"; port 0 means a free one.
  static UniqueId createUniqueId();
  static UniqueId createUniqueId(std::string const& address);

  // Collective. `timeout`: that of the environment where not given; it is also the limit of every later call.
  void initialize(UniqueId const& id, std::optional<std::chrono::nanoseconds> timeout = {});
  void initialize(std::string const& address, std::optional<std::chrono::nanoseconds> timeout = {});

  // getRank() and getNranks() as given; getNranksPerNode() throws invalidUsage before initialize().
  int getRank() const override;
  int getNranks() const override;
  int getNranksPerNode() const override;
  std::chrono::nanoseconds timeout() const override;

 protected:
  void sendMessage(void const* data, std::size_t bytes, int peer, int tag) override;
  std::vector<std::byte> recvMessage(int peer, int tag) override;
  void sendTo(MessageAddress const& to, MessageWait const& wait, void const* data, std::size_t bytes) override;
  std::vector<std::byte> recvFrom(MessageAddress const& from, MessageWait const& wait) override;
  std::shared_ptr<void> listen(Died died) override;
  void declareLost(std::string const& reason) override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mscclpp
