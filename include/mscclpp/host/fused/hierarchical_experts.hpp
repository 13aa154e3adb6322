// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Memory in which the tokens of a communicator's ranks travel to the ranks of their experts and back where those are on
// several nodes (host/hierarchy.hpp): between nodes once to each, by a proxy, from rail to rail, and within a node as
// host/fused/experts.hpp has it (algorithms/experts/hierarchical_dispatch.hpp, hierarchical_combine.hpp).
//
//   HierarchicalExperts experts(communicator, {.experts = 256, .topK = 8, .tokens = 128, .hidden = 7168});
//   launch(stream, shape, Kernel{}, ..., experts.deviceHandle());   // DeviceHierarchicalExperts const& there
//
// Making it is collective over all ranks, which must ask for the same. One kernel at a time, one batch of tokens from
// its dispatch to its combine, and destroyed only when all ranks' kernels have ended, as Experts. bytes() is what it
// takes on each rank: for each token of each node a row, its scales and its home, and Experts of a node for the tokens
// of all nodes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/fused/experts.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/hierarchy.hpp"
#include "mscclpp/layout/hierarchical_experts_handle.hpp"

namespace mscclpp {

class HierarchicalExperts {
 public:
  // Throws invalidUsage on every rank where the limits are past what can be, or differ between ranks.
  HierarchicalExperts(Communicator const& communicator, layout::ExpertLimits const& limits);

  layout::ExpertLimits const& limits() const noexcept { return handle_.layout.limits; }
  std::size_t bytes() const noexcept { return handle_.layout.total + experts_.bytes(); }
  // Of this node.
  Experts const& withinNode() const noexcept { return experts_; }
  layout::HierarchicalExpertsHandle const& deviceHandle() const noexcept { return handle_; }

 private:
  struct Plan;
  HierarchicalExperts(Communicator const& communicator, Plan const& plan);

  HierarchicalTeam team_;
  Experts experts_;
  GpuBuffer<std::int32_t> places_;
  layout::HierarchicalExpertsHandle handle_{};
};

}  // namespace mscclpp
