// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The library's collectives over several nodes, in two levels: one function per machine of the build starts a call.
#pragma once

#include <cstdint>

#include "collectives/kernels/enter_kernels.hpp"
#include "mscclpp/layout/hierarchy_handle.hpp"

namespace mscclpp::collectives_impl {

// What a kernel is told. Of moves the part is in bytes.
struct TwoLevelCall {
  Collective collective;
  ReduceOp op;
  int root;
  void const* in;
  void* out;  // null: this rank has none
  std::uint64_t part;
  bool direct = false;  // all nodes' sums at once, for rank order and operations that are not done with the last sum
};

struct TwoLevelStart {
  Stream const& stream;
  LaunchShape const& shape;
  layout::HierarchyHandle const& nodes;
  DataType type;
};

void startTwoLevel(TwoLevelStart const& start, TwoLevelCall const& call, MachineTag<DeviceKind::sim>);
void startTwoLevel(TwoLevelStart const& start, TwoLevelCall const& call, MachineTag<DeviceKind::cuda>);

}  // namespace mscclpp::collectives_impl
