// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/fused/symmetric_arena.hpp"

#include <atomic>
#include <bit>
#include <cstring>
#include <utility>

#include "host/shared/members.hpp"

namespace mscclpp {
namespace {

// What the members compare before a part is taken.
struct PartProposal {
  std::uint64_t arena;
  std::uint64_t begin;
  std::uint64_t bytes;
  std::uint64_t alignment;
  char name[48];  // filled up with zeros

  friend bool operator==(PartProposal const& a, PartProposal const& b) { return std::memcmp(&a, &b, sizeof a) == 0; }
};

std::string described(PartProposal const& part) {
  return fmt::format("'{}' of {} bytes at offset {}, aligned to {}", std::string_view(part.name), part.bytes,
                     part.begin, part.alignment);
}

}  // namespace

SymmetricArena::SymmetricArena(Communicator const& communicator, std::size_t bytes, std::vector<int> ranks,
                               WindowUse use)
    : SymmetricArena(communicator, std::optional<void*>(), bytes, std::move(ranks), use) {}
SymmetricArena::SymmetricArena(Communicator const& communicator, void* memory, std::size_t bytes,
                               std::vector<int> ranks, WindowUse use)
    : SymmetricArena(communicator, std::optional<void*>(memory), bytes, std::move(ranks), use) {}

SymmetricArena::SymmetricArena(Communicator const& communicator, std::optional<void*> memory, std::size_t bytes,
                               std::vector<int> ranks, WindowUse use)
    : communicator_(communicator) {
  int const self = communicator.rank();
  Members const members("Arena", *CommunicatorImpl::of(communicator), std::move(ranks));
  ranks_ = members.ranks();
  DeviceMemory own;
  auto const numbers = members.propose([&] {
    if (use == WindowUse::proxies) {
      fail(ErrorCode::unsupported, "rank {}: an arena for proxies, which reach no part; make them a MemoryWindow",
           self);
    }
    if (bytes == 0) fail(ErrorCode::invalidUsage, "rank {}: an arena of 0 bytes; ask for at least 1", self);
    if (!memory) {
      own = DeviceMemory(communicator.device(), bytes,
                         use == WindowUse::multicast ? MemoryKind::shareable : communicator.mappedKind());
    }
    static std::atomic<std::uint64_t> made{0};
    return std::uint64_t{static_cast<unsigned>(self)} << 48 | ++made;
  });
  number_ = numbers.front();
  window_ = memory ? MemoryWindow(communicator, *memory, bytes, ranks_, use)
                   : MemoryWindow(communicator, std::move(own), ranks_, use);
}

MemoryWindow SymmetricArena::take(std::string const& name, std::size_t bytes, std::size_t alignment) {
  int const self = communicator_.rank();
  Members const members(fmt::format("Part '{}' of an arena", name), *CommunicatorImpl::of(communicator_), ranks_);
  PartProposal mine{number_, 0, bytes, alignment, {}};
  auto const proposals = members.propose([&] {
    if (name.empty() || name.size() >= sizeof mine.name) {
      fail(ErrorCode::invalidUsage,
           "rank {}: a part of an arena with a name of {} characters, '{}'; it can have 1 to {}", self, name.size(),
           name, sizeof mine.name - 1);
    }
    name.copy(mine.name, sizeof mine.name);
    if (bytes == 0) fail(ErrorCode::invalidUsage, "rank {}: part '{}' of 0 bytes; take at least 1", self, name);
    if (!std::has_single_bit(alignment)) {
      fail(ErrorCode::invalidUsage, "rank {}: part '{}' aligned to {}; that must be a power of two", self, name,
           alignment);
    }
    if (reinterpret_cast<std::uintptr_t>(window().data()) % alignment != 0) {
      fail(ErrorCode::invalidUsage,
           "rank {}: part '{}' aligned to {} in an arena at {}; the arena's memory must begin at a multiple of that",
           self, name, alignment, fmt::ptr(window().data()));
    }
    mine.begin = roundUp(used_, alignment);
    if (mine.begin > size() || bytes > size() - mine.begin) {
      fail(ErrorCode::invalidUsage,
           "rank {}: part '{}' wants {} bytes, aligned to {}; of the arena's {} bytes {} are taken, {} are free, and "
           "{} of these so aligned",
           self, name, bytes, alignment, size(), used_, size() - used_,
           size() - std::min<std::size_t>(mine.begin, size()));
    }
    communicator_.device().runtime().fill(window().data() + mine.begin, 0, bytes);
    return mine;
  });
  for (std::size_t i = 0; i < proposals.size(); ++i) {
    int const peer = ranks_[i];
    auto const& theirs = proposals[i];
    if (theirs == mine) continue;
    if (theirs.arena != mine.arena) {
      fail(ErrorCode::invalidUsage,
           "SymmetricArena: rank {} takes part '{}' of another arena than rank {}, which takes '{}'; all members must "
           "take the same parts in the same order",
           self, name, peer, std::string_view(theirs.name));
    }
    fail(ErrorCode::invalidUsage,
         "SymmetricArena: rank {} takes {}, rank {} {}; all members must take the same parts in the same order", self,
         described(mine), peer, described(theirs));
  }
  auto part = window().part(mine.begin, bytes);
  used_ = mine.begin + bytes;
  return part;
}

}  // namespace mscclpp
