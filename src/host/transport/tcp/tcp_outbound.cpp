// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/transport/tcp/tcp_outbound.hpp"

#include <linux/errqueue.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "base/format.hpp"
#include "host/net/socket.hpp"

namespace mscclpp {
namespace {

// Frames of a lane that the peer owes an answer for.
constexpr std::size_t mostFrames = 1024;
// Frames that wait for the socket: what is posted later can be dealt out better later.
constexpr std::size_t mostUnsent = 16;
// What one step sends at most, so that other connections of the same thread get their turn.
constexpr std::uint64_t stepBytes = std::uint64_t{8} << 20;
// An answer to a frame of this size takes longer than a thread to sleep and to wake.
constexpr std::uint64_t leastSlowBytes = std::uint64_t{256} << 10;
// Below this a copy costs less than what the kernel does to avoid it.
constexpr std::uint64_t leastZeroCopyBytes = std::uint64_t{64} << 10;

constexpr char const* closedByPeer = "it closed the connection";

}  // namespace

TcpOutbound::TcpOutbound(std::vector<FileHandle> lanes, bool zeroCopy, std::chrono::nanoseconds limit)
    : silence_(limit) {
  for (auto& socket : lanes) {
    auto& lane = lanes_.emplace_back();
    lane.socket = std::move(socket);
    int const on = 1;
    lane.zeroCopy = zeroCopy && ::setsockopt(lane.socket.get(), SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on) == 0;
  }
}

void TcpOutbound::write(std::uint64_t memory, std::uint64_t offset, std::byte const* src, std::uint64_t bytes,
                        Device device, bool staged) {
  if (idle()) silence_.restart();
  posts_.push_back({TcpFrameKind::write, memory, offset, src, bytes, 0, device, staged});
  ++posted_;
}

void TcpOutbound::signal(std::uint64_t memory, std::uint64_t offset, std::uint64_t value) {
  if (idle()) silence_.restart();
  posts_.push_back({TcpFrameKind::signal, memory, offset, nullptr, 0, value, {}, false});
  ++posted_;
}

void TcpOutbound::sayGoodbye() noexcept {
  if (!idle()) return;  // the peer learns from the early end that something is missing
  TcpFrame const frame{tcpFrameMagic, TcpFrameKind::goodbye, 0, 0, 0, 0};
  for (auto& lane : lanes_) {
    [[maybe_unused]] auto const sent = ::send(lane.socket.get(), &frame, sizeof frame, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
}

std::string TcpOutbound::describeOldest() const {
  if (posts_.empty()) return "no post was outstanding";
  auto const& post = posts_.front();
  if (post.kind == TcpFrameKind::signal) {
    return fmt::format("post {}, signal {} to offset {}", completed_, post.value, post.offset);
  }
  return fmt::format("post {}, write of {} bytes to offset {}", completed_, post.bytes, post.offset);
}

bool TcpOutbound::zeroCopy() const noexcept {
  return std::any_of(lanes_.begin(), lanes_.end(), [](Lane const& lane) { return lane.zeroCopy; });
}

void TcpOutbound::push(Lane& lane, TcpFrame const& header, std::byte const* payload, StagingSlot* slot) {
  lane.frames.push_back({header, payload, slot, 0});
  ++lane.queued;
}

bool TcpOutbound::cut() {
  if (uncut_ == posts_.size()) return false;
  auto const room = [](Lane const& lane) {
    return lane.frames.size() < mostFrames && lane.frames.size() - lane.unsent < mostUnsent;
  };
  auto& post = posts_[uncut_];
  if (post.kind == TcpFrameKind::signal) {
    if (!std::all_of(lanes_.begin(), lanes_.end(), room)) return false;
    for (auto& lane : lanes_) {
      push(lane, {tcpFrameMagic, post.kind, post.memory, post.offset, 0, post.value}, nullptr, nullptr);
    }
  } else if (post.bytes > 0) {
    std::size_t tried = 0;
    while (!room(lanes_[nextLane_])) {
      if (++tried == lanes_.size()) return false;
      nextLane_ = (nextLane_ + 1) % lanes_.size();
    }
    auto bytes = std::min(post.bytes - post.cut, tcpFrameBytes);
    std::byte const* payload = post.src + post.cut;
    StagingSlot* slot = nullptr;
    if (post.staged) {
      if (!staging_) staging_ = std::make_unique<StagingSlots>(post.device);
      slot = staging_->take();
      if (slot == nullptr) return false;
      bytes = std::min<std::uint64_t>(bytes, StagingSlots::slotBytes);
      staging_->copyIn(*slot, payload, bytes);
      payload = slot->data;
    }
    push(lanes_[nextLane_], {tcpFrameMagic, post.kind, post.memory, post.offset + post.cut, bytes, 0}, payload, slot);
    nextLane_ = (nextLane_ + 1) % lanes_.size();
    post.cut += bytes;
  }
  if (post.cut == post.bytes) {
    for (std::size_t i = 0; i < lanes_.size(); ++i) post.frames[i] = lanes_[i].queued;
    ++uncut_;
  }
  return true;
}

std::string TcpOutbound::send(Lane& lane, std::uint64_t& budget, bool& moved) {
  while (lane.unsent < lane.frames.size() && budget > 0 && !lane.full) {
    // As many frames as there are; but what goes without a copy ends with a large payload.
    std::array<iovec, 32> parts;
    std::size_t count = 0;
    std::uint64_t bytes = 0;
    bool large = false;
    for (auto i = lane.unsent; i < lane.frames.size() && count + 2 <= parts.size() && !(large && lane.zeroCopy); ++i) {
      auto& frame = lane.frames[i];
      if (frame.slot != nullptr && frame.sent == 0 && !staging_->copied(*frame.slot)) break;
      auto const inHeader = std::min<std::uint64_t>(frame.sent, sizeof frame.header);
      if (inHeader < sizeof frame.header) {
        parts[count++] = {reinterpret_cast<std::byte*>(&frame.header) + inHeader, sizeof frame.header - inHeader};
      }
      auto const inPayload = frame.sent - inHeader;
      if (inPayload < frame.header.bytes) {
        parts[count++] = {const_cast<std::byte*>(frame.payload) + inPayload, frame.header.bytes - inPayload};
        large = frame.header.bytes - inPayload >= leastZeroCopyBytes && frame.slot == nullptr;
      }
      bytes += frame.bytes() - frame.sent;
    }
    if (count == 0) return {};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    int const flags = MSG_NOSIGNAL | MSG_DONTWAIT | (large && lane.zeroCopy ? MSG_ZEROCOPY : 0);
    auto const sent = ::sendmsg(lane.socket.get(), &message, flags);
    if (sent < 0) {
      lane.full = wouldBlock(errno);
      if (lane.full) return {};
      if (errno == ENOBUFS && lane.zeroCopy) {  // no room to pin pages or for notices: try to make some, else copy
        drainNotices(lane);
        if ((flags & MSG_ZEROCOPY) != 0) lane.zeroCopy = false;
        continue;
      }
      return socketFailure(errno);
    }
    moved = true;
    if ((flags & MSG_ZEROCOPY) != 0) ++lane.noticesOwed;
    lane.full = static_cast<std::uint64_t>(sent) < bytes;
    auto rest = static_cast<std::uint64_t>(sent);
    budget -= std::min(budget, rest);
    while (rest > 0) {
      auto& frame = lane.frames[lane.unsent];
      auto const part = std::min(rest, frame.bytes() - frame.sent);
      frame.sent += part;
      rest -= part;
      if (frame.sent < frame.bytes()) break;
      if (frame.slot != nullptr) staging_->giveBack(*frame.slot);  // it was copied into the socket
      ++lane.unsent;
    }
  }
  return {};
}

std::string TcpOutbound::receive(Lane& lane, bool& moved) {
  for (;;) {
    auto const room = writableBytesOf(lane.answer).subspan(lane.answered);
    auto const got = ::recv(lane.socket.get(), room.data(), room.size(), MSG_DONTWAIT);
    if (got < 0) {
      if (wouldBlock(errno)) return {};
      return socketFailure(errno);
    }
    if (got == 0) return closedByPeer;
    lane.answered += static_cast<std::size_t>(got);
    if (lane.answered < sizeof lane.answer) continue;
    lane.answered = 0;
    auto const sentWhole = lane.done + lane.unsent;
    if (lane.answer.magic != tcpFrameMagic || lane.answer.frames < lane.done || lane.answer.frames > sentWhole) {
      return "it answered with what is no message of the TCP transport";
    }
    if (lane.answer.refusal != TcpRefusal::none) {
      refused_ = true;
      return fmt::format("it refused a post: {}", nameOf(lane.answer.refusal));
    }
    for (; lane.done < lane.answer.frames; ++lane.done, --lane.unsent) lane.frames.pop_front();
    moved = true;
  }
}

std::string TcpOutbound::socketFailure(int error) {
  if (error == ETIMEDOUT) timedOut_ = true;  // the kernel counts too, and may be the first
  return error == EPIPE ? closedByPeer : std::strerror(error);
}

void TcpOutbound::drainNotices(Lane& lane) {
  for (;;) {
    std::array<std::byte, 256> control;
    msghdr message{};
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    if (::recvmsg(lane.socket.get(), &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) return;
    for (auto* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
      sock_extended_err notice{};
      std::memcpy(&notice, CMSG_DATA(part), sizeof notice);
      if (notice.ee_origin != SO_EE_ORIGIN_ZEROCOPY) continue;
      lane.noticesOwed -= std::min<std::uint64_t>(lane.noticesOwed, notice.ee_data - notice.ee_info + 1);
      // This way leads through a device that needs a copy: then one without pinning is cheaper.
      if ((notice.ee_code & SO_EE_CODE_ZEROCOPY_COPIED) != 0) lane.zeroCopy = false;
    }
  }
}

void TcpOutbound::complete() {
  while (uncut_ > 0) {
    auto const& post = posts_.front();
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      if (lanes_[i].done < post.frames[i]) return;
    }
    posts_.pop_front();
    --uncut_;
    ++completed_;
  }
}

std::string TcpOutbound::step() {
  if (idle()) return {};
  bool moved = false;
  std::string failure;
  std::uint64_t budget = stepBytes;
  for (auto& lane : lanes_) lane.full = false;
  for (bool more = true; more && budget > 0 && failure.empty();) {
    while (cut()) {
    }
    auto const before = budget;
    for (auto& lane : lanes_) {
      if (failure.empty()) failure = send(lane, budget, moved);
    }
    more = budget != before;
  }
  // All lanes, also after a failure: a refusal says more than that the peer has closed another lane since.
  for (auto& lane : lanes_) {
    auto said = receive(lane, moved);
    if (refused_) return said;
    if (failure.empty()) failure = std::move(said);
    if (lane.noticesOwed > 0) drainNotices(lane);
  }
  if (!failure.empty()) return failure;
  complete();
  if (silence_.step(moved) >= silence_.limit() && !idle()) {
    timedOut_ = true;
    return fmt::format("it gave no answer within {}", describe(silence_.limit()));
  }
  return {};
}

bool TcpOutbound::waitsFor(std::vector<pollfd>& sockets) const {
  if (idle()) return true;
  auto const before = sockets.size();
  bool slow = false;
  for (auto const& lane : lanes_) {
    bool const unsent = lane.unsent < lane.frames.size();
    if (unsent && !lane.full) {  // its payload is being staged, or the last step had sent enough
      slow = false;
      break;
    }
    slow = slow || unsent || (!lane.frames.empty() && lane.frames.front().header.bytes >= leastSlowBytes);
    sockets.push_back({lane.socket.get(), static_cast<short>(unsent ? POLLIN | POLLOUT : POLLIN), 0});
  }
  if (!slow) sockets.resize(before);
  return slow;
}

}  // namespace mscclpp
