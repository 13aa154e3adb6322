// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The moving steps of a lowered program that send, take or hand on packets, as all threads of a block carry them out.
//
// Slot by slot: sources into registers, combined, into all targets. Chunks of one step or of neighbouring ones are done
// by warps of their own, as far as the block has any. A thread looks for the packets of all its sources in one turn, so
// that the last to arrive costs one look, not one look per source.
#pragma once

#include <cstdint>

#include "mscclpp/device/packet.hpp"
#include "mscclpp/dsl/detail/run/step_reduction.hpp"
#include "mscclpp/dsl/detail/run/step_threads.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace dsl_impl {

// Slots of packets that so many units of 16 bytes travel in; where there is no data, one is sent all the same.
template <PacketFormat P>
MSCCLPP_DEVICE std::uint32_t packetSlots(std::uint32_t units) {
  return units == 0 ? 1 : units * (16 / (P::words * 4));
}

template <PacketFormat P, class Context>
MSCCLPP_DEVICE std::byte* packetPlace(Context const& context, auto const& operand, int chunk, Piece const& piece,
                                      std::uint32_t slot) {
  return context.places.place(operand, chunk, piece.first).address + std::uint64_t{slot} * P::slotBytes;
}

// Before the first packet is waited for; what is sent without waiting goes astray.
template <class Context, class Steps>
MSCCLPP_DEVICE void requireUsable(Context const& context, Steps const& steps, auto const& step) {
  bool awaits = false;
  steps.forEachSource(step, [&](int, auto const& operand) { awaits = awaits || operand.packets; });
  if (awaits) context.places.requireUsable();
}

// Packets tell that their sender has come so far, so a slot is sent even where there is no data.
template <PacketFormat P, class Context, class Steps>
MSCCLPP_DEVICE std::uint32_t slotsOf(Context const& context, Steps const& steps, auto const& step, Piece const& piece) {
  if (piece.empty) return 0;
  bool sends = false;
  steps.forEachTarget(step, [&](int, auto const& operand) { sends = sends || operand.packets; });
  if (sends && context.places.shape().relaysPackets != 0) return packetSlots<P>(piece.units + piece.pad);
  return packetSlots<P>(piece.units) - piece.slack / (P::words * 4);
}

// From a plain source.
template <PacketFormat P, class Context>
MSCCLPP_DEVICE Payload<P::words> loadPacket(Context const& context, auto const& operand, int chunk, Piece const& piece,
                                            std::uint32_t slot) {
  using T = typename Context::Element;
  auto const view = context.places.template viewOf<T const>(operand, chunk, piece);
  PayloadReader<T, P::words, P::granule> const reader(view);
  return reader.read(reader.window(0), slot * P::words * 4);
}

// Into the step's targets, packets or plain. A chunk that travels as packets has less than 4 GiB, see PlanContext.
template <PacketFormat P, class Context, class Steps>
MSCCLPP_DEVICE void storePacket(Context const& context, Steps const& steps, auto const& step, int chunk,
                                Piece const& piece, std::uint32_t slot, Payload<P::words> const& value) {
  auto const packetsFlag = context.places.flag();
  // First what others wait for.
  steps.forEachTarget(step, [&](int, auto const& operand) {
    if (operand.packets) P::store(packetPlace<P>(context, operand, chunk, piece, slot), value, packetsFlag, true);
  });
  steps.forEachTarget(step, [&](int, auto const& operand) {
    if (operand.packets) return;
    using T = typename Context::Element;
    auto const view = context.places.template viewOf<T>(operand, chunk, piece);
    PayloadWriter<T, P::words, P::granule> const writer(view);
    writer.write(writer.window(0), slot * P::words * 4, value);
  });
}

// Some sources or targets are packets.
template <PacketFormat P, class Context, class Steps>
MSCCLPP_DEVICE void movePacket(Context const& context, Steps const& steps, auto const& step, int chunk,
                               Piece const& piece, std::uint32_t slot) {
  constexpr unsigned words = P::words;
  constexpr int together = Steps::sourcesTogether;
  Payload<words> value{};
  typename Context::template Totals<words> total{};
  MSCCLPP_UNROLL
  for (int first = 0; first < step.sources; first += together) {
    Payload<words> values[together] = {};
    std::byte const* slots[together] = {};
    bool awaited[together] = {};
    steps.forSources(step, first, together, [&](int i, auto const& operand) {
      awaited[i] = operand.packets;
      if (operand.packets) {
        slots[i] = packetPlace<P>(context, operand, chunk, piece, slot);
      } else {
        values[i] = loadPacket<P>(context, operand, chunk, piece, slot);
      }
    });
    auto const awaitedFlag = context.places.flag();
    awaitPackets<P>(context.places.plan().watch, slots, awaited, awaitedFlag, values, [&](unsigned) -> WaitFor {
      return {layout::WaitKind::programPacket, -1, slot, awaitedFlag};
    });
    MSCCLPP_UNROLL
    for (int i = 0; i < together; ++i) {
      if (first + i >= step.sources) continue;
      if (step.sources == 1) {
        value = values[i];
      } else {
        context.reduction.template add<words>(step, first + i, values[i], total);
      }
    }
  }
  if (step.sources != 1) value = context.reduction.template conclude<words>(step, context.places.shape(), total);
  storePacket<P>(context, steps, step, chunk, piece, slot, value);
}

template <PacketFormat P, class Context, class Steps>
MSCCLPP_DEVICE void movePackets(Context const& context, Steps const& steps, auto const& step) {
  requireUsable(context, steps, step);
  Piece piece{};
  forEachSlot(
      step, startOf(step, packetSlots<P>(context.places.longestPiece(step))),
      [&](int chunk) {
        piece = context.places.pieceOf(steps, step, chunk);
        return slotsOf<P>(context, steps, step, piece);
      },
      [&](int chunk, std::uint32_t slot) { movePacket<P>(context, steps, step, chunk, piece, slot); });
}

// See PlanRunner::moveTogether.
template <PacketFormat P, class Context, class Group>
MSCCLPP_DEVICE void movePacketsTogether(Context const& context, Group const& group) {
  constexpr unsigned count = Group::count;
  group.forEachStep([&](auto, auto const& steps, auto const& step) { requireUsable(context, steps, step); });
  Piece pieces[count];
  std::uint32_t slotCounts[count];
  auto const lookUp = [&](int chunk) {
    std::uint32_t most = 0;
    group.forEachStep([&](auto number, auto const& steps, auto const& step) {
      constexpr int k = decltype(number)::value;
      pieces[k] = context.places.pieceOf(steps, step, chunk);
      slotCounts[k] = slotsOf<P>(context, steps, step, pieces[k]);
      most = maximum(most, slotCounts[k]);
    });
    return most;
  };
  auto const moveSlots = [&](int chunk, std::uint32_t slot) {
    Payload<P::words> values[count] = {};
    std::byte const* slots[count] = {};
    bool awaited[count] = {};
    group.forEachStep([&](auto number, auto const& steps, auto const& step) {
      constexpr int k = decltype(number)::value;
      steps.forEachSource(step, [&](int, auto const& operand) {
        if (operand.packets) {
          slots[k] = packetPlace<P>(context, operand, chunk, pieces[k], slot);
          awaited[k] = slot < slotCounts[k];
        } else if (slot < slotCounts[k]) {
          values[k] = loadPacket<P>(context, operand, chunk, pieces[k], slot);
        }
      });
    });
    auto const awaitedFlag = context.places.flag();
    awaitPackets<P>(context.places.plan().watch, slots, awaited, awaitedFlag, values, [&](unsigned) -> WaitFor {
      return {layout::WaitKind::programPacket, -1, slot, awaitedFlag};
    });
    group.forEachStep([&](auto number, auto const& steps, auto const& step) {
      constexpr int k = decltype(number)::value;
      if (slot < slotCounts[k]) storePacket<P>(context, steps, step, chunk, pieces[k], slot, values[k]);
    });
  };
  typename Group::FirstStep const first;
  forEachSlot(first, startOf(first, packetSlots<P>(context.places.longestPiece(first))), lookUp, moveSlots);
}

}  // namespace dsl_impl
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
