// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The sending end of one direction of a TCP connection: posts wait here, are cut into frames, dealt out to the lanes
// and sent as far as the sockets take them. Used by one thread at a time; blocks never.
//
// Where the kernel can, it sends large payloads from the caller's pages (MSG_ZEROCOPY). A post is complete when the
// peer has said that it is done with it, and then no page of it is needed any more, whatever the kernel's own notices
// say; those only show whether the kernel had to copy after all, in which case it is asked no further.
#pragma once

#include <poll.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/file_handle.hpp"
#include "host/net/silence.hpp"
#include "host/transport/staging.hpp"
#include "host/transport/tcp/tcp_frame.hpp"

namespace mscclpp {

class TcpOutbound {
 public:
  // `limit`: how long the peer may owe an answer without giving any.
  TcpOutbound(std::vector<FileHandle> lanes, bool zeroCopy, std::chrono::nanoseconds limit);

  // `staged`: only the machine of `device` can read `src`.
  void write(std::uint64_t memory, std::uint64_t offset, std::byte const* src, std::uint64_t bytes, Device device,
             bool staged);
  void signal(std::uint64_t memory, std::uint64_t offset, std::uint64_t value);
  // Says that no more will come; as far as the sockets take it at once.
  void sayGoodbye() noexcept;

  std::uint64_t posted() const noexcept { return posted_; }
  std::uint64_t completed() const noexcept { return completed_; }
  bool idle() const noexcept { return completed_ == posted_; }

  // One step. Returns why the connection has failed, empty while it has not.
  std::string step();
  bool timedOut() const noexcept { return timedOut_; }
  // As Connection's. What small frames wait for comes too soon to sleep.
  bool waitsFor(std::vector<pollfd>& sockets) const;
  // The oldest post that is not complete, for errors.
  std::string describeOldest() const;
  // Whether large payloads are still sent without a copy.
  bool zeroCopy() const noexcept;

 private:
  struct Post {
    TcpFrameKind kind;
    std::uint64_t memory;
    std::uint64_t offset;
    std::byte const* src;
    std::uint64_t bytes;
    std::uint64_t value;
    Device device;
    bool staged;
    std::uint64_t cut = 0;                             // bytes that are in frames
    std::array<std::uint64_t, mostTcpLanes> frames{};  // that each lane must have done; set when all is cut
  };
  struct Frame {
    TcpFrame header;
    std::byte const* payload;
    StagingSlot* slot;   // that holds the payload, or is being filled with it
    std::uint64_t sent;  // bytes of header and payload
    std::uint64_t bytes() const { return sizeof header + header.bytes; }
  };
  struct Lane {
    FileHandle socket;
    bool zeroCopy = false;
    bool full = false;              // the socket took no more in the last step
    std::uint64_t noticesOwed = 0;  // by the kernel, for sends without a copy; until they are read, poll() waits not
    std::deque<Frame> frames;       // that the peer is not done with; addresses stay while it is sent from them
    std::size_t unsent = 0;         // index of the first that is not wholly sent
    std::uint64_t queued = 0;       // frames ever
    std::uint64_t done = 0;         // frames the peer is done with
    TcpAnswer answer{};
    std::size_t answered = 0;  // bytes of it
  };

  bool cut();  // makes one frame, or one signal's; false where there is none to make or no room
  void push(Lane& lane, TcpFrame const& header, std::byte const* payload, StagingSlot* slot);
  std::string send(Lane& lane, std::uint64_t& budget, bool& moved);
  std::string receive(Lane& lane, bool& moved);
  std::string socketFailure(int error);
  void drainNotices(Lane& lane);
  void complete();

  std::vector<Lane> lanes_;
  std::deque<Post> posts_;  // not complete, oldest first
  std::size_t uncut_ = 0;   // index of the first that is not wholly cut
  std::size_t nextLane_ = 0;
  std::unique_ptr<StagingSlots> staging_;
  std::uint64_t posted_ = 0;
  std::uint64_t completed_ = 0;
  Silence silence_;
  bool timedOut_ = false;
  bool refused_ = false;  // the peer has said that it will not do a post
};

}  // namespace mscclpp
