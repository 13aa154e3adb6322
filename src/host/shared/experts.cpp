// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/fused/experts.hpp"

#include <algorithm>
#include <string_view>
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
  if (limits.transport == layout::ExpertTransport::packets && limits.tokens > ExpertLimits::mostPacketTokens) {
    fail(ErrorCode::invalidUsage,
         "{}: Experts for {} tokens as packets, which there are for {} at most; leave the transport to the library, or "
         "take memory",
         who, limits.tokens, ExpertLimits::mostPacketTokens);
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
  constexpr std::string_view transports[] = {"", ", by memory", ", by packets"};
  return fmt::format("{} experts, topK {}, {} tokens of {} elements of {} bytes, {} blocks, {} gates{}{}{}",
                     limits.experts, limits.topK, limits.tokens, limits.hidden, limits.elementBytes, limits.blocks,
                     limits.gates, limits.partOfEach ? ", a part of each" : "",
                     transports[static_cast<std::size_t>(limits.transport)],
                     limits.variant != 0 ? fmt::format(", variant {}", limits.variant) : "");
}

layout::TileFlagsSize flagsOf(layout::ExpertsLayout const& layout) {
  return {.tiles = layout.flags(), .blocks = layout.limits.blocks};
}

}  // namespace

std::size_t Experts::room(int ranks, layout::ExpertLimits const& limits) {
  check("Experts::room", ranks, limits);
  auto const size = static_cast<std::uint32_t>(ranks);
  std::size_t most = 0;
  for (bool const wholeLines : {false, true}) {
    auto const layout = layout::ExpertsLayout::make(size, limits, wholeLines);
    auto const flags = layout::TileFlagsLayout::make(size, flagsOf(layout));
    most = std::max(most, SymmetricArena::room({layout.total, flags.total}));
  }
  return most;
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
  // What a member says of itself.
  struct Proposal {
    layout::ExpertLimits limits;
    std::uint32_t wholeLines;
  };
  auto const told = members.propose([&] {
    check(fmt::format("rank {}", self), members.size(), limits);
    bool const whole = std::all_of(members.ranks().begin(), members.ranks().end(),
                                   [&](int member) { return member == self || communicator.linesArriveWhole(member); });
    return Proposal{limits, whole ? 1u : 0u};
  });
  bool wholeLines = true;
  for (std::size_t i = 0; i < told.size(); ++i) {
    auto const& theirs = told[i];
    wholeLines = wholeLines && theirs.wholeLines != 0;
    if (theirs.limits == limits) continue;
    fail(ErrorCode::invalidUsage, "Experts: rank {} asks for {}, rank {} for {}; all members must ask for the same",
         self, described(limits), members.ranks()[i], described(theirs.limits));
  }
  if (limits.transport == layout::ExpertTransport::packets && !wholeLines) {
    fail(ErrorCode::invalidUsage,
         "rank {}: Experts by packets: not every link between the ranks delivers 128-byte lines whole; leave the "
         "transport to the library, or take memory",
         self);
  }
  handle_.layout = layout::ExpertsLayout::make(static_cast<std::uint32_t>(members.size()), limits, wholeLines);
  auto const flags = flagsOf(handle_.layout);
  if (arena != nullptr) {
    window_ = arena->take("experts", handle_.layout.total);
    flags_.emplace(*arena, flags);
  } else {
    DeviceMemory memory;
    members.together([&] {
      memory = DeviceMemory(communicator.device(), handle_.layout.total);
      return std::vector<std::byte>{};
    });
    window_.emplace(communicator, std::move(memory), members.ranks());
    flags_.emplace(communicator, flags, members.ranks());
  }
  handle_.window = window_->deviceHandle();
  handle_.flags = flags_->deviceHandle();
}

layout::ExpertsHandle Experts::deviceHandle(std::int32_t const* failed) const {
  if (failed != nullptr && handle_.layout.packets == 0) {
    fail(
        ErrorCode::invalidUsage,
        "rank {}: Experts without ranks that have failed, and rows go by memory; that there is by packets only, for up "
        "to {} tokens over links that deliver 128-byte lines whole",
        rank(), layout::ExpertLimits::mostPacketTokens);
  }
  auto handle = handle_;
  handle.failed = failed;
  return handle;
}

}  // namespace mscclpp
