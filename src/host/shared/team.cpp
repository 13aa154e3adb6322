// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/team.hpp"

#include <algorithm>

#include "host/shared/members.hpp"
#include "mscclpp/host/fused/symmetric_arena.hpp"

namespace mscclpp {
namespace {

// What the members compare before anything is allocated.
struct TeamProposal {
  std::uint32_t ranks;
  std::uint32_t blocks;
  std::uint64_t packetBytes;
  std::uint64_t lineBytes;
  std::uint64_t stageBytes;
  std::uint64_t multicast;
  std::uint64_t wholeLines;  // of the sender's own links; the team's answer is that of all
  std::int32_t members[maxTeamSize];
};

void compare(int rank, int peer, TeamProposal const& mine, TeamProposal const& theirs) {
  auto const differ = [&](char const* what, auto a, auto b) {
    if (a == b) return;
    fail(ErrorCode::invalidUsage, "Team: rank {} asks for {} of {}, rank {} for {}; all members must ask for the same",
         rank, what, a, peer, b);
  };
  differ("a team size", mine.ranks, theirs.ranks);
  for (std::uint32_t i = 0; i < mine.ranks; ++i) {
    if (mine.members[i] == theirs.members[i]) continue;
    fail(
        ErrorCode::invalidUsage,
        "Team: rank {} names rank {} at place {}, rank {} names rank {} there; all members must name the same ranks in "
        "the same order",
        rank, mine.members[i], i, peer, theirs.members[i]);
  }
  differ("a number of blocks", mine.blocks, theirs.blocks);
  differ("packetBytes", mine.packetBytes, theirs.packetBytes);
  differ("lineBytes", mine.lineBytes, theirs.lineBytes);
  differ("stageBytes", mine.stageBytes, theirs.stageBytes);
  differ("multicast", mine.multicast, theirs.multicast);
}

}  // namespace

Team::Team(Communicator const& communicator, layout::WorkspaceRequirement const& requirement, std::vector<int> ranks)
    : Team(communicator, requirement, std::move(ranks), nullptr) {}
Team::Team(SymmetricArena& arena, layout::WorkspaceRequirement const& requirement)
    : Team(arena.communicator(), requirement, arena.ranks(), &arena) {}

Team::Team(Communicator const& communicator, layout::WorkspaceRequirement const& requirement, std::vector<int> ranks,
           SymmetricArena* arena) {
  auto const& shared = CommunicatorImpl::of(communicator);
  int const self = communicator.rank();
  Members const members("Team", *shared, std::move(ranks));
  if (requirement.blocks == 0) {
    fail(ErrorCode::invalidUsage, "rank {}: Team for grids of 0 blocks; ask for at least 1", self);
  }
  for (auto bytes : {requirement.packetBytes, requirement.lineBytes, requirement.stageBytes}) {
    if (bytes <= layout::maxSliceBytes) continue;
    fail(ErrorCode::invalidUsage, "rank {}: Team with {} bytes per block and region; at most {}, use more blocks", self,
         bytes, layout::maxSliceBytes);
  }
  TeamProposal mine{};
  mine.ranks = static_cast<std::uint32_t>(members.size());
  mine.blocks = requirement.blocks;
  mine.packetBytes = requirement.packetBytes;
  mine.lineBytes = requirement.lineBytes;
  mine.stageBytes = requirement.stageBytes;
  mine.multicast = requirement.multicast;
  mine.wholeLines = std::all_of(members.ranks().begin(), members.ranks().end(),
                                [&](int member) { return member == self || communicator.linesArriveWhole(member); });
  std::copy(members.ranks().begin(), members.ranks().end(), mine.members);
  auto const proposals = members.propose([&] { return mine; });
  bool wholeLines = true;
  for (std::size_t i = 0; i < proposals.size(); ++i) {
    compare(self, members.ranks()[i], mine, proposals[i]);
    wholeLines = wholeLines && proposals[i].wholeLines != 0;
  }

  handle_.rank = members.place();
  handle_.size = members.size();
  handle_.watch = shared->watch;
  handle_.layout = layout::WorkspaceLayout::make(mine.ranks, requirement);
  handle_.layout.wholeLines = wholeLines ? 1 : 0;
  if (arena != nullptr) {
    auto* const multicast = arena->window().deviceHandle().multicast;
    if (requirement.multicast != 0 && multicast == nullptr) {
      fail(ErrorCode::invalidUsage,
           "rank {}: Team with multicast in an arena without; make that with WindowUse::multicast", self);
    }
    auto part = std::make_shared<MemoryWindow>(arena->take("workspace of a team", handle_.layout.total));
    auto const& window = part->deviceHandle();
    std::copy(std::begin(window.bases), std::end(window.bases), handle_.workspaces);
    handle_.multicast = requirement.multicast != 0 ? window.multicast : nullptr;
    part_ = std::move(part);
  }
  RegisteredMemory own;
  auto const records = members.together([&] {
    if (arena != nullptr) return std::vector<std::byte>();
    for (int member : members.ranks()) {
      if (communicator.reaches(member)) continue;
      fail(ErrorCode::unsupported, "rank {}: rank {} is on another host; a team's ranks share one host", self, member);
    }
    workspace_ = DeviceMemory(communicator.device(), handle_.layout.total,
                              requirement.multicast != 0 ? MemoryKind::shareable : communicator.mappedKind());
    own = communicator.registerMemory(workspace_.data(), handle_.layout.total);
    return own.serialize(!members.alone());
  });
  // This also holds everybody until all have mapped.
  members.together([&] {
    for (std::size_t i = 0; arena == nullptr && i < records.size(); ++i) {
      mapped_.push_back(members.ranks()[i] == self ? own
                                                   : RegisteredMemory::deserialize(records[i], communicator.device()));
      handle_.workspaces[i] = mapped_.back().data();
    }
    std::vector<layout::RoundCounters> counters;
    counters.reserve(static_cast<std::size_t>(handle_.size));
    for (int i = 0; i < handle_.size; ++i) {
      auto* const epochs = handle_.workspaces[i] + layout::WorkspaceLayout::epochs;
      counters.push_back(
          {reinterpret_cast<layout::RoundCounter*>(epochs), handle_.layout.blocks, static_cast<unsigned>(i)});
    }
    guard_ = communicator.leadAstray(counters);
    return std::vector<std::byte>();
  });
  if (requirement.multicast == 0 || arena != nullptr) return;
  multicast_.emplace(communicator, workspace_.data(), handle_.layout.total, members.ranks());
  handle_.multicast = multicast_->address();
}

}  // namespace mscclpp
