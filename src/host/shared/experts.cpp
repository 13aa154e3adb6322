// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/fused/experts.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "host/core/communicator_impl.hpp"
#include "host/shared/members.hpp"
#include "mscclpp/host/fused/hierarchical_experts.hpp"
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
      memory = DeviceMemory(communicator.device(), handle_.layout.total, communicator.mappedKind());
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

// ---- several nodes

// What all of it follows from.
struct HierarchicalExperts::Plan {
  std::vector<std::vector<int>> nodes;
  std::vector<int> own;         // node
  std::vector<int> places;      // of each rank
  layout::ExpertLimits within;  // a node
  layout::HierarchicalExpertsLayout layout;

  static Plan make(Communicator const& communicator, layout::ExpertLimits const& limits) {
    auto const self = communicator.rank();
    auto const ranks = static_cast<std::uint32_t>(communicator.size());
    // Each says what it asks for, also where that cannot be, so that no rank is left waiting.
    std::vector<layout::ExpertLimits> all(ranks);
    all[static_cast<std::size_t>(self)] = limits;
    communicator.setup()->allGather(all.data(), sizeof limits);
    check(fmt::format("rank {}", self), communicator.size(), limits);
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      if (all[rank] == limits) continue;
      fail(ErrorCode::invalidUsage, "Experts: rank {} asks for {}, rank {} for {}; all ranks must ask for the same",
           self, described(limits), rank, described(all[rank]));
    }
    Plan plan{.nodes = nodesOf(hostsOf(communicator)), .own = {}, .places = {}, .within = limits, .layout = {}};
    auto const nodes = static_cast<std::uint32_t>(plan.nodes.size());
    auto const rails = ranks / nodes;
    plan.places.resize(ranks);
    int place = 0;
    for (auto const& node : plan.nodes) {
      for (int const rank : node) plan.places[static_cast<std::size_t>(rank)] = place++;
      if (std::find(node.begin(), node.end(), self) != node.end()) plan.own = node;
    }
    plan.within.experts = std::min(ceilDiv(limits.experts, ranks) * rails, layout::ExpertLimits::mostExperts);
    plan.within.tokens = limits.tokens * nodes;
    check(fmt::format("rank {}: {} nodes' tokens within one", self, nodes), static_cast<int>(rails), plan.within);
    plan.layout = layout::HierarchicalExpertsLayout::make(nodes, limits);
    return plan;
  }
};

HierarchicalExperts::HierarchicalExperts(Communicator const& communicator, layout::ExpertLimits const& limits)
    : HierarchicalExperts(communicator, Plan::make(communicator, limits)) {}

HierarchicalExperts::HierarchicalExperts(Communicator const& communicator, Plan const& plan)
    : team_(communicator,
            {.blocks = plan.within.blocks, .bytes = static_cast<std::size_t>(plan.layout.total), .reductions = false}),
      experts_(communicator, plan.within, plan.own),
      places_(communicator.device(), plan.places.size()) {
  copyToDevice(places_, std::span<std::int32_t const>(plan.places));
  handle_ = {.node = experts_.deviceHandle(),
             .hierarchy = team_.deviceHandle(),
             .layout = plan.layout,
             .places = places_.data()};
}

}  // namespace mscclpp
