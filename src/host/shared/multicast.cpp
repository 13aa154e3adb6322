// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/multicast.hpp"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "host/memory/descriptor_server.hpp"
#include "host/net/host_identity.hpp"
#include "host/shared/members.hpp"
#include "mscclpp/base/bits.hpp"
#include "mscclpp/host/env.hpp"

namespace mscclpp {
namespace {

// What the members compare before anything is made.
struct Proposal {
  std::uint64_t granularity;
  std::uint32_t ranks;
  std::uint32_t buffers;
  std::int32_t members[maxTeamSize];
};

// Where the others find the descriptor of who has made the object.
struct Offer {
  Key128 process;
  Key128 key;
  std::int32_t descriptor;  // in that process
  std::int32_t there;
};

template <class T>
void append(std::vector<std::byte>& message, T const& value) {
  auto const at = message.size();
  message.resize(at + sizeof value);
  std::memcpy(message.data() + at, &value, sizeof value);
}

template <class T>
T take(std::span<std::byte const>& message) {
  T value{};
  if (message.size() < sizeof value) {
    fail(ErrorCode::invalidUsage,
         "a rank is not making a multicast window; all members must make their windows and teams in the same order");
  }
  std::memcpy(&value, message.data(), sizeof value);
  message = message.subspan(sizeof value);
  return value;
}

// Published while the others fetch it.
class Publication {
 public:
  explicit Publication(FileHandle const& file) {
    FileHandle copy(::fcntl(file.get(), F_DUPFD_CLOEXEC, 0));
    if (!copy) throwSystemError("cannot duplicate the descriptor of a multicast window", errno);
    key_ = DescriptorServer::instance().publish(std::move(copy));
  }
  Publication(Publication const&) = delete;
  Publication& operator=(Publication const&) = delete;
  ~Publication() { DescriptorServer::instance().withdraw(key_); }
  Key128 const& key() const { return key_; }

 private:
  Key128 key_{};
};

}  // namespace

std::string whyNoMulticast(Device device) {
  if (!environment().multicast) {
    return "NCCL_NVLS_ENABLE=0 or MSCCLPP_NVLS=0 in the environment turns multicast off";
  }
  std::string why;
  if (device.runtime().multicastSupported(device.ordinal, why)) return {};
  return why;
}

bool isNvlsSupported(Device device) { return whyNoMulticast(device).empty(); }

MulticastWindow::MulticastWindow(MulticastWindow&&) noexcept = default;
MulticastWindow& MulticastWindow::operator=(MulticastWindow&& other) noexcept {
  memory_ = std::move(other.memory_);  // its own ends before what it needs
  mapped_ = std::move(other.mapped_);
  keepAlive_ = std::move(other.keepAlive_);
  parts_ = std::move(other.parts_);
  base_ = std::exchange(other.base_, nullptr);
  return *this;
}
MulticastWindow::~MulticastWindow() = default;

MulticastWindow::Part const& MulticastWindow::part(std::size_t buffer) const {
  if (buffer >= parts_.size()) {
    fail(ErrorCode::invalidUsage, "MulticastWindow: buffer {}, but it has {}, numbered from 0", buffer, parts_.size());
  }
  return parts_[buffer];
}
std::byte* MulticastWindow::address(std::size_t buffer) const { return base_ + part(buffer).offset; }
std::size_t MulticastWindow::bytes(std::size_t buffer) const { return part(buffer).bytes; }

MulticastWindow::MulticastWindow(Communicator const& communicator, std::vector<MulticastBuffer> buffers,
                                 std::vector<int> ranks) {
  auto const& shared = CommunicatorImpl::of(communicator);
  Members const members("Multicast window", *shared, std::move(ranks));
  int const self = communicator.rank();
  auto const device = communicator.device();
  auto const place = static_cast<std::size_t>(members.place());
  keepAlive_ = shared;

  // What everybody has, and has to be alike.
  Proposal mine{0, static_cast<std::uint32_t>(members.size()), static_cast<std::uint32_t>(buffers.size()), {}};
  std::copy(members.ranks().begin(), members.ranks().end(), mine.members);
  std::vector<RegisteredMemory> own;
  auto const proposals = members.together([&] {
    if (auto const why = whyNoMulticast(device); !why.empty()) {
      fail(ErrorCode::unsupported, "rank {}: no multicast window on {} device {}: {}", self, nameOf(device.kind),
           device.ordinal, why);
    }
    if (buffers.empty()) fail(ErrorCode::invalidUsage, "rank {}: multicast window of no buffers; give 1 or more", self);
    for (std::size_t i = 0; i < members.ranks().size(); ++i) {
      int const member = members.ranks()[i];
      if (!communicator.reaches(member)) {
        fail(ErrorCode::unsupported, "rank {}: rank {} is on another host; a multicast window's ranks share one host",
             self, member);
      }
      if (member != self && shared->sameDevice(member, self)) {
        fail(ErrorCode::unsupported, "rank {}: rank {} uses the same GPU {}; a multicast window takes each device once",
             self, member, shared->peer(member).busId);
      }
    }
    memory_ = device.runtime().multicast(device.ordinal);
    mine.granularity = memory_->granularity(members.size());
    std::vector<std::byte> message;
    append(message, mine);
    for (auto const& buffer : buffers) {
      if (buffer.memory == nullptr || buffer.bytes == 0) {
        fail(ErrorCode::invalidUsage, "rank {}: multicast window of {} bytes at {}; give it memory of at least 1 byte",
             self, buffer.bytes, fmt::ptr(buffer.memory));
      }
      own.push_back(communicator.registerMemory(buffer.memory, buffer.bytes));
      auto const allocation = device.runtime().allocationOf(buffer.memory);
      auto const offset =
          static_cast<std::size_t>(static_cast<std::byte*>(buffer.memory) - static_cast<std::byte*>(allocation.base));
      if (offset % mine.granularity != 0) {
        fail(ErrorCode::invalidUsage,
             "rank {}: multicast window at {}, {} bytes into its allocation; it must begin at a multiple of {}", self,
             fmt::ptr(buffer.memory), offset, mine.granularity);
      }
      append(message, std::uint64_t{buffer.bytes});
      if (!memory_->wantsReplicas()) continue;
      auto const record = own.back().serialize(!members.alone());
      append(message, std::uint64_t{record.size()});
      message.insert(message.end(), record.begin(), record.end());
    }
    return message;
  });
  std::size_t total = 0;
  for (auto const& buffer : buffers) {
    parts_.push_back({total, buffer.bytes});
    total += roundUp<std::size_t>(buffer.bytes, mine.granularity);
  }

  // The first makes the object; the others open it once all have agreed.
  FileHandle file;
  std::optional<Publication> publication;
  std::vector<MulticastReplicas> replicas;
  auto const offers = members.together([&] {
    for (auto const& part : parts_) replicas.push_back({part.offset, part.bytes, {}});
    for (std::size_t i = 0; i < proposals.size(); ++i) {
      int const peer = members.ranks()[i];
      std::span<std::byte const> message(proposals[i]);
      auto const theirs = take<Proposal>(message);
      if (std::memcmp(&theirs, &mine, sizeof mine) != 0) {
        fail(ErrorCode::invalidUsage,
             "multicast window: rank {} gives {} buffers for {} ranks with granularity {}, rank {} {} for {} with {}; "
             "all members must name the same ranks in the same order and give as many buffers",
             self, mine.buffers, mine.ranks, mine.granularity, peer, theirs.buffers, theirs.ranks, theirs.granularity);
      }
      for (std::size_t b = 0; b < parts_.size(); ++b) {
        auto const bytes = take<std::uint64_t>(message);
        if (bytes != parts_[b].bytes) {
          fail(ErrorCode::invalidUsage,
               "multicast window: rank {} gives {} bytes as buffer {}, rank {} {}; all members must give memory of the "
               "same size",
               self, parts_[b].bytes, b, peer, bytes);
        }
        if (!memory_->wantsReplicas()) continue;
        auto const recordBytes = take<std::uint64_t>(message);
        auto const record = message.first(recordBytes);
        message = message.subspan(recordBytes);
        mapped_.push_back(i == place ? own[b] : RegisteredMemory::deserialize(record, device));
        replicas[b].bases.push_back(mapped_.back().data());
      }
    }
    if (!memory_->wantsReplicas()) mapped_ = own;
    std::vector<std::byte> message;
    if (place != 0) return message;
    Offer offer{processIdentity(), {}, -1, 0};
    if (auto const descriptor = memory_->create(members.size(), total)) {
      file = FileHandle(*descriptor);
      if (!members.alone()) publication.emplace(file);
      offer.descriptor = file.get();
      offer.key = publication ? publication->key() : Key128{};
      offer.there = 1;
    }
    append(message, offer);
    return message;
  });
  members.together([&] {
    if (place != 0) {
      std::span<std::byte const> message(offers[0]);
      auto const offer = take<Offer>(message);
      FileHandle fetched;
      int descriptor = offer.descriptor;
      if (offer.there != 0 && offer.process != processIdentity()) {
        fetched =
            fetchDescriptor(offer.process, offer.key, fmt::format("multicast window of rank {}", members.ranks()[0]),
                            environment().timeout);
        descriptor = fetched.get();
      }
      memory_->open(descriptor, total);
    }
    memory_->addDevice();
    return std::vector<std::byte>();
  });
  // Memory is bound once all devices are there, and used once all have bound theirs.
  members.together([&] {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      memory_->bind(parts_[i].offset, buffers[i].memory, roundUp<std::size_t>(buffers[i].bytes, mine.granularity));
    }
    return std::vector<std::byte>();
  });
  members.together([&] {
    base_ = memory_->map(std::move(replicas));
    return std::vector<std::byte>();
  });
}

}  // namespace mscclpp
