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
#include "mscclpp/dsl/detail/run/step_values.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace dsl_impl {

template <Number T, class Op, PacketFormat P, class Shape>
class PacketMoves : public StepValues<T, Op, Shape> {
 public:
  using StepValues<T, Op, Shape>::StepValues;

  // Steps of one source and as many chunks each, see StepGroup, slot by slot: all read before the first is written.
  template <class Group>
  MSCCLPP_DEVICE void moveTogether(Group const& group) const {
    constexpr unsigned count = Group::count;
    Piece pieces[count];
    std::uint32_t slotsOf[count];
    auto const lookUp = [&](int chunk) {
      std::uint32_t most = 0;
      group.forEachStep([&](auto number, auto const& steps, layout::PlanStep const& step) {
        constexpr int k = decltype(number)::value;
        pieces[k] = this->pieceOf(steps, step, chunk);
        slotsOf[k] = packetSlots(steps, step, pieces[k]);
        most = maximum(most, slotsOf[k]);
      });
      return most;
    };
    auto const moveSlots = [&](int chunk, std::uint32_t slot) {
      Payload<P::words> values[count] = {};
      std::byte const* slots[count] = {};
      bool awaited[count] = {};
      group.forEachStep([&](auto number, auto const& steps, layout::PlanStep const& step) {
        constexpr int k = decltype(number)::value;
        steps.forEachSource(step, [&](int, layout::PlanOperand const& operand) {
          if (operand.packets) {
            slots[k] = packetPlace(operand, chunk, pieces[k], slot);
            awaited[k] = slot < slotsOf[k];
          } else if (slot < slotsOf[k]) {
            values[k] = loadPacket(operand, chunk, pieces[k], slot);
          }
        });
      });
      auto const awaitedFlag = flag();
      awaitPackets<P>(plan_.watch, slots, awaited, awaitedFlag, values, [&](unsigned) -> WaitFor {
        return {layout::WaitKind::packet, -1, slot, awaitedFlag};
      });
      group.forEachStep([&](auto number, auto const& steps, layout::PlanStep const& step) {
        constexpr int k = decltype(number)::value;
        if (slot < slotsOf[k]) storePacket(steps, step, chunk, pieces[k], slot, values[k]);
      });
    };
    auto const first = group.firstStep();
    forEachPacket(first, startOf(first, packetSlots(this->longestPiece(first))), lookUp, moveSlots);
  }

 protected:
  using PlanPlaces<T, Shape>::plan_;
  using Base = StepValues<T, Op, Shape>;
  using Base::startOf;
  using typename Base::Start;
  template <unsigned Words>
  using Totals = typename Base::template Totals<Words>;

  static constexpr std::uint32_t unitSlots = 16 / (P::words * 4);

  MSCCLPP_DEVICE static std::uint32_t packetSlots(std::uint32_t units) { return units == 0 ? 1 : units * unitSlots; }

  template <class Steps>
  MSCCLPP_DEVICE void movePackets(Steps const& steps, layout::PlanStep const& step) const {
    Piece piece{};
    forEachPacket(
        step, startOf(step, packetSlots(this->longestPiece(step))),
        [&](int chunk) {
          piece = this->pieceOf(steps, step, chunk);
          return packetSlots(steps, step, piece);
        },
        [&](int chunk, std::uint32_t slot) { movePacket(steps, step, chunk, piece, slot); });
  }

 private:
  MSCCLPP_DEVICE std::uint32_t flag() const { return packetFlag(this->epoch()); }

  // f(chunk, slot) for this thread's slots: the step's chunks lie end to end, each filled up to whole warps of the
  // longest, and the block's threads take slots in turn from `start` on. slotsOf(chunk) tells how many there are.
  template <class SlotsOf, class F>
  MSCCLPP_DEVICE void forEachPacket(layout::PlanStep const& step, Start const& start, SlotsOf&& slotsOf, F&& f) const {
    auto const threads = arch::blockThreads();
    auto const filled = start.filled;
    auto const thread = arch::threadIndex();
    std::uint32_t slot = thread < start.thread ? thread + threads - start.thread : thread - start.thread;
    if (step.chunks == 1) {
      for (auto const slots = slotsOf(0); slot < slots; slot += threads) f(0, slot);
      return;
    }
    if (slot >= std::uint64_t{filled} * static_cast<unsigned>(step.chunks)) return;
    for (int chunk = 0;;) {
      for (; slot >= filled; slot -= filled) ++chunk;
      if (chunk >= step.chunks) return;
      auto const slots = slotsOf(chunk);
      for (; slot < slots; slot += threads) f(chunk, slot);
      while (slot < filled) slot += threads;
    }
  }
  // Packets tell that their sender has come so far, so a slot is sent even where there is no data.
  template <class Steps>
  MSCCLPP_DEVICE std::uint32_t packetSlots(Steps const& steps, layout::PlanStep const& step, Piece const& piece) const {
    if (piece.empty) return 0;
    bool sends = false;
    steps.forEachTarget(step, [&](int, layout::PlanOperand const& operand) { sends = sends || operand.packets; });
    if (sends && this->shape().relaysPackets != 0) return packetSlots(piece.units + piece.pad);
    return packetSlots(piece.units) - piece.slack / (P::words * 4);
  }

  // Some sources or targets are packets.
  template <class Steps>
  MSCCLPP_DEVICE void movePacket(Steps const& steps, layout::PlanStep const& step, int chunk, Piece const& piece,
                                 std::uint32_t slot) const {
    constexpr unsigned words = P::words;
    constexpr int together = Steps::sourcesTogether;
    Payload<words> value{};
    Totals<words> total{};
    MSCCLPP_UNROLL
    for (int first = 0; first < step.sources; first += together) {
      Payload<words> values[together] = {};
      std::byte const* slots[together] = {};
      bool awaited[together] = {};
      steps.forSources(step, first, together, [&](int i, layout::PlanOperand const& operand) {
        if (operand.packets) {
          slots[i] = packetPlace(operand, chunk, piece, slot);
          awaited[i] = true;
        } else {
          values[i] = loadPacket(operand, chunk, piece, slot);
        }
      });
      auto const awaitedFlag = flag();
      awaitPackets<P>(plan_.watch, slots, awaited, awaitedFlag, values, [&](unsigned) -> WaitFor {
        return {layout::WaitKind::packet, -1, slot, awaitedFlag};
      });
      MSCCLPP_UNROLL
      for (int i = 0; i < together; ++i) {
        if (first + i >= step.sources) continue;
        if (step.sources == 1) {
          value = values[i];
        } else {
          this->template add<words>(step, first + i, values[i], total);
        }
      }
    }
    if (step.sources != 1) value = this->template conclude<words>(step, total);
    storePacket(steps, step, chunk, piece, slot, value);
  }

  // Into the step's targets, packets or plain. A chunk that travels as packets has less than 4 GiB, see PlanContext.
  template <class Steps>
  MSCCLPP_DEVICE void storePacket(Steps const& steps, layout::PlanStep const& step, int chunk, Piece const& piece,
                                  std::uint32_t slot, Payload<P::words> const& value) const {
    auto const packetsFlag = flag();
    // First what others wait for.
    steps.forEachTarget(step, [&](int, layout::PlanOperand const& operand) {
      if (operand.packets) P::store(packetPlace(operand, chunk, piece, slot), value, packetsFlag, true);
    });
    steps.forEachTarget(step, [&](int, layout::PlanOperand const& operand) {
      if (operand.packets) return;
      auto const view = this->template viewOf<T>(operand, chunk, piece);
      PayloadWriter<T, P::words, P::granule> const writer(view);
      writer.write(writer.window(0), slot * P::words * 4, value);
    });
  }
  // From a plain source.
  MSCCLPP_DEVICE Payload<P::words> loadPacket(layout::PlanOperand const& operand, int chunk, Piece const& piece,
                                              std::uint32_t slot) const {
    auto const view = this->template viewOf<T const>(operand, chunk, piece);
    PayloadReader<T, P::words, P::granule> const reader(view);
    return reader.read(reader.window(0), slot * P::words * 4);
  }
  MSCCLPP_DEVICE std::byte* packetPlace(layout::PlanOperand const& operand, int chunk, Piece const& piece,
                                        std::uint32_t slot) const {
    return this->place(operand, chunk, piece.first).address + std::uint64_t{slot} * P::slotBytes;
  }
};

}  // namespace dsl_impl
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
