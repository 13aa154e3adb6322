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
// address there is no secret: anyone who reaches the port can join, so prefer a unique id on a shared network.
//
// One background thread per bootstrap serves its sockets. Rank 0 is connected to all from the start; other pairs
// connect when they first exchange a message. A peer that goes away ends the waits for it with remoteError. After
// fork() the child must make its own.
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

  // Listens from now on, in this process, until rank 0 initialises with the id (once). Without an address it takes a
  // free port of MSCCLPP_SOCKET_IFNAME or of the first usable interface. `address` is "ip:port", "[ipv6]:port" or
  // "interface:ip:port"; port 0 means a free one.
  static UniqueId createUniqueId();
  static UniqueId createUniqueId(std::string const& address);

  // Collective. `timeout`: that of the environment where not given; it is also the limit of every later call.
  void initialize(UniqueId const& id, std::optional<std::chrono::nanoseconds> timeout = {});
  void initialize(std::string const& address, std::optional<std::chrono::nanoseconds> timeout = {});

  int getRank() const override;
  int getNranks() const override;
  int getNranksPerNode() const override;
  std::chrono::nanoseconds timeout() const override;

 protected:
  void sendMessage(void const* data, std::size_t bytes, int peer, int tag) override;
  std::vector<std::byte> recvMessage(int peer, int tag) override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mscclpp
