// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/transport/tcp/tcp_frame.hpp"

#include <algorithm>
#include <cstring>

#include "base/format.hpp"

namespace mscclpp {
namespace {

constexpr std::uint64_t tcpAddressMagic = 0x6d7363636c707461ull;
constexpr std::uint32_t tcpAddressVersion = 2;
// One lane is never this far ahead of another: the sender awaits answers earlier.
constexpr std::size_t mostPendingSignals = std::size_t{1} << 16;
constexpr std::size_t wordBytes = sizeof(std::uint64_t);

}  // namespace

std::string_view nameOf(TcpRefusal refusal) noexcept {
  switch (refusal) {
    case TcpRefusal::none:
      return "nothing was refused";
    case TcpRefusal::unknownMemory:
      return "the memory is not registered there, or no longer: keep its RegisteredMemory as long as peers write it";
    case TcpRefusal::outOfRange:
      return "the range lies outside the registered memory";
    case TcpRefusal::misaligned:
      return "a signal's word must be aligned to 8 bytes";
    case TcpRefusal::malformed:
      return "the bytes are no frame of this library's version";
  }
  return "unknown refusal";
}

TcpAddress parseTcpAddress(int rank, int peer, std::span<std::byte const> bytes) {
  auto const refuse = [&](std::string const& why) {
    fail(ErrorCode::remoteError,
         "rank {}: connect over TCP to rank {}: the address it sent is of no use: {}; all ranks must run the same "
         "version of this library",
         rank, peer, why);
  };
  TcpAddress address{};
  if (bytes.size() != sizeof address) refuse(fmt::format("{} bytes, {} expected", bytes.size(), sizeof address));
  std::memcpy(&address, bytes.data(), sizeof address);
  if (address.magic != tcpAddressMagic) refuse("it is not that of a TCP endpoint");
  if (address.version != tcpAddressVersion)
    refuse(fmt::format("version {}, {} expected", address.version, tcpAddressVersion));
  if (address.lanes < 1 || address.lanes > mostTcpLanes) {
    refuse(fmt::format("{} sockets, 1 to {} are possible", address.lanes, mostTcpLanes));
  }
  if (!fromWire(address.listener) || address.listener.port == 0) refuse("it names no IPv4 or IPv6 address and port");
  return address;
}

std::vector<std::byte> serialize(TcpAddress const& address) {
  TcpAddress wire = address;
  wire.magic = tcpAddressMagic;
  wire.version = tcpAddressVersion;
  auto const bytes = bytesOf(wire);
  return {bytes.begin(), bytes.end()};
}

// ---- signals
// ---------------------------------------------------------------------------------------------------------

TcpInbound::TcpInbound(TcpMemories const& memories, int lanes)
    : memories_(memories), reached_(static_cast<std::size_t>(lanes)) {}

TcpRefusal TcpInbound::reach(int lane, Signal const& signal, std::unique_ptr<StagingSlots>& staging) {
  auto& reached = reached_[static_cast<std::size_t>(lane)];
  if (reached - applied_ == pending_.size()) {
    if (pending_.size() == mostPendingSignals) return TcpRefusal::malformed;
    pending_.push_back(signal);
  } else if (auto const& first = pending_[reached - applied_];
             first.memory != signal.memory || first.offset != signal.offset || first.value != signal.value) {
    return TcpRefusal::malformed;  // the lanes disagree
  }
  ++reached;
  auto const least = *std::min_element(reached_.begin(), reached_.end());
  while (applied_ < least) {
    auto const refusal = apply(pending_.front(), staging);
    if (refusal != TcpRefusal::none) return refusal;
    pending_.pop_front();
    ++applied_;
  }
  return TcpRefusal::none;
}

TcpRefusal TcpInbound::apply(Signal const& signal, std::unique_ptr<StagingSlots>& staging) {
  auto const found = memories_.find(signal.memory);
  if (found == memories_.end()) return TcpRefusal::unknownMemory;
  auto const& memory = found->second;
  if (!memory.holds(signal.offset, wordBytes)) return TcpRefusal::outOfRange;
  if ((reinterpret_cast<std::uintptr_t>(memory.data) + signal.offset) % wordBytes != 0) return TcpRefusal::misaligned;
  storeWord(memory, signal.offset, signal.value, staging);
  return TcpRefusal::none;
}

// ---- frames
// ----------------------------------------------------------------------------------------------------------

std::string TcpReceiver::describeRefusal() const {
  return fmt::format("frame {} ({} of {} bytes at offset {}) was refused: {}", begun_,
                     frame_.kind == TcpFrameKind::signal ? "signal" : "write",
                     frame_.kind == TcpFrameKind::signal ? wordBytes : frame_.bytes, frame_.offset, nameOf(refusal_));
}

std::span<iovec const> TcpReceiver::rooms() {
  settle();
  if (over() || signalWaits_) return {};
  if (left_ == 0) {
    rooms_[0] = {buffer_.data() + end_, buffer_.size() - end_};
    return std::span(rooms_).first(1);
  }
  auto const room = payloadRoom();
  if (room.empty() || at_ < end_) return {};
  rooms_[0] = {room.data(), room.size()};
  if (room.size() < left_) return std::span(rooms_).first(1);
  // What comes after the frame is taken along: small messages then cost one system call, not three.
  rooms_[1] = {buffer_.data(), buffer_.size()};
  return rooms_;
}

void TcpReceiver::advance(std::size_t bytes) {
  if (left_ > 0) {
    auto const payload = std::min<std::size_t>(bytes, rooms_[0].iov_len);
    tookPayload(payload);
    bytes -= payload;
  }
  end_ += bytes;
  parse();
}

void TcpReceiver::settle() {
  while (!copies_.empty() && staging_->copied(*copies_.front().slot)) {
    staging_->giveBack(*copies_.front().slot);
    frames_ = copies_.front().frames;
    copies_.pop_front();
  }
  if (signalWaits_ && copies_.empty()) finishSignal();
  parse();
}

void TcpReceiver::withdraw(std::uint64_t memory, Deadline const& deadline) noexcept {
  for (auto const& copy : copies_) {
    if (copy.memory == memory) staging_->finish(*copy.slot, deadline);
  }
}

void TcpReceiver::parse() {
  while (!over() && !signalWaits_ && at_ < end_) {
    auto const have = std::span(buffer_).subspan(at_, end_ - at_);
    if (left_ > 0) {
      auto const room = payloadRoom();
      if (room.empty()) return;
      auto const part = std::min(room.size(), have.size());
      std::memcpy(room.data(), have.data(), part);
      at_ += part;
      tookPayload(part);
    } else if (have.size() < sizeof frame_) {
      break;
    } else {
      std::memcpy(&frame_, have.data(), sizeof frame_);
      at_ += sizeof frame_;
      begin();
    }
  }
  // What stays is moved to the front, so that a whole header always has room.
  std::memmove(buffer_.data(), buffer_.data() + at_, end_ - at_);
  end_ -= at_;
  at_ = 0;
}

void TcpReceiver::begin() {
  if (frame_.magic != tcpFrameMagic) return refuse(TcpRefusal::malformed);
  switch (frame_.kind) {
    case TcpFrameKind::goodbye:
      goodbye_ = true;
      return;
    case TcpFrameKind::signal:
      if (copies_.empty()) return finishSignal();
      signalWaits_ = true;
      return;
    case TcpFrameKind::write: {
      auto const found = inbound_->memories_.find(frame_.memory);
      if (found == inbound_->memories_.end()) return refuse(TcpRefusal::unknownMemory);
      if (!found->second.holds(frame_.offset, frame_.bytes)) return refuse(TcpRefusal::outOfRange);
      done_ = 0;
      left_ = frame_.bytes;
      if (left_ == 0) finishFrame();
      return;
    }
  }
  refuse(TcpRefusal::malformed);
}

std::span<std::byte> TcpReceiver::payloadRoom() {
  auto const found = inbound_->memories_.find(frame_.memory);
  if (found == inbound_->memories_.end()) {
    refuse(TcpRefusal::unknownMemory);
    return {};
  }
  target_ = found->second;
  if (!target_.staged) return {target_.data + frame_.offset + done_, left_};
  if (!staging_) staging_ = std::make_unique<StagingSlots>(target_.device);
  if (slot_ == nullptr) {
    slot_ = staging_->take();
    slotFilled_ = 0;
  }
  if (slot_ == nullptr) return {};
  auto const room = std::min<std::uint64_t>(left_, StagingSlots::slotBytes - slotFilled_);
  return {slot_->data + slotFilled_, static_cast<std::size_t>(room)};
}

void TcpReceiver::tookPayload(std::size_t bytes) {
  done_ += bytes;
  left_ -= bytes;
  if (target_.staged) {
    slotFilled_ += bytes;
    if (left_ == 0 || slotFilled_ == StagingSlots::slotBytes) {
      staging_->copyOut(*slot_, target_.data + frame_.offset + done_ - slotFilled_, slotFilled_);
      copies_.push_back({slot_, frame_.memory, begun_});
      slot_ = nullptr;
    }
  }
  if (left_ == 0) finishFrame();
}

void TcpReceiver::finishFrame() {
  ++begun_;
  (copies_.empty() ? frames_ : copies_.back().frames) = begun_;
}

void TcpReceiver::finishSignal() {
  signalWaits_ = false;
  auto const refusal = inbound_->reach(lane_, {frame_.memory, frame_.offset, frame_.value}, staging_);
  if (refusal != TcpRefusal::none) return refuse(refusal);
  finishFrame();
}

}  // namespace mscclpp
