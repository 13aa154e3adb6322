// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One connection of a bootstrap after its handshake. Messages are sent by any thread. Notices are short messages of the
// bootstrap itself, which wait for nobody: they go between messages, as soon as the socket takes them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "host/net/socket.hpp"
#include "mscclpp/host/bootstrap/bootstrap.hpp"

namespace mscclpp {

struct FrameHeader {
  std::uint32_t magic;
  std::int32_t tag;
  std::uint64_t context;
  std::uint64_t bytes;
};
inline constexpr std::uint32_t frameMagic = 0x6d736347u;
// The bootstrap carries addresses and handles; more than this is a mistake, or garbage.
inline constexpr std::uint64_t longestMessage = std::uint64_t{1} << 30;

class PeerSocket {
 public:
  // `open`: notices may be sent from the start.
  PeerSocket(FileHandle handle, int rank, bool open) : socket(std::move(handle)), peer(rank), open_(open) {}

  // 0, or errno's value; then part of a message may be on its way, and nothing sensible can follow it.
  int send(FrameHeader const& first, std::span<std::byte const> data, Deadline const& deadline);
  // Before all notices, which may be sent from now on.
  int sendFirst(std::span<std::byte const> data, Deadline const& deadline);

  void notify(std::span<std::byte const> frame);
  // False where notices are left that the socket, or a thread that is sending, has no room for now.
  bool flush();
  // Waits for them.
  void flush(Deadline const& deadline);

  FileHandle const socket;
  int const peer;

  // Of the thread that reads.
  FrameHeader header{};
  std::vector<std::byte> payload;
  std::size_t filled = 0;  // of header and payload together

 private:
  void takeNotices();  // with sending_ held

  std::mutex sending_;
  bool open_;                      // guarded by sending_
  std::vector<std::byte> unsent_;  // notices, the first of them perhaps in part; guarded by sending_
  std::mutex noticesMutex_;
  std::vector<std::byte> notices_;  // guarded by noticesMutex_
};

}  // namespace mscclpp
