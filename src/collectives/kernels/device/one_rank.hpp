// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A team of one: what it gives is what it gets, so one copy does, and nothing in place. Without a kernel.
#pragma once

#include "mscclpp/collectives/kernel_table.hpp"
#include "mscclpp/launch/launch.hpp"

namespace mscclpp::collectives_impl {
inline namespace MSCCLPP_BACKEND {

template <std::size_t ElementBytes>
void startCopy(KernelCall const& call) {
  if (call.out != call.in) call.stream.copy(call.out, call.in, call.count * ElementBytes);
}

inline void addOneRank(KernelTable& table) {
  Kernel kernel;
  kernel.requirement = [](std::uint32_t, std::uint32_t blocks, std::uint32_t) {
    return layout::WorkspaceRequirement{.blocks = blocks};
  };
  kernel.shape = [](std::uint32_t, std::uint64_t, std::uint32_t) { return LaunchShape{.blocks = 1, .threads = 32}; };
  for (auto const& traits : collectiveTraits) {
    if (traits.collective == Collective::sendRecv || traits.collective == Collective::barrier) continue;
    if (!traits.reduces) {
      kernel.start = &startCopy<1>;
      table.add({kernelDevice, traits.collective, "copy", DataType::uint8, ReduceOp::none, 1}, kernel);
      continue;
    }
    for (auto type : dataTypes) {
      kernel.start = withDataType(
          type, []<class T>(std::type_identity<T>) -> decltype(kernel.start) { return &startCopy<sizeof(T)>; });
      for (auto op : reduceOps) table.add({kernelDevice, traits.collective, "copy", type, op, 1}, kernel);
    }
  }
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp::collectives_impl
