// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The memory in which tokens travel from node to node on their way to experts and home, as kernels receive it, by value
// (host/fused/hierarchical_experts.hpp).
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/base/bits.hpp"
#include "mscclpp/layout/experts_handle.hpp"
#include "mscclpp/layout/hierarchy_handle.hpp"

namespace mscclpp::layout {

// Offsets in bytes into the data of a HierarchicalTeam, the same on every rank. Each has a part for each node, of
// `tokens` tokens.
struct HierarchicalExpertsLayout {
  ExpertLimits limits;  // as asked for: of all ranks' experts, and of a rank's tokens
  // [node][token] slots: of the tokens of each node's same rail as they came, then of what this node's experts have
  // made of them. In the own node's part, this rank's.
  std::uint64_t slots;
  std::uint64_t tables;  // [node][token] entries: for which of this node's experts those are
  std::uint64_t sent;    // likewise: for which of each node's experts this rank's tokens are
  std::uint64_t home;    // [node][token] rows: what each other node has made of this rank's tokens
  std::uint64_t total;

  // `limits`: as asked for, of a rank.
  static constexpr HierarchicalExpertsLayout make(std::uint32_t nodes, ExpertLimits const& limits) {
    constexpr std::uint64_t line = 128;
    HierarchicalExpertsLayout l{};
    l.limits = limits;
    // At most; kernels know the type.
    std::uint64_t const rowBytes = roundUp(limits.hidden * limits.elementBytes, std::uint32_t{16});
    auto const tokens = std::uint64_t{nodes} * limits.tokens;
    auto const tableBytes = tokens * l.entryBytes();
    l.slots = 0;
    l.tables = roundUp<std::uint64_t>(tokens * (rowBytes + scaleBytes(limits.hidden)), line);
    l.sent = roundUp<std::uint64_t>(l.tables + tableBytes, line);
    l.home = roundUp<std::uint64_t>(l.sent + tableBytes, line);
    l.total = l.home + tokens * rowBytes;
    return l;
  }

  // Of a token in a table: an expert of the node's, or -1, and its weight, for each of its experts.
  MSCCLPP_HOST_DEVICE constexpr std::uint32_t entryBytes() const {
    return limits.topK * static_cast<std::uint32_t>(sizeof(std::int32_t) + sizeof(float));
  }
  // Behind a quantised row.
  MSCCLPP_HOST_DEVICE static constexpr std::uint32_t scaleBytes(std::uint32_t hidden) {
    constexpr auto bytes = static_cast<std::uint32_t>(sizeof(float));
    return roundUp(ceilDiv(hidden, ExpertsLayout::scaleColumns) * bytes, std::uint32_t{16});
  }
};

struct HierarchicalExpertsHandle {
  ExpertsHandle node;  // of the node's ranks: for its experts, and for the tokens that all nodes send to a rank
  HierarchyHandle hierarchy;
  HierarchicalExpertsLayout layout;
  std::int32_t const* places;  // of each rank: node * rails + rail
};

}  // namespace mscclpp::layout
