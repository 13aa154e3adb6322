// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What travels over the sockets of the TCP transport, and what their receiver makes of it.
//
// A connection has one way for each direction. A way is one or more sockets, its lanes. Its sender cuts writes into
// frames and deals them out to the lanes; a signal goes down every lane and takes effect when it has come out of all of
// them, so it orders all earlier writes. Back comes how many frames of the lane are done, or why one was refused.
//
// TcpReceiver holds no socket: it says where the next bytes belong and is told how many came, so that any bytes can be
// put through it in a test.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/random.hpp"
#include "host/net/socket.hpp"
#include "host/transport/staging.hpp"
#include "mscclpp/host/device.hpp"

namespace mscclpp {

inline constexpr std::uint32_t tcpFrameMagic = 0x6d736374u;
inline constexpr int mostTcpLanes = 16;
// Largest frame: what a lane carries before the others get their turn.
inline constexpr std::uint64_t tcpFrameBytes = std::uint64_t{4} << 20;

enum class TcpFrameKind : std::uint32_t { write = 1, signal = 2, goodbye = 3 };

// A cache line long: what follows then lies in the kernel's buffers as it does in memory, and processors copy it
// faster.
struct TcpFrame {
  std::uint32_t magic;
  TcpFrameKind kind;
  std::uint64_t memory;
  std::uint64_t offset;
  std::uint64_t bytes;  // of a write, which follow
  std::uint64_t value;  // of a signal
  std::uint64_t reserved[3] = {};
};
static_assert(sizeof(TcpFrame) == 64);

enum class TcpRefusal : std::uint32_t { none = 0, unknownMemory, outOfRange, misaligned, malformed };
std::string_view nameOf(TcpRefusal refusal) noexcept;

struct TcpAnswer {
  std::uint32_t magic;
  TcpRefusal refusal;
  std::uint64_t frames;  // done so far; the next one was refused
};
static_assert(sizeof(TcpAnswer) == 16);

// How to reach an endpoint.
struct TcpAddress {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t lanes;  // that it expects
  WireAddress listener;
  std::uint32_t reserved;
  std::uint64_t endpoint;
  Key128 secret;
};
static_assert(sizeof(TcpAddress) == 64);
// Throws remoteError naming both ranks.
TcpAddress parseTcpAddress(int rank, int peer, std::span<std::byte const> bytes);
std::vector<std::byte> serialize(TcpAddress const& address);

// How to name registered memory.
struct TcpKey {
  std::uint64_t memory;
  std::uint64_t bytes;
};

// By their keys.
using TcpMemories = std::unordered_map<std::uint64_t, OpenMemory>;

class TcpReceiver;

// The receiving end of one direction of a connection, whose lanes share it.
class TcpInbound {
 public:
  TcpInbound(TcpMemories const& memories, int lanes);

  int lanes() const noexcept { return static_cast<int>(reached_.size()); }

 private:
  friend class TcpReceiver;
  struct Signal {
    std::uint64_t memory;
    std::uint64_t offset;
    std::uint64_t value;
  };
  // The lane has come to its next signal. Returns why it cannot take effect.
  TcpRefusal reach(int lane, Signal const& signal, std::unique_ptr<StagingSlots>& staging);
  TcpRefusal apply(Signal const& signal, std::unique_ptr<StagingSlots>& staging);

  TcpMemories const& memories_;
  std::vector<std::uint64_t> reached_;  // signals that came out of each lane
  std::deque<Signal> pending_;          // that have not come out of all lanes
  std::uint64_t applied_ = 0;
};

class TcpReceiver {
 public:
  TcpReceiver(std::shared_ptr<TcpInbound> inbound, int lane) : inbound_(std::move(inbound)), lane_(lane) {}

  // Where the next bytes belong: 1 or 2 places, or none while staged memory is being copied. Valid until the next call.
  std::span<iovec const> rooms();
  // `bytes` came, in the order of rooms(). Afterwards refusal() and frames() may have changed.
  void advance(std::size_t bytes);
  // Moves on what waits for copies.
  void settle();
  // The memory is no longer among those of the inbound side: on return nothing is copied into it any more.
  void withdraw(std::uint64_t memory, Deadline const& deadline) noexcept;
  // Bytes of a write that are to come.
  std::uint64_t expected() const noexcept { return left_; }
  // Whether settle() has something to do later.
  bool copying() const noexcept { return !copies_.empty(); }

  std::uint64_t frames() const noexcept { return frames_; }  // done
  TcpRefusal refusal() const noexcept { return refusal_; }
  std::string describeRefusal() const;
  bool saidGoodbye() const noexcept { return goodbye_; }
  // Whether no frame is half received.
  bool atBoundary() const noexcept { return at_ == end_ && left_ == 0 && !signalWaits_; }

 private:
  struct Copy {
    StagingSlot* slot;
    std::uint64_t memory;
    std::uint64_t frames;  // done when it is
  };

  void parse();  // takes from the buffer what it holds, as far as there is room
  void begin();  // frame_ is new
  // Room for payload, at most all of it; empty while staging is full. The memory is looked up each time, since it may
  // go while a frame comes in: then the frame is refused, and there is no room.
  std::span<std::byte> payloadRoom();
  void tookPayload(std::size_t bytes);
  void finishFrame();
  void finishSignal();
  void refuse(TcpRefusal refusal) { refusal_ = refusal; }
  bool over() const noexcept { return goodbye_ || refusal_ != TcpRefusal::none; }

  std::shared_ptr<TcpInbound> inbound_;
  int const lane_;
  std::array<std::byte, 4096> buffer_{};  // headers, and what came with them
  std::size_t at_ = 0;                    // first byte of the buffer that is not taken
  std::size_t end_ = 0;                   // after the last
  TcpFrame frame_{};
  OpenMemory target_;       // of the room that was given last
  std::uint64_t done_ = 0;  // bytes of the frame that came
  std::uint64_t left_ = 0;  // and that are to come
  std::unique_ptr<StagingSlots> staging_;
  StagingSlot* slot_ = nullptr;
  std::size_t slotFilled_ = 0;
  std::deque<Copy> copies_;
  std::uint64_t begun_ = 0;   // frames whose bytes have all come
  std::uint64_t frames_ = 0;  // frames that are done
  bool signalWaits_ = false;  // for the copies before it
  bool goodbye_ = false;
  TcpRefusal refusal_ = TcpRefusal::none;
  std::array<iovec, 2> rooms_{};
};

}  // namespace mscclpp
