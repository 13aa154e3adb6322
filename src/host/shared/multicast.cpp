// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/multicast.hpp"

#include <fcntl.h>

#include <algorithm>
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
struct MulticastProposal {
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

std::span<std::byte const> takeBytes(std::span<std::byte const>& message, std::size_t bytes) {
  if (message.size() < bytes) {
    fail(ErrorCode::invalidUsage,
         "a rank is not making a multicast window; all members must make their windows and teams in the same order");
  }
  auto const taken = message.first(bytes);
  message = message.subspan(bytes);
  return taken;
}
template <class T>
T take(std::span<std::byte const>& message) {
  T value{};
  std::memcpy(&value, takeBytes(message, sizeof value).data(), sizeof value);
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

// One rank's part in the making of a window: steps that all members take together, in this order. Each returns what it
// tells the others.
class Making {
 public:
  using Message = std::vector<std::byte>;

  Making(Communicator const& communicator, Members const& members, std::vector<MulticastBuffer> const& buffers)
      : communicator_(communicator), members_(members), buffers_(buffers) {}

  Message propose();
  // Only a proposal like this rank's leads on.
  void compare(std::vector<Message> const& proposals);
  Message create();  // by the first member; the others open() what it offers
  Message open(std::span<std::byte const> message);
  Message bind();  // once all devices are there
  Message map();   // once all have bound their memory

  std::vector<RegisteredMemory> mapped;  // outlives the memory over it
  std::vector<MulticastReplicas> parts;  // by buffer, one behind the other
  std::unique_ptr<MulticastMemory> memory;
  std::byte* base = nullptr;

 private:
  bool first() const { return members_.place() == 0; }
  std::size_t room(std::size_t bytes) const { return roundUp<std::size_t>(bytes, mine_.granularity); }
  void requireDevices() const;

  Communicator const& communicator_;
  Members const& members_;
  std::vector<MulticastBuffer> const& buffers_;
  MulticastProposal mine_{};
  std::vector<RegisteredMemory> own_;  // by buffer
  std::size_t total_ = 0;
  FileHandle file_;
  std::optional<Publication> publication_;
};

void Making::requireDevices() const {
  int const self = communicator_.rank();
  auto const device = communicator_.device();
  if (auto const why = whyNoMulticast(device); !why.empty()) {
    fail(ErrorCode::unsupported, "rank {}: no multicast window on {} device {}: {}", self, nameOf(device.kind),
         device.ordinal, why);
  }
  if (buffers_.empty()) fail(ErrorCode::invalidUsage, "rank {}: multicast window of no buffers; give 1 or more", self);
  auto const& shared = *CommunicatorImpl::of(communicator_);
  for (int const member : members_.ranks()) {
    if (!communicator_.reaches(member) || !shared.sameHost(member)) {
      fail(ErrorCode::unsupported, "rank {}: rank {} is on another host; a multicast window's ranks share one host",
           self, member);
    }
    if (member != self && shared.sameDevice(member, self)) {
      fail(ErrorCode::unsupported, "rank {}: rank {} uses the same GPU {}; a multicast window takes each device once",
           self, member, shared.peer(member).busId);
    }
  }
}

Making::Message Making::propose() {
  requireDevices();
  int const self = communicator_.rank();
  auto const device = communicator_.device();
  memory = device.runtime().multicast(device.ordinal);
  mine_.granularity = memory->granularity(members_.size());
  mine_.ranks = static_cast<std::uint32_t>(members_.size());
  mine_.buffers = static_cast<std::uint32_t>(buffers_.size());
  std::copy(members_.ranks().begin(), members_.ranks().end(), mine_.members);
  Message message;
  append(message, mine_);
  for (auto const& buffer : buffers_) {
    if (buffer.memory == nullptr || buffer.bytes == 0) {
      fail(ErrorCode::invalidUsage, "rank {}: multicast window of {} bytes at {}; give it memory of at least 1 byte",
           self, buffer.bytes, fmt::ptr(buffer.memory));
    }
    own_.push_back(communicator_.registerMemory(buffer.memory, buffer.bytes));
    auto const allocation = device.runtime().allocationOf(buffer.memory);
    auto const offset =
        static_cast<std::size_t>(static_cast<std::byte*>(buffer.memory) - static_cast<std::byte*>(allocation.base));
    if (offset % mine_.granularity != 0) {
      fail(ErrorCode::invalidUsage,
           "rank {}: multicast window at {}, {} bytes into its allocation; it must begin at a multiple of {}", self,
           fmt::ptr(buffer.memory), offset, mine_.granularity);
    }
    parts.push_back({total_, buffer.bytes, {}});
    total_ += room(buffer.bytes);
    append(message, std::uint64_t{buffer.bytes});
    if (!memory->wantsReplicas()) continue;
    auto const record = own_.back().serialize(!members_.alone());
    append(message, std::uint64_t{record.size()});
    message.insert(message.end(), record.begin(), record.end());
  }
  return message;
}

void Making::compare(std::vector<Message> const& proposals) {
  int const self = communicator_.rank();
  for (std::size_t i = 0; i < proposals.size(); ++i) {
    int const peer = members_.ranks()[i];
    std::span<std::byte const> message(proposals[i]);
    auto const theirs = take<MulticastProposal>(message);
    if (std::memcmp(&theirs, &mine_, sizeof mine_) != 0) {
      fail(ErrorCode::invalidUsage,
           "multicast window: rank {} gives {} buffers for {} ranks with granularity {}, rank {} {} for {} with {}; "
           "all members must name the same ranks in the same order and give as many buffers",
           self, mine_.buffers, mine_.ranks, mine_.granularity, peer, theirs.buffers, theirs.ranks, theirs.granularity);
    }
    for (std::size_t b = 0; b < parts.size(); ++b) {
      auto const bytes = take<std::uint64_t>(message);
      if (bytes != parts[b].bytes) {
        fail(ErrorCode::invalidUsage,
             "multicast window: rank {} gives {} bytes as buffer {}, rank {} {}; all members must give memory of the "
             "same size",
             self, parts[b].bytes, b, peer, bytes);
      }
      if (!memory->wantsReplicas()) continue;
      auto const record = takeBytes(message, take<std::uint64_t>(message));
      mapped.push_back(peer == self ? own_[b] : RegisteredMemory::deserialize(record, communicator_.device()));
      parts[b].bases.push_back(mapped.back().data());
    }
  }
  if (!memory->wantsReplicas()) mapped = own_;
}

Making::Message Making::create() {
  Message message;
  if (!first()) return message;
  Offer offer{processIdentity(), {}, -1, 0};
  if (auto const descriptor = memory->create(members_.size(), total_)) {
    file_ = FileHandle(*descriptor);
    if (!members_.alone()) publication_.emplace(file_);
    offer.descriptor = file_.get();
    offer.key = publication_ ? publication_->key() : Key128{};
    offer.there = 1;
  }
  append(message, offer);
  return message;
}

Making::Message Making::open(std::span<std::byte const> message) {
  if (!first()) {
    auto const offer = take<Offer>(message);
    FileHandle fetched;
    int descriptor = offer.descriptor;
    if (offer.there != 0 && offer.process != processIdentity()) {
      fetched = fetchDescriptor(offer.process, offer.key,
                                fmt::format("multicast window of rank {}", members_.ranks()[0]), environment().timeout);
      descriptor = fetched.get();
    }
    memory->open(descriptor, total_);
  }
  memory->addDevice();
  return {};
}

Making::Message Making::bind() {
  for (std::size_t b = 0; b < parts.size(); ++b) {
    memory->bind(parts[b].offset, buffers_[b].memory, room(parts[b].bytes));
  }
  return {};
}

Making::Message Making::map() {
  base = memory->map(parts);
  return {};
}

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

bool canMulticast(Communicator const& communicator, void const* memory) {
  auto const device = communicator.device();
  auto const& shared = *CommunicatorImpl::of(communicator);
  auto const& runtime = device.runtime();
  bool const binds =
      memory == nullptr || (runtime.multicastBinds(memory) && runtime.allocationOf(memory).base == memory);
  bool oneHost = true;
  for (int peer = 0; peer < communicator.size(); ++peer) oneHost = oneHost && shared.sameHost(peer);
  std::vector<std::uint8_t> can(static_cast<std::size_t>(communicator.size()));
  can[static_cast<std::size_t>(communicator.rank())] =
      isNvlsSupported(communicator.device()) && communicator.ranksPerDevice() == 1 && binds && oneHost ? 1 : 0;
  communicator.setup()->allGather(can.data(), sizeof can[0]);
  return std::find(can.begin(), can.end(), std::uint8_t{0}) == can.end();
}

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

MulticastWindow::MulticastWindow(Communicator const& communicator, std::vector<MulticastBuffer> const& buffers,
                                 std::vector<int> ranks)
    : keepAlive_(CommunicatorImpl::of(communicator)) {
  Members const members("Multicast window", *CommunicatorImpl::of(communicator), std::move(ranks));
  Making making(communicator, members, buffers);
  auto const proposals = members.together([&] { return making.propose(); });
  auto const offers = members.together([&] {
    making.compare(proposals);
    return making.create();
  });
  members.together([&] { return making.open(offers[0]); });
  members.together([&] { return making.bind(); });
  members.together([&] { return making.map(); });

  mapped_ = std::move(making.mapped);
  for (auto const& part : making.parts) parts_.push_back({part.offset, part.bytes});
  base_ = making.base;
  memory_ = std::move(making.memory);
}

}  // namespace mscclpp
