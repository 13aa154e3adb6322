// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The library's kernels that bring tokens to their experts and home: one function per machine of the build starts each.
#pragma once

#include "collectives/kernels/enter_kernels.hpp"
#include "mscclpp/collectives/expert_parallel.hpp"
#include "mscclpp/layout/hierarchical_experts_handle.hpp"

namespace mscclpp::collectives_impl {

// A call with what is the same for all calls of a group.
struct ExpertStart {
  Stream const& stream;
  LaunchShape const& shape;
  layout::ExpertsHandle const& experts;
  layout::HierarchicalExpertsHandle const* nodes;  // null: one
  DataType type;
  DataType wire;
};

// Whether there are kernels for rows of `type` that travel as `wire`.
constexpr bool hasExpertKernels(DataType type, DataType wire) {
  bool const small = type == DataType::float16 || type == DataType::bfloat16;
  bool const quantised = wire == DataType::float8E4M3 || wire == DataType::int8;
  return (small || type == DataType::float32) && (wire == type || (small && quantised));
}

void startDispatch(ExpertStart const& start, DispatchCall const& call, MachineTag<DeviceKind::sim>);
void startDispatch(ExpertStart const& start, DispatchCall const& call, MachineTag<DeviceKind::cuda>);
void startCombine(ExpertStart const& start, CombineCall const& call, MachineTag<DeviceKind::sim>);
void startCombine(ExpertStart const& start, CombineCall const& call, MachineTag<DeviceKind::cuda>);
// Of several nodes, for the former.
void startDispatchOverNodes(ExpertStart const& start, DispatchCall const& call, MachineTag<DeviceKind::sim>);
void startDispatchOverNodes(ExpertStart const& start, DispatchCall const& call, MachineTag<DeviceKind::cuda>);
void startCombineOverNodes(ExpertStart const& start, CombineCall const& call, MachineTag<DeviceKind::sim>);
void startCombineOverNodes(ExpertStart const& start, CombineCall const& call, MachineTag<DeviceKind::cuda>);

}  // namespace mscclpp::collectives_impl
