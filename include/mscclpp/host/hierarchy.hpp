// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All ranks of a communicator as nodes and rails: a node's ranks map each other's memory, and the ranks at the same
// place of each node, a rail, reach each other through a proxy. Where hosts have different numbers of ranks, each is as
// many nodes as the greatest number that divides all of them makes of it: hosts of 8 and 4 ranks are three nodes of 4.
//
//   HierarchicalTeam team(communicator, {.blocks = 8, .bytes = 1 << 20});
//   launch(stream, {.blocks = 8, .threads = 512}, Kernel{}, team.deviceHandle(), ...);   // DeviceHierarchy
//
// Making one is collective. The data that collectives work in is its own; its proxies run as long as it lives. Destroy
// it when the kernels of all ranks that use it have ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "mscclpp/host/communicator.hpp"
#include "mscclpp/layout/hierarchy_handle.hpp"

namespace mscclpp {

// Of each rank the first whose memory its kernels reach: on its host, or one that NVLink joins to it. Asks nobody.
std::vector<int> hostsOf(Communicator const& communicator);
// The ranks of each node, by such a list.
std::vector<std::vector<int>> nodesOf(std::vector<int> const& hosts);

// What a HierarchicalTeam is made for: the same on all ranks, but for `proxies`.
struct HierarchyRequirement {
  std::uint32_t blocks = 0;  // largest grid
  std::size_t bytes = 0;     // of data on each rank
  int proxies = 1;
  bool allToAll = false;   // as many bytes again, where the node's ranks collect what goes to other nodes
  bool reductions = true;  // and some again, where other nodes' sums come; without it nothing is reduced
  // What the network carries out of a rank in the time that a message is on its way, and in that of a further transfer
  // that a proxy starts, as measured: from which reductions tell which schedule is fastest. Of the ranks' figures the
  // least holds for all. Nothing: by the transports.
  std::optional<std::uint64_t> messageBytes = {};
  std::optional<std::uint64_t> transferBytes = {};
  std::optional<NodeSchedule> schedule = {};  // of all-reduce, whatever its size
};

class HierarchicalTeam {
 public:
  HierarchicalTeam(Communicator const& communicator, HierarchyRequirement const& requirement);
  ~HierarchicalTeam();
  HierarchicalTeam(HierarchicalTeam const&) = delete;
  HierarchicalTeam& operator=(HierarchicalTeam const&) = delete;

  int node() const noexcept;
  int nodes() const noexcept;
  int rail() const noexcept;
  int rails() const noexcept;  // ranks of a node
  std::byte* data() const noexcept;
  std::size_t bytes() const noexcept;
  layout::HierarchyHandle const& deviceHandle() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mscclpp
