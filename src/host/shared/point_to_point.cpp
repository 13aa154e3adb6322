// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/point_to_point.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "host/shared/members.hpp"

namespace mscclpp {
namespace {

// What the members compare before anything is allocated.
struct Proposal {
  std::uint64_t lanes;
  std::uint64_t slots;
  std::uint64_t stageBytes;
  std::uint64_t packetBytes;
  std::uint64_t packetLimit;
  std::uint64_t wholeLines;  // of the sender's own links; what all use follows from that of all
};

void check(int self, layout::PointToPointRequirement const& need) {
  auto const refuse = [&](char const* what, std::uint64_t value, std::uint64_t least, std::uint64_t most) {
    if (value >= least && value <= most) return;
    fail(ErrorCode::invalidUsage, "rank {}: PointToPoint with {} = {}; {} to {} are possible", self, what, value, least,
         most);
  };
  refuse("lanes", need.lanes, 1, 1024);
  refuse("slots", need.slots, 1, 1024);
  if (!std::has_single_bit(need.slots)) {
    fail(ErrorCode::invalidUsage, "rank {}: PointToPoint with slots = {}; a power of two is possible", self,
         need.slots);
  }
  refuse("stageBytes", need.stageBytes, 1, layout::maxSliceBytes);
  refuse("packetBytes", need.packetBytes, 1, layout::maxSliceBytes / 4);
}

void compare(int self, int peer, Proposal const& mine, Proposal const& theirs) {
  auto const differ = [&](char const* what, std::uint64_t a, std::uint64_t b) {
    if (a == b) return;
    fail(ErrorCode::invalidUsage, "PointToPoint: rank {} asks for {} = {}, rank {} for {}; all must ask for the same",
         self, what, a, peer, b);
  };
  differ("lanes", mine.lanes, theirs.lanes);
  differ("slots", mine.slots, theirs.slots);
  differ("stageBytes", mine.stageBytes, theirs.stageBytes);
  differ("packetBytes", mine.packetBytes, theirs.packetBytes);
  differ("packetLimit", mine.packetLimit, theirs.packetLimit);
}

}  // namespace

PointToPoint::PointToPoint(Communicator const& communicator, layout::PointToPointRequirement const& requirement,
                           std::vector<int> ranks)
    : ranksPerDevice_(communicator.ranksPerDevice()) {
  auto const& shared = *CommunicatorImpl::of(communicator);
  int const self = communicator.rank();
  Members const members("PointToPoint", shared, ranks);
  auto const proposals = members.together([&] {
    check(self, requirement);
    Proposal const mine{requirement.lanes,
                        requirement.slots,
                        requirement.stageBytes,
                        requirement.packetBytes,
                        requirement.packetLimit,
                        std::all_of(members.ranks().begin(), members.ranks().end(), [&](int member) {
                          return member == self || communicator.linesArriveWhole(member);
                        })};
    auto const bytes = std::as_bytes(std::span<Proposal const, 1>(&mine, 1));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  });
  auto const proposalOf = [&](std::size_t i) {
    Proposal proposal{};
    if (proposals[i].size() != sizeof proposal) {
      fail(ErrorCode::invalidUsage,
           "rank {}: rank {} is not making a PointToPoint; all members must make theirs in the same order", self,
           members.ranks()[i]);
    }
    std::memcpy(&proposal, proposals[i].data(), sizeof proposal);
    return proposal;
  };
  auto const mine = proposalOf(static_cast<std::size_t>(members.place()));
  bool wholeLines = true;
  for (std::size_t i = 0; i < proposals.size(); ++i) {
    auto const theirs = proposalOf(i);
    compare(self, members.ranks()[i], mine, theirs);
    wholeLines = wholeLines && theirs.wholeLines != 0;
  }

  handle_.rank = members.place();
  handle_.size = members.size();
  handle_.watch = shared.watch;
  handle_.layout = layout::PointToPointLayout::make(static_cast<std::uint32_t>(members.size()), requirement);
  handle_.layout.lines = wholeLines ? 1 : 0;
  members.together([&] {
    memory_ = std::make_unique<DeviceMemory>(communicator.device(), handle_.layout.total);
    return std::vector<std::byte>();
  });
  window_.emplace(communicator, memory_->data(), memory_->bytes(), std::move(ranks));
  std::copy_n(window_->deviceHandle().bases, handle_.size, handle_.bases);
  std::vector<layout::RoundCounters> counters;
  for (int i = 0; i < handle_.size; ++i) {
    for (auto const array : {handle_.layout.sent, handle_.layout.taken}) {
      counters.push_back({reinterpret_cast<layout::RoundCounter*>(handle_.bases[i] + array),
                          static_cast<unsigned>(handle_.size) * handle_.layout.lanes, static_cast<unsigned>(i)});
    }
  }
  guard_ = communicator.leadAstray(counters);
}

std::uint64_t PointToPoint::undelivered(int peer) const {
  if (peer < 0 || peer >= size()) {
    fail(ErrorCode::invalidUsage, "rank {}: PointToPoint::undelivered of rank {}; there are ranks 0 to {}", rank(),
         peer, size() - 1);
  }
  auto const& layout = handle_.layout;
  std::vector<layout::RoundCounter> sent(layout.lanes);
  std::vector<std::uint64_t> freed(layout.lanes);
  auto& machine = runtime(memory_->device().kind);
  auto const read = [&](auto& counters, std::uint64_t array) {
    auto const size = sizeof counters[0];
    machine.copy(counters.data(), handle_.bases[handle_.rank] + array + size * layout.index(peer, 0),
                 size * counters.size());
  };
  read(sent, layout.sent);
  read(freed, layout.freed);
  std::uint64_t open = 0;
  for (std::size_t lane = 0; lane < sent.size(); ++lane) open += sent[lane].rounds - freed[lane];
  return open;
}

PointToPoint::~PointToPoint() {
  if (memory_ == nullptr || !window_) return;
  try {
    for (int peer = 0; peer < size(); ++peer) {
      if (auto const chunks = undelivered(peer); chunks != 0) {
        log(LogLevel::warn, "rank {}: {} chunks of messages to rank {} were never received", rank(), chunks, peer);
      }
    }
  } catch (Error const&) {
    // The machine is going down, and has told so.
  }
}

}  // namespace mscclpp
