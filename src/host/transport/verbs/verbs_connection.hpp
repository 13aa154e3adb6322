// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A connection over one queue pair per device (a rail), and what both ends exchange to make it.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "host/net/silence.hpp"
#include "host/transport/staging.hpp"
#include "host/transport/transport.hpp"
#include "host/transport/verbs/verbs_queue.hpp"
#include "mscclpp/host/error.hpp"

namespace mscclpp {

inline constexpr std::size_t mostRails = 8;

// What a peer needs to reach registered memory: one key for each of the owner's rails.
struct VerbsKey {
  std::uint64_t address;
  std::uint64_t bytes;
  std::uint32_t rails;
  std::array<std::uint32_t, mostRails> keys;
  std::uint32_t reserved;
};
static_assert(sizeof(VerbsKey) == 56);
// Throws remoteError.
VerbsKey parseVerbsKey(int rank, int peer, std::span<std::byte const> bytes);

struct VerbsAddress {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t rails;
  std::uint32_t atomics;  // whether its words can be added to
  std::uint32_t mailboxKey;
  std::uint64_t mailbox;
  std::array<VerbsQueueAddress, mostRails> queues;
};
static_assert(sizeof(VerbsAddress) == 288);
// Throws remoteError naming both ranks.
VerbsAddress parseVerbsAddress(int rank, int peer, std::span<std::byte const> bytes);
std::vector<std::byte> serialize(VerbsAddress const& address);

// Memory registered with one device.
class VerbsRegion {
 public:
  // By dmabuf where `descriptor` is not -1: the memory is then `offset` bytes into it.
  VerbsRegion(std::shared_ptr<VerbsDevice> device, void* data, std::size_t bytes, int descriptor = -1,
              std::uint64_t offset = 0);
  ~VerbsRegion();
  VerbsRegion(VerbsRegion const&) = delete;
  VerbsRegion& operator=(VerbsRegion const&) = delete;

  std::uint32_t localKey() const noexcept { return region_->lkey; }
  std::uint32_t remoteKey() const noexcept { return region_->rkey; }

 private:
  std::shared_ptr<VerbsDevice> device_;
  ibv_mr* region_;
};

// Own memory by its key on the first rail, for signals that come as records.
class VerbsMemories {
 public:
  void add(std::uint32_t key, OpenMemory const& memory);
  void remove(std::uint32_t key) noexcept;
  std::optional<OpenMemory> find(std::uint32_t key) const;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::uint32_t, OpenMemory> memories_;
};

class VerbsRegistration final : public Registration {
 public:
  VerbsRegistration(int rank, std::vector<std::shared_ptr<VerbsDevice>> const& devices,
                    std::shared_ptr<VerbsMemories> memories, OpenMemory const& memory);
  ~VerbsRegistration() override;
  VerbsRegistration(VerbsRegistration const&) = delete;
  VerbsRegistration& operator=(VerbsRegistration const&) = delete;

  std::vector<std::byte> key() const override;
  std::span<std::uint32_t const> localKeys() const override { return localKeys_; }

 private:
  std::shared_ptr<VerbsMemories> memories_;
  OpenMemory memory_;
  std::vector<std::unique_ptr<VerbsRegion>> regions_;
  std::vector<std::uint32_t> localKeys_;  // by rail
};

// What a peer writes besides registered memory.
struct VerbsMailbox {
  struct Record {  // of a signal that comes with immediate data
    std::uint64_t offset;
    std::uint64_t value;
    std::uint32_t key;
    std::uint32_t reserved;
  };
  // Twice as many as there are receives: the peer can be no further ahead of what is read.
  static constexpr std::uint32_t records = 2 * VerbsQueue::receives;

  std::uint64_t goodbye;
  std::uint64_t scratch;  // results of atomics and reads, which nobody looks at
  std::array<Record, records> record;
};
static_assert(sizeof(VerbsMailbox::Record) == 24 && sizeof(VerbsMailbox::Record) <= VerbsQueue::inlineBytes);

// What an endpoint makes and its connection goes on with.
struct VerbsParts {
  std::shared_ptr<VerbsMemories> memories;
  std::unique_ptr<VerbsMailbox> mailbox;
  std::unique_ptr<VerbsRegion> mailboxRegion;                // on the first rail
  std::vector<std::unique_ptr<VerbsRegion>> scratchRegions;  // of the mailbox, on the others
  std::vector<std::unique_ptr<VerbsQueue>> queues;
};

class VerbsConnection final : public Connection {
 public:
  VerbsConnection(int rank, int peer, VerbsParts parts, VerbsAddress const& address, bool atomics,
                  std::chrono::nanoseconds limit);
  ~VerbsConnection() override;

  Transport transport() const noexcept override { return Transport::ib; }
  int peer() const noexcept override { return peer_; }
  void write(RegisteredMemory const& dst, std::uint64_t dstOffset, RegisteredMemory const& src, std::uint64_t srcOffset,
             std::uint64_t bytes) override;
  void signal(RegisteredMemory const& dst, std::uint64_t dstOffset, std::uint64_t count) override;
  std::uint64_t posted() const noexcept override { return posted_; }
  std::uint64_t progress() override;
  void abandon(RegisteredMemory const& dst, std::uint64_t dstOffset) noexcept override;

 private:
  struct Post {
    bool isSignal;
    VerbsKey remote;
    std::uint64_t dstOffset;
    std::span<std::uint32_t const> localKeys;  // of the source, by rail
    std::uint64_t source;
    std::uint64_t bytes;
    std::uint64_t value;  // of a signal
    std::uint64_t add;    // likewise
    std::uint64_t cut = 0;
    std::array<std::uint64_t, mostRails> requests{};  // that each rail must have done; set when all is cut
  };
  // What a rail other than the first has written since the last signal.
  struct Unconfirmed {
    bool written = false;
    std::uint64_t remote = 0;  // its last byte
    std::uint32_t key = 0;
    std::uint64_t read = 0;  // request that confirms it; 0: not yet made
  };

  template <class Step>
  void guarded(char const* operation, Step&& step);
  void post(Post const& post);
  void pump();
  bool cutWrite(Post& post);
  bool cutSignal(Post const& post);
  void receive();
  void advance();
  void beat();
  bool awaitsAnswer() const;
  bool done(Post const& post) const;
  bool outstanding() const noexcept { return completed_ < posted_; }
  std::string describeOldest() const;

  int const rank_;
  int const peer_;
  VerbsParts parts_;
  VerbsAddress const address_;
  bool const atomics_;    // for what this rank signals
  bool const receiving_;  // records come from the peer
  std::array<Unconfirmed, mostRails> unconfirmed_{};
  std::deque<Post> posts_;  // not complete, oldest first
  std::size_t uncut_ = 0;   // index of the first that is not wholly cut
  std::size_t nextRail_ = 0;
  std::array<VerbsMailbox::Record, VerbsQueue::batchSize> records_{};  // that are sent inline
  std::uint64_t recordsSent_ = 0;
  std::uint64_t posted_ = 0;
  std::uint64_t completed_ = 0;
  Silence silence_;
  std::unique_ptr<StagingSlots> staging_;
  bool closed_ = false;  // by the peer, in good order
  std::optional<Error> failure_;
};

}  // namespace mscclpp
