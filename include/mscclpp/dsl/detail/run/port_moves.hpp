// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The moving steps of a lowered program that go through a port: the block's first warp, which does the steps that order
// as well, asks the proxy for them, so a signal of the same channel follows the data. One source and one target, both
// plain or both packets. Packets are moved as they lie, once all threads together have seen that they are there.
#pragma once

#include <cstdint>

#include "mscclpp/device/group.hpp"
#include "mscclpp/device/port_channel.hpp"
#include "mscclpp/dsl/detail/run/packet_moves.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace dsl_impl {

// By one thread.
template <PacketFormat P, class Context, class Steps>
MSCCLPP_DEVICE void askPort(Context const& context, Steps const& steps, auto const& step) {
  context.places.requireUsable();
  int channel = 0;
  steps.forEachObject(step.firstObject, 1, [&](int, auto const& object) { channel = context.places.numberOf(object); });
  BasePortChannelDeviceHandle const port(context.places.plan().ports[channel]);
  for (int chunk = 0; chunk < step.chunks; ++chunk) {
    auto const piece = context.places.pieceOf(steps, step, chunk);
    PortPlace ends[2];
    bool packets = false;
    steps.forEachOperand(step, [&](int i, auto const& operand) {
      ends[i] = context.places.portPlace(operand, chunk, piece.first);
      packets = operand.packets;
    });
    auto const bytes = packets ? std::uint64_t{slotsOf<P>(context, steps, step, piece)} * P::slotBytes : piece.bytes();
    if (bytes != 0) port.put(ends[1].memory, ends[1].offset, ends[0].memory, ends[0].offset, bytes);
  }
}

// By the whole block, which has met when it returns.
template <PacketFormat P, class Context, class Steps>
MSCCLPP_DEVICE void awaitSources(Context const& context, Steps const& steps, auto const& step) {
  context.places.requireUsable();
  Piece piece{};
  forEachSlot(
      step, startOf(step, packetSlots<P>(context.places.longestPiece(step))),
      [&](int chunk) {
        piece = context.places.pieceOf(steps, step, chunk);
        return slotsOf<P>(context, steps, step, piece);
      },
      [&](int chunk, std::uint32_t slot) {
        std::byte const* place = nullptr;
        steps.forEachSource(
            step, [&](int, auto const& operand) { place = packetPlace<P>(context, operand, chunk, piece, slot); });
        auto const flag = context.places.flag();
        awaitPacket<P>(context.places.plan().watch, place, flag, {layout::WaitKind::programPacket, -1, slot, flag});
      });
  syncWhole(thisBlock());
}

// By the whole block.
template <PacketFormat P, class Context, class Steps>
MSCCLPP_DEVICE void moveByPort(Context const& context, Steps const& steps, auto const& step) {
  bool packets = false;
  steps.forEachSource(step, [&](int, auto const& operand) { packets = operand.packets; });
  if (packets) awaitSources<P>(context, steps, step);
  if (arch::threadIndex() >= arch::warpSize) return;
  if (arch::threadIndex() == 0) askPort<P>(context, steps, step);
  thisWarp().sync();
}

}  // namespace dsl_impl
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
