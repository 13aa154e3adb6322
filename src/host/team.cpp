// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/team.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <set>

#include "bootstrap_access.hpp"
#include "communicator_impl.hpp"
#include "format.hpp"

namespace mscclpp {
namespace {

// What the members compare before anything is allocated.
struct Proposal {
  std::uint32_t ranks;
  std::uint32_t blocks;
  std::uint64_t packetBytes;
  std::uint64_t lineBytes;
  std::uint64_t stageBytes;
  std::uint64_t wholeLines;  // of the sender's own links; the team's answer is that of all
  std::int32_t members[maxTeamSize];
};

template <class Message>
std::vector<Message> gatherAmong(Bootstrap& bootstrap, std::vector<int> const& ranks, Message const& mine) {
  std::vector<Message> result;
  for (int peer : ranks) {
    if (peer != bootstrap.getRank()) BootstrapAccess::send(bootstrap, mine, peer, BootstrapAccess::team);
  }
  for (int peer : ranks) {
    result.push_back(peer == bootstrap.getRank() ? mine
                                                 : BootstrapAccess::recv(bootstrap, peer, BootstrapAccess::team));
  }
  return result;
}

std::vector<std::byte> pack(bool good, std::span<std::byte const> content) {
  std::vector<std::byte> message(content.size() + 1);
  message[0] = std::byte{good};
  std::copy(content.begin(), content.end(), message.begin() + 1);
  return message;
}

// Lets no member wait for one that failed: each step's outcome is told to all, and all throw.
template <class Step>
std::vector<std::vector<std::byte>> together(Bootstrap& bootstrap, std::vector<int> const& ranks, Step&& step) {
  std::vector<std::byte> mine;
  std::optional<Error> own;
  try {
    mine = pack(true, step());
  } catch (Error const& error) {
    own = error;
    std::string_view const text = error.what();
    mine = pack(false, std::as_bytes(std::span(text.data(), text.size())));
  }
  auto all = gatherAmong(bootstrap, ranks, mine);
  if (own) throw *own;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].empty() || all[i].front() == std::byte{0}) {
      fail(ErrorCode::remoteError, "rank {}: rank {} failed while the team was made: {}", bootstrap.getRank(), ranks[i],
           std::string_view(reinterpret_cast<char const*>(all[i].data()) + 1, all[i].empty() ? 0 : all[i].size() - 1));
    }
    all[i].erase(all[i].begin());
  }
  return all;
}

void compare(int rank, int peer, Proposal const& mine, Proposal const& theirs) {
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
}

}  // namespace

Team::Team(Communicator const& communicator, layout::WorkspaceRequirement const& requirement, std::vector<int> ranks) {
  auto const& shared = communicator.impl_;
  int const self = communicator.rank();
  if (ranks.empty()) {
    ranks.resize(static_cast<std::size_t>(communicator.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
  }
  if (ranks.size() > static_cast<std::size_t>(maxTeamSize)) {
    fail(ErrorCode::invalidUsage, "rank {}: Team of {} ranks; a team holds at most {}", self, ranks.size(),
         maxTeamSize);
  }
  for (int member : ranks) shared->checkPeer("Team", member);
  if (std::set<int>(ranks.begin(), ranks.end()).size() != ranks.size()) {
    fail(ErrorCode::invalidUsage, "rank {}: Team over {} names a rank twice", self, fmt::format("{}", ranks));
  }
  auto const place = std::find(ranks.begin(), ranks.end(), self);
  if (place == ranks.end()) {
    fail(ErrorCode::invalidUsage, "rank {}: Team over {} does not hold the calling rank", self,
         fmt::format("{}", ranks));
  }
  if (requirement.blocks == 0) {
    fail(ErrorCode::invalidUsage, "rank {}: Team for grids of 0 blocks; ask for at least 1", self);
  }
  for (auto bytes : {requirement.packetBytes, requirement.lineBytes, requirement.stageBytes}) {
    if (bytes <= layout::maxSliceBytes) continue;
    fail(ErrorCode::invalidUsage, "rank {}: Team with {} bytes per block and region; at most {}, use more blocks", self,
         bytes, layout::maxSliceBytes);
  }
  Bootstrap& bootstrap = *communicator.bootstrap();

  Proposal mine{};
  mine.ranks = static_cast<std::uint32_t>(ranks.size());
  mine.blocks = requirement.blocks;
  mine.packetBytes = requirement.packetBytes;
  mine.lineBytes = requirement.lineBytes;
  mine.stageBytes = requirement.stageBytes;
  mine.wholeLines = std::all_of(ranks.begin(), ranks.end(),
                                [&](int member) { return member == self || communicator.linesArriveWhole(member); });
  std::copy(ranks.begin(), ranks.end(), mine.members);
  auto const bytes = std::as_bytes(std::span<Proposal const, 1>(&mine, 1));
  auto const proposals = gatherAmong(bootstrap, ranks, std::vector<std::byte>(bytes.begin(), bytes.end()));
  bool wholeLines = true;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    Proposal theirs{};
    if (proposals[i].size() != sizeof theirs) {
      fail(ErrorCode::invalidUsage,
           "rank {}: rank {} is not making the same team; all members must make their teams in "
           "the same order",
           self, ranks[i]);
    }
    std::memcpy(&theirs, proposals[i].data(), sizeof theirs);
    compare(self, ranks[i], mine, theirs);
    wholeLines = wholeLines && theirs.wholeLines != 0;
  }

  handle_.rank = static_cast<std::int32_t>(place - ranks.begin());
  handle_.size = static_cast<std::int32_t>(ranks.size());
  handle_.watch = shared->watch;
  handle_.layout = layout::WorkspaceLayout::make(mine.ranks, requirement);
  handle_.layout.wholeLines = wholeLines ? 1 : 0;
  keepAlive_ = shared;
  bool const alone = std::all_of(ranks.begin(), ranks.end(), [&](int member) { return shared->sameProcess(member); });
  RegisteredMemory own;
  auto const records = together(bootstrap, ranks, [&] {
    for (int member : ranks) {
      if (communicator.reaches(member)) continue;
      fail(ErrorCode::unsupported, "rank {}: rank {} is on another host; a team's ranks share one host", self, member);
    }
    workspace_ = DeviceMemory(communicator.device(), handle_.layout.total);
    own = communicator.registerMemory(workspace_.data(), handle_.layout.total);
    return own.serialize(!alone);
  });
  // This also holds everybody until all have mapped.
  together(bootstrap, ranks, [&] {
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      mapped_.push_back(ranks[i] == self ? own : RegisteredMemory::deserialize(records[i], communicator.device()));
      handle_.workspaces[i] = mapped_.back().data();
    }
    return std::vector<std::byte>();
  });
}

}  // namespace mscclpp
