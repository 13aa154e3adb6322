// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The moving steps of a lowered program, as all threads of a block carry them out: those of packets, see
// packet_moves.hpp, of plain memory, and of ports, which one thread asks the proxy for. A switch's move goes through
// the switch where buffers have multicast addresses, and by plain accesses of everybody's memory where they have none,
// or the switch lacks the type or the operation.
//
// Small chunks, of one step or of neighbouring ones, are done by warps of their own, so that they run side by side.
// What a port moves is asked for by the block's first warp, which does the steps that order as well: so a signal of the
// same channel follows the data.
#pragma once

#include <cstdint>
#include <type_traits>

#include "mscclpp/device/copy.hpp"
#include "mscclpp/device/group.hpp"
#include "mscclpp/device/port_channel.hpp"
#include "mscclpp/device/view.hpp"
#include "mscclpp/dsl/detail/run/packet_moves.hpp"
#include "mscclpp/dsl/detail/run/switch_slots.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace dsl_impl {

// What a moving step comes to. Known when a program is compiled in, so that its code holds no more.
enum class MoveShape : std::uint8_t { copy, plain, packets, port };

template <Number T, class Op, PacketFormat P, class Shape>
class PlanMoves : public PacketMoves<T, Op, P, Shape> {
 public:
  using PacketMoves<T, Op, P, Shape>::PacketMoves;

  template <MoveShape M, class Steps>
  MSCCLPP_DEVICE void move(Steps const& steps, layout::PlanStep const& step) {
    if constexpr (M == MoveShape::port) {
      if (arch::threadIndex() >= arch::warpSize) return;
      if (arch::threadIndex() == 0) askPort(steps, step);
      thisWarp().sync();
    } else if constexpr (M == MoveShape::packets) {
      this->movePackets(steps, step);
    } else {
      auto first = this->startOf(step, this->longestPiece(step)).thread;
      for (int chunk = 0; chunk < step.chunks; ++chunk) {
        auto const piece = this->pieceOf(steps, step, chunk);
        if (piece.units == 0) continue;
        auto const group = this->threadsFrom(first, piece.units);
        if constexpr (M == MoveShape::copy) {
          std::byte* ends[2];
          steps.forEachOperand(step, [&](int i, layout::PlanOperand const& operand) {
            ends[i] = this->place(operand, chunk, piece.first).address;
          });
          copy(group, ends[1], ends[0], piece.bytes());
        } else {
          auto rest = piece;
          if constexpr (SwitchSlots<T>::moves) {
            if (step.everybody != 0) rest = moveBySwitch(steps, step, group, chunk, piece);
          }
          combine(steps, step, group, chunk, rest);
        }
      }
    }
  }

 protected:
  using PlanPlaces<T, Shape>::plan_;

 private:
  template <unsigned Words>
  using Totals = typename StepValues<T, Op, Shape>::template Totals<Words>;

  // One source and one target, both plain or both packets, which are moved as they are.
  template <class Steps>
  MSCCLPP_DEVICE void askPort(Steps const& steps, layout::PlanStep const& step) const {
    int channel = 0;
    steps.forEachObject(step.firstObject, 1,
                        [&](int, layout::RankNumber const& object) { channel = this->numberOf(object); });
    BasePortChannelDeviceHandle const port(plan_.ports[channel]);
    for (int chunk = 0; chunk < step.chunks; ++chunk) {
      auto const piece = this->pieceOf(steps, step, chunk);
      PortPlace ends[2];
      bool packets = false;
      steps.forEachOperand(step, [&](int i, layout::PlanOperand const& operand) {
        ends[i] = this->portPlace(operand, chunk, piece.first);
        packets = operand.packets;
      });
      auto const bytes = packets ? std::uint64_t{this->packetSlots(piece.units)} * P::slotBytes : piece.bytes();
      if (bytes != 0) port.put(ends[1].memory, ends[1].offset, ends[0].memory, ends[0].offset, bytes);
    }
  }

  // Returns what is left for plain accesses: what is no whole slot, or all of it.
  template <class Steps>
  MSCCLPP_DEVICE Piece moveBySwitch(Steps const& steps, layout::PlanStep const& step, ThreadRange const& group,
                                    int chunk, Piece const& piece) const {
    using Switch = SwitchSlots<T>;
    auto const named = static_cast<dsl::ReduceKind>(step.reduce);
    auto const kind = named == dsl::ReduceKind::asCalled ? kindOf(this->op()) : named;
    std::byte *from = nullptr, *to = nullptr;  // multicast addresses
    std::byte* own = nullptr;                  // the source of this rank
    bool overlaps = false;                     // one side plain, the other not, in the same bytes
    steps.forEachOperand(step, [&](int i, layout::PlanOperand const& operand) {
      bool const source = i < step.sources;
      if (i == 0 && (step.everybody & 1) != 0) from = this->multicastPlace(operand, chunk, piece.first);
      if (i == step.sources && (step.everybody & 2) != 0) to = this->multicastPlace(operand, chunk, piece.first);
      if (this->numberOf(operand.rank) != plan_.rank) return;
      auto* const place = this->place(operand, chunk, piece.first).address;
      if (source) own = place;
      overlaps = overlaps || (!source && place == own);
    });
    if (!Switch::reduces(kind)) from = nullptr;
    bool const through = step.sources == 1 ? to != nullptr : from != nullptr;
    overlaps = overlaps && (from == nullptr) != (to == nullptr);
    std::uint32_t const slots = !through ? 0 : piece.slack == 0 ? piece.units : piece.units - 1;
    constexpr unsigned batch = 4;
    if (through) multimemFence();  // what others wrote by plain addresses
    for (std::uint64_t first = group.rank(); first < slots; first += batch * std::uint64_t{group.size()}) {
      Payload<4> values[batch] = {};
      MSCCLPP_UNROLL
      for (unsigned i = 0; i < batch; ++i) {
        auto const at = (first + i * std::uint64_t{group.size()}) * 16;
        if (at >= slots * 16) continue;
        if (from != nullptr) {
          values[i] = Switch::load(from + at, kind);
        } else {
          steps.forEachSource(step, [&](int s, layout::PlanOperand const& operand) {
            if (s != 0) return;  // there is no other: several are read by the switch
            values[i] = readSlot(this->place(operand, chunk, piece.first).address + at);
          });
        }
      }
      if (overlaps) multimemFence();
      MSCCLPP_UNROLL
      for (unsigned i = 0; i < batch; ++i) {
        auto const at = (first + i * std::uint64_t{group.size()}) * 16;
        if (at >= slots * 16) continue;
        if (to != nullptr) {
          Switch::store(to + at, values[i]);
        } else {
          steps.forEachTarget(step, [&](int, layout::PlanOperand const& operand) {
            writeSlot(this->place(operand, chunk, piece.first).address + at, values[i]);
          });
        }
      }
    }
    if (through) multimemFence();  // before they are told
    return {piece.first + slots, piece.units - slots, piece.slack, 0, false};
  }
  MSCCLPP_DEVICE static Payload<4> readSlot(std::byte const* slot) {
    PayloadReader<T, 4, 16> const reader({reinterpret_cast<T const*>(slot), 16 / sizeof(T)});
    return reader.read(reader.window(0), 0);
  }
  MSCCLPP_DEVICE static void writeSlot(std::byte* slot, Payload<4> const& value) {
    PayloadWriter<T, 4, 16> const writer({reinterpret_cast<T*>(slot), 16 / sizeof(T)});
    writer.write(writer.window(0), 0, value);
  }

  // Plain sources and targets. `batch` slots of a thread are under way together.
  template <class Steps>
  MSCCLPP_DEVICE void combine(Steps const& steps, layout::PlanStep const& step, ThreadRange const& group, int chunk,
                              Piece const& piece) const {
    constexpr unsigned batch = 4, words = 4, slotBytes = 16;
    auto const slots = piece.units;
    for (std::uint64_t first = group.rank(); first < slots; first += batch * std::uint64_t{group.size()}) {
      Payload<words> values[batch] = {};
      Totals<words> totals[batch];
      steps.forEachSource(step, [&](int s, layout::PlanOperand const& operand) {
        PayloadReader<T, words, slotBytes> const reader(this->template viewOf<T const>(operand, chunk, piece));
        MSCCLPP_UNROLL
        for (unsigned i = 0; i < batch; ++i) {
          auto const slot = first + i * std::uint64_t{group.size()};
          if (slot < slots) values[i] = reader.read(reader.window(slot * slotBytes), 0);
        }
        if (step.sources == 1) return;
        MSCCLPP_UNROLL
        for (unsigned i = 0; i < batch; ++i) this->template add<words>(step, s, values[i], totals[i]);
      });
      if (step.sources != 1) {
        MSCCLPP_UNROLL
        for (unsigned i = 0; i < batch; ++i) values[i] = this->template conclude<words>(step, totals[i]);
      }
      steps.forEachTarget(step, [&](int, layout::PlanOperand const& operand) {
        PayloadWriter<T, words, slotBytes> const writer(this->template viewOf<T>(operand, chunk, piece));
        MSCCLPP_UNROLL
        for (unsigned i = 0; i < batch; ++i) {
          auto const slot = first + i * std::uint64_t{group.size()};
          if (slot < slots) writer.write(writer.window(slot * slotBytes), 0, values[i]);
        }
      });
    }
  }
};

}  // namespace dsl_impl
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
