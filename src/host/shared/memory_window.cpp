// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/memory_window.hpp"

#include <atomic>
#include <cstring>

#include "host/shared/members.hpp"

namespace mscclpp {
namespace {

// What the members compare before anything is mapped.
struct WindowProposal {
  std::uint64_t bytes;
  std::uint32_t ranks;
  std::int32_t members[maxTeamSize];
};

std::uint64_t nextId() {
  static std::atomic<std::uint64_t> made{0};
  return ++made;
}

}  // namespace

MemoryWindow::MemoryWindow(Communicator const& communicator, void* memory, std::size_t bytes, std::vector<int> ranks,
                           WindowUse use)
    : id_(nextId()) {
  auto const& shared = CommunicatorImpl::of(communicator);
  Members const members("Window", *shared, std::move(ranks));
  int const self = communicator.rank();
  WindowProposal mine{bytes, static_cast<std::uint32_t>(members.size()), {}};
  std::copy(members.ranks().begin(), members.ranks().end(), mine.members);
  RegisteredMemory own;
  auto const records = members.together([&] {
    if (memory == nullptr || bytes == 0) {
      fail(ErrorCode::invalidUsage, "rank {}: MemoryWindow of {} bytes at {}; give it memory of at least 1 byte", self,
           bytes, fmt::ptr(memory));
    }
    for (int member : members.ranks()) {
      if (use == WindowUse::proxies || communicator.reaches(member)) continue;
      fail(ErrorCode::unsupported,
           "rank {}: rank {} is on another host, whose memory only proxies reach: WindowUse::proxies", self, member);
    }
    own = use == WindowUse::proxies ? communicator.registerMemory(memory, bytes, communicator.transports())
                                    : communicator.registerMemory(memory, bytes);
    auto const head = std::as_bytes(std::span<WindowProposal const, 1>(&mine, 1));
    auto const record = own.serialize(!members.alone());
    std::vector<std::byte> message(head.begin(), head.end());
    message.insert(message.end(), record.begin(), record.end());
    return message;
  });
  handle_.rank = members.place();
  handle_.size = members.size();
  handle_.bytes = bytes;
  keepAlive_ = shared;
  // This also holds everybody until all have mapped.
  members.together([&] {
    for (std::size_t i = 0; i < records.size(); ++i) {
      int const peer = members.ranks()[i];
      WindowProposal theirs{};
      if (records[i].size() < sizeof theirs) {
        fail(ErrorCode::invalidUsage,
             "rank {}: rank {} is not making a window; all members must make their windows and teams in the same order",
             self, peer);
      }
      std::memcpy(&theirs, records[i].data(), sizeof theirs);
      if (theirs.bytes != bytes) {
        fail(ErrorCode::invalidUsage,
             "MemoryWindow: rank {} gives {} bytes, rank {} {}; all members must give memory of the same size", self,
             bytes, peer, theirs.bytes);
      }
      if (theirs.ranks != mine.ranks || std::memcmp(theirs.members, mine.members, sizeof mine.members) != 0) {
        fail(ErrorCode::invalidUsage,
             "MemoryWindow: rank {} and rank {} name other members; all must name the same ranks in the same order",
             self, peer);
      }
      std::span<std::byte const> const record(records[i].data() + sizeof theirs, records[i].size() - sizeof theirs);
      mapped_.push_back(peer == self ? own : RegisteredMemory::deserialize(record, communicator.device()));
      if (communicator.reaches(peer)) handle_.bases[i] = mapped_.back().data();
    }
    return std::vector<std::byte>();
  });
  if (use != WindowUse::multicast) return;
  multicast_ = std::make_shared<MulticastWindow>(communicator, memory, bytes, members.ranks());
  handle_.multicast = multicast_->address();
}

MemoryWindow::MemoryWindow(Communicator const& communicator, DeviceMemory memory, std::vector<int> ranks, WindowUse use)
    : MemoryWindow(communicator, memory.data(), memory.bytes(), std::move(ranks), use) {
  memory_ = std::make_shared<DeviceMemory>(std::move(memory));
}

MemoryWindow MemoryWindow::part(std::size_t offset, std::size_t bytes) const {
  if (bytes == 0 || offset > size() || bytes > size() - offset) {
    fail(ErrorCode::invalidUsage,
         "MemoryWindow: a part of {} bytes at offset {} of a window of {} bytes; take at least 1 byte of those", bytes,
         offset, size());
  }
  MemoryWindow made(*this);
  made.id_ = nextId();
  made.whole_ = false;
  auto& handle = made.handle_;
  handle.bytes = bytes;
  for (auto*& base : handle.bases) {
    if (base != nullptr) base += offset;
  }
  if (handle.multicast != nullptr) handle.multicast += offset;
  return made;
}

std::vector<RegisteredMemory> const& MemoryWindow::memories() const {
  if (!whole_) {
    fail(ErrorCode::unsupported,
         "MemoryWindow: a part of {} bytes has no memories of its own for proxies; give them the whole window, and "
         "offsets in it",
         size());
  }
  return mapped_;
}

bool MemoryWindow::contains(void const* pointer, std::size_t bytes) const noexcept {
  auto const first = reinterpret_cast<std::uintptr_t>(data());
  auto const at = reinterpret_cast<std::uintptr_t>(pointer);
  return at >= first && bytes <= size() && at - first <= size() - bytes;
}

}  // namespace mscclpp
