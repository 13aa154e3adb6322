// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/fused/experts.hpp"

#include <cstring>
#include <span>
#include <utility>

#include "host/shared/members.hpp"
#include "mscclpp/host/fused/symmetric_arena.hpp"

namespace mscclpp {

namespace {

struct Bound {
  char const* name;
  std::uint64_t value, least, most;
};

void check(std::string const& who, int ranks, layout::ExpertLimits const& limits) {
  using layout::ExpertLimits;
  constexpr std::uint64_t many = 1u << 24;  // numbers of rows and flags fit into 32 bits
  for (auto const& [name, value, least, most] : {
           Bound{"ranks", static_cast<std::uint64_t>(ranks), 1, maxTeamSize},
           Bound{"experts", limits.experts, 1, ExpertLimits::mostExperts},
           Bound{"topK", limits.topK, 1, ExpertLimits::mostTopK},
           Bound{"tokens", limits.tokens, 1, many},
           Bound{"hidden", limits.hidden, 1, many},
           Bound{"elementBytes", limits.elementBytes, 1, 8},
           Bound{"blocks", limits.blocks, 1, many},
           Bound{"gates", limits.gates, 0, many},
       }) {
    if (value >= least && value <= most) continue;
    fail(ErrorCode::invalidUsage, "{}: Experts with {} = {}; it can be {} to {}", who, name, value, least, most);
  }
  constexpr std::uint64_t mostRows = 1u << 31;
  if (auto const rows = std::uint64_t{limits.tokens} * limits.topK * static_cast<unsigned>(ranks); rows > mostRows) {
    fail(ErrorCode::invalidUsage,
         "{}: Experts for {} tokens of each of {} ranks with {} experts each: a rank could get {} rows, at most {} "
         "can be",
         who, limits.tokens, ranks, limits.topK, rows, mostRows);
  }
}

std::string described(layout::ExpertLimits const& limits) {
  return fmt::format("{} experts, topK {}, {} tokens of {} elements of {} bytes, {} blocks, {} gates{}{}",
                     limits.experts, limits.topK, limits.tokens, limits.hidden, limits.elementBytes, limits.blocks,
                     limits.gates, limits.partOfEach ? ", a part of each" : "",
                     limits.variant != 0 ? fmt::format(", variant {}", limits.variant) : "");
}

layout::TileFlagsSize flagsOf(layout::ExpertsLayout const& layout) {
  return {.tiles = layout.flags(), .blocks = layout.limits.blocks};
}

}  // namespace

std::size_t Experts::room(int ranks, layout::ExpertLimits const& limits) {
  check("Experts::room", ranks, limits);
  auto const size = static_cast<std::uint32_t>(ranks);
  auto const layout = layout::ExpertsLayout::make(size, limits);
  return SymmetricArena::room({layout.total, layout::TileFlagsLayout::make(size, flagsOf(layout)).total});
}

Experts::Experts(Communicator const& communicator, layout::ExpertLimits const& limits, std::vector<int> ranks)
    : Experts(communicator, limits, std::move(ranks), nullptr) {}
Experts::Experts(SymmetricArena& arena, layout::ExpertLimits const& limits)
    : Experts(arena.communicator(), limits, arena.ranks(), &arena) {}

Experts::Experts(Communicator const& communicator, layout::ExpertLimits const& limits, std::vector<int> ranks,
                 SymmetricArena* arena) {
  auto const& shared = CommunicatorImpl::of(communicator);
  int const self = communicator.rank();
  Members const members("Set of experts", *shared, std::move(ranks));
  DeviceMemory memory;
  auto const told = members.together([&] {
    check(fmt::format("rank {}", self), members.size(), limits);
    handle_.layout = layout::ExpertsLayout::make(static_cast<std::uint32_t>(members.size()), limits);
    if (arena == nullptr) memory = DeviceMemory(communicator.device(), handle_.layout.total);
    auto const bytes = std::as_bytes(std::span<layout::ExpertLimits const, 1>(&limits, 1));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  });
  for (std::size_t i = 0; i < told.size(); ++i) {
    int const peer = members.ranks()[i];
    layout::ExpertLimits theirs{};
    if (told[i].size() != sizeof theirs) {
      fail(ErrorCode::invalidUsage,
           "rank {}: rank {} is not making Experts; all members must make what they share in the same order", self,
           peer);
    }
    std::memcpy(&theirs, told[i].data(), sizeof theirs);
    if (theirs == limits) continue;
    fail(ErrorCode::invalidUsage, "Experts: rank {} asks for {}, rank {} for {}; all members must ask for the same",
         self, described(limits), peer, described(theirs));
  }
  auto const flags = flagsOf(handle_.layout);
  if (arena != nullptr) {
    window_ = arena->take("experts", handle_.layout.total);
    flags_.emplace(*arena, flags);
  } else {
    window_.emplace(communicator, std::move(memory), members.ranks());
    flags_.emplace(communicator, flags, members.ranks());
  }
  handle_.window = window_->deviceHandle();
  handle_.flags = flags_->deviceHandle();
}

}  // namespace mscclpp
