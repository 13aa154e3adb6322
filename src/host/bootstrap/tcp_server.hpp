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
#include <string>
#include <thread>
#include <vector>

#include "host/net/handshake.hpp"
#include "host/net/socket.hpp"

namespace mscclpp {

struct FrameHeader {
  std::uint32_t magic;
  std::int32_t tag;
  std::uint64_t bytes;
};
inline constexpr std::uint32_t frameMagic = 0x6d736346u;
// The bootstrap carries addresses and handles; more than this is a mistake, or garbage.
inline constexpr std::uint64_t longestMessage = std::uint64_t{1} << 30;

// An admitted connection. Sending is for any thread under `sending`; the rest is the server's.
struct PeerSocket {
  PeerSocket(FileHandle handle, int rank) : socket(std::move(handle)), peer(rank) {}

  FileHandle const socket;
  int const peer;
  std::mutex sending;

  FrameHeader header{};
  std::vector<std::byte> payload;
  std::size_t filled = 0;  // of header and payload together
};

class TcpServer {
 public:
  struct Events {
    // Of a hello whose proof is right.
    std::function<Admission(Hello const&)> decide;
    std::function<void(std::shared_ptr<PeerSocket>, Hello const&)> admitted;
    std::function<void(int peer, int tag, std::vector<std::byte>)> message;
    // The last connection with the peer has ended.
    std::function<void(int peer, std::string const& reason)> lost;
  };

  TcpServer(int rank, int ranks, FileHandle listener, Key128 key, Events events);
  ~TcpServer();
  TcpServer(TcpServer const&) = delete;
  TcpServer& operator=(TcpServer const&) = delete;

  // A connection that this rank has opened.
  void add(std::shared_ptr<PeerSocket> connection);

 private:
  struct Candidate;

  void run();
  void accept();
  // Each returns false where the connection is over.
  bool examine(Candidate& candidate);
  bool read(PeerSocket& connection, std::string& reason);
  void drop(std::shared_ptr<PeerSocket> const& connection, std::string const& reason);

  int const rank_;
  int const ranks_;
  FileHandle listener_;
  Key128 const key_;
  Events const events_;
  FileHandle wake_;
  std::atomic<bool> stop_{false};
  bool crowded_ = false;  // no descriptor was left for the last accept
  std::mutex mutex_;      // guards arrivals_
  std::vector<std::shared_ptr<PeerSocket>> arrivals_;
  std::list<Candidate> candidates_;
  std::vector<std::shared_ptr<PeerSocket>> connections_;
  std::thread thread_;
};

}  // namespace mscclpp
