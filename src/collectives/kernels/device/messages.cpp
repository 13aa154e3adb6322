// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kernels without a collective's data: messages between pairs of ranks, and the barrier.
#include <algorithm>

#include "collectives/kernels/device/add_kernels.hpp"
#include "mscclpp/algorithms/collective/send_recv.hpp"
#include "mscclpp/algorithms/transport/packet_transport.hpp"
#include "mscclpp/device/barrier.hpp"
#include "mscclpp/launch/launch.hpp"

namespace mscclpp::collectives_impl {
inline namespace MSCCLPP_BACKEND {

template <class P>
struct MessageKernel {
  static constexpr unsigned maxThreads = 512;

  MSCCLPP_DEVICE void operator()(layout::PointToPointHandle const& links, layout::Messages const& messages) const {
    SendRecv<P>{links}(thisGrid(), messages);
  }
};

template <class P>
void startMessages(KernelCall const& call) {
  launch(call.stream, call.shape, MessageKernel<P>{}, *call.links, *call.messages);
}

// `bytes` of one lane. A simulated GPU has its threads for a cost.
LaunchShape messageShape(std::uint32_t, std::uint64_t bytes, std::uint32_t maxBlocks) {
  if (kernelDevice == DeviceKind::sim) return {.blocks = maxBlocks, .threads = 32};
  return {.blocks = maxBlocks, .threads = bytes <= 2048 ? 128u : 512u};
}

template <class P>
void addMessages(KernelTable& table, char const* name) {
  auto kernel = kernelOver<PacketTransport<P>>();
  kernel.start = &startMessages<P>;
  kernel.shape = &messageShape;
  kernel.inPlace = false;
  kernel.minThreads = 32;
  kernel.minBlocks = layout::leastMessageBlocks;
  kernel.requirement = [](std::uint32_t, std::uint32_t, std::uint32_t) { return layout::WorkspaceRequirement{}; };
  table.add({kernelDevice, Collective::sendRecv, name, DataType::uint8, ReduceOp::none, 0}, kernel);
}

struct BarrierKernel {
  MSCCLPP_DEVICE void operator()(DeviceTeam const& team) const { teamBarrier(team, thisGrid()); }
};

void startBarrier(KernelCall const& call) { launch(call.stream, call.shape, BarrierKernel{}, DeviceTeam(call.team)); }

void enter_messages(KernelTable& table) {
  addMessages<LL16>(table, "ll16");
  addMessages<LL128>(table, "ll128");
  Kernel barrier;
  barrier.start = &startBarrier;
  barrier.overlaps = true;
  barrier.requirement = [](std::uint32_t, std::uint32_t blocks, std::uint32_t) {
    return layout::WorkspaceRequirement{.blocks = blocks};
  };
  barrier.shape = [](std::uint32_t, std::uint64_t, std::uint32_t) { return LaunchShape{.blocks = 1, .threads = 32}; };
  table.add({kernelDevice, Collective::barrier, "signals", DataType::uint8, ReduceOp::none, 0}, barrier);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp::collectives_impl
