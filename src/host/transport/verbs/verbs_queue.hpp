// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One reliable queue pair on one device, with its completion queues. Requests are collected and posted together; every
// so many, and the last of each batch, asks for a completion, which also stands for those before it. Used by one thread
// at a time; never blocks.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "host/transport/verbs/verbs_device.hpp"

namespace mscclpp {

// How a peer reaches a queue pair.
struct VerbsQueueAddress {
  std::uint32_t queuePair;
  std::uint32_t firstPacket;
  std::array<std::uint8_t, 16> gid;
  std::uint16_t lid;
  std::uint8_t mtu;  // as ibv_mtu
  std::uint8_t ethernet;
  std::uint8_t responderReads;  // reads and atomics that it answers at a time
  std::array<std::uint8_t, 3> reserved;
};
static_assert(sizeof(VerbsQueueAddress) == 32);

struct VerbsRequest {
  ibv_wr_opcode opcode;
  std::uint64_t remote;
  std::uint32_t remoteKey;
  std::uint64_t local;
  std::uint32_t localKey;
  std::uint32_t bytes;
  std::uint32_t immediate = 0;
  std::uint64_t add = 0;
  bool inlined = false;
};

class VerbsQueue {
 public:
  static constexpr std::uint32_t receives = 64;     // that wait for immediate data, where it is used
  static constexpr std::size_t batchSize = 64;      // requests that are posted together at most
  static constexpr std::uint32_t inlineBytes = 32;  // sent from the request itself

  VerbsQueue(std::shared_ptr<VerbsDevice> device, bool withReceives);
  ~VerbsQueue();
  VerbsQueue(VerbsQueue const&) = delete;
  VerbsQueue& operator=(VerbsQueue const&) = delete;

  VerbsQueueAddress address() const;
  // `who` begins error texts: "rank 0: InfiniBand to rank 1".
  void connect(std::string who, VerbsQueueAddress const& peer, std::chrono::nanoseconds limit);

  VerbsDevice const& device() const noexcept { return *device_; }
  std::uint32_t number() const noexcept { return pair_->qp_num; }
  std::uint64_t longestMessage() const noexcept { return longestMessage_; }
  bool inlines() const noexcept { return inlines_; }

  std::size_t room() const noexcept { return depth_ - static_cast<std::size_t>(queued_ - done_); }
  // Needs room.
  void add(VerbsRequest const& request);
  // Hands the device what was added. Throws where it refuses.
  void flush();
  // Requests so far, and how many of them, from the first on, are complete.
  std::uint64_t queued() const noexcept { return queued_; }
  std::uint64_t done() const noexcept { return done_; }
  // Looks for completions; throws remoteError for one that failed.
  void poll();

  void addReceive();
  // Immediate values that came, in order; each used up one receive. Throws as poll() does.
  std::vector<std::uint32_t> const& pollReceives();

 private:
  void modify(ibv_qp_attr& attributes, int mask, char const* state);
  [[noreturn]] void failCompletion(ibv_wc const& completion) const;
  std::string describe() const;
  void destroy() noexcept;

  Verbs const& verbs_;
  std::shared_ptr<VerbsDevice> device_;
  std::string who_ = "InfiniBand";
  ibv_cq* sendCompletions_ = nullptr;
  ibv_cq* receiveCompletions_ = nullptr;
  ibv_qp* pair_ = nullptr;
  std::uint32_t firstPacket_ = 0;
  std::uint64_t longestMessage_ = 0;
  std::size_t depth_ = 0;
  bool inlines_ = false;
  std::vector<ibv_send_wr> batch_;
  std::vector<ibv_sge> pieces_;
  std::uint64_t queued_ = 0;
  std::uint64_t done_ = 0;
  std::vector<std::uint32_t> immediates_;
};

}  // namespace mscclpp
