// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A team of one: what it gives is what it gets, so one copy does, and nothing in place. As a node of a graph the
// driver's copy is faster, and so are large ones; where each call is one of the host's, a kernel takes less of the
// host's time.
#pragma once

#include "mscclpp/algorithms/catalogue.hpp"
#include "mscclpp/collectives/kernel_table.hpp"
#include "mscclpp/device/copy.hpp"
#include "mscclpp/launch/launch.hpp"

namespace mscclpp::collectives_impl {
inline namespace MSCCLPP_BACKEND {

struct CopyKernel {
  static constexpr unsigned maxThreads = 512;

  MSCCLPP_DEVICE void operator()(std::byte const* in, std::byte* out, std::size_t bytes) const {
    allowNextKernel();
    waitForPreviousKernel();
    copy(thisGrid(), out, in, bytes);
  }
};

template <std::size_t ElementBytes>
void startCopy(KernelCall const& call) {
  if (call.out == call.in) return;
  constexpr std::size_t largestByKernel = std::size_t{4} << 20;
  auto const bytes = call.count * ElementBytes;
  if (bytes > largestByKernel || call.stream.capturing()) {
    call.stream.copy(call.out, call.in, bytes);
  } else {
    launch(call.stream, call.shape, CopyKernel{}, static_cast<std::byte const*>(call.in),
           static_cast<std::byte*>(call.out), bytes);
  }
}

inline LaunchShape copyShape(std::uint32_t, std::uint64_t bytes, std::uint32_t maxBlocks) {
  return shapeFor<PushSchedule, PeerMemory<4>>(bytes, maxBlocks);
}

inline void addOneRank(KernelTable& table) {
  Kernel kernel;
  kernel.requirement = [](std::uint32_t, std::uint32_t blocks, std::uint32_t) {
    return layout::WorkspaceRequirement{.blocks = blocks};
  };
  kernel.shape = &copyShape;
  kernel.overlaps = true;
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
