// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The moving steps of a lowered program, as all threads of a block carry them out, and those of ports, which one thread
// asks the proxy for. A switch's move goes through the switch where buffers have multicast addresses, and by plain
// accesses of everybody's memory where they have none, or the switch lacks the type or the operation.
//
// Data go slot by slot: sources into registers, combined, into all targets. Small chunks, of one step or of
// neighbouring ones, are done by warps of their own, so that they run side by side. A thread looks for the packets of
// all its sources in one turn, so that the last to arrive costs one look, not one look per source. What a port moves is
// asked for by the block's first warp, which does the steps that order as well: so a signal of the same channel follows
// the data.
#pragma once

#include <cstdint>
#include <type_traits>

#include "mscclpp/device/copy.hpp"
#include "mscclpp/device/group.hpp"
#include "mscclpp/device/number.hpp"
#include "mscclpp/device/packet.hpp"
#include "mscclpp/device/port_channel.hpp"
#include "mscclpp/device/reduce_op.hpp"
#include "mscclpp/device/view.hpp"
#include "mscclpp/dsl/places.hpp"
#include "mscclpp/dsl/switch_slots.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace dsl_impl {

// What a moving step comes to. Known when a program is compiled in, so that its code holds no more.
enum class MoveShape : std::uint8_t { copy, plain, packets, port };

template <Number T, class Op, PacketFormat P, class Shape>
class PlanMoves : public PlanPlaces<T, Shape> {
 public:
  MSCCLPP_DEVICE PlanMoves(layout::PlanHandle const& plan, layout::WindowHandle const& in,
                           layout::WindowHandle const& out, PlanCall<T> const& call, Op const& op, std::uint64_t done)
      : PlanPlaces<T, Shape>(plan, in, out, call, done), op_(op) {}

  template <MoveShape M, class Steps>
  MSCCLPP_DEVICE void move(Steps const& steps, layout::PlanStep const& step) {
    if constexpr (M == MoveShape::port) {
      if (arch::threadIndex() >= arch::warpSize) return;
      if (arch::threadIndex() == 0) askPort(steps, step);
      thisWarp().sync();
    } else if constexpr (M == MoveShape::packets) {
      movePackets(steps, step);
    } else {
      auto first = startOf(step, this->longestPiece(step)).thread;
      for (int chunk = 0; chunk < step.chunks; ++chunk) {
        auto const piece = this->pieceOf(steps, step, chunk);
        if (piece.units == 0) continue;
        auto const group = threadsFrom(first, piece.units);
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

 private:
  template <unsigned Words>
  using Totals = Vector<DefaultAccumulator<T>, ElementsOf<T, Words>::size>;

  MSCCLPP_DEVICE std::uint32_t flag() const { return packetFlag(this->epoch()); }

  static constexpr std::uint32_t unitSlots = 16 / (P::words * 4);

  MSCCLPP_DEVICE static std::uint32_t packetSlots(std::uint32_t units) { return units == 0 ? 1 : units * unitSlots; }

  // The thread that takes the first slot of a step.
  struct Start {
    unsigned thread;
    std::uint32_t filled;  // slots of a chunk's place: the longest's, in whole warps
  };
  // Behind the chunks of the steps ahead, as if they had as many slots as this step's longest, where the block has
  // threads for all of them; else some warps on, so that steps begin at different ones.
  MSCCLPP_DEVICE static Start startOf(layout::PlanStep const& step, std::uint32_t slots) {
    auto const threads = arch::blockThreads();
    auto const filled = roundUp(slots, arch::warpSize);
    if (step.ahead == 0) return {0, filled};
    auto const chunks = step.chunksAhead + static_cast<unsigned>(step.chunks);
    if (filled <= threads && chunks * filled <= threads) return {step.chunksAhead * filled, filled};
    // Not by a remainder, which costs as much as all the rest of this.
    unsigned start = step.ahead * arch::warpSize;
    while (start >= threads) start -= threads;
    return {start, filled};
  }

  // All threads of the block, counted from thread `first`, which then is the next piece's, if this one leaves threads
  // without work.
  MSCCLPP_DEVICE static ThreadRange threadsFrom(unsigned& first, std::uint32_t slots) {
    auto const threads = arch::blockThreads();
    auto const thread = arch::threadIndex() + threads - first;
    auto const group = threadRange(thread < threads ? thread : thread - threads, threads);
    if (slots < threads) {
      first += roundUp(slots, arch::warpSize);
      if (first >= threads) first -= threads;
    }
    return group;
  }

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
      auto const bytes = packets ? std::uint64_t{packetSlots(piece.units)} * P::slotBytes : piece.bytes();
      if (bytes != 0) port.put(ends[1].memory, ends[1].offset, ends[0].memory, ends[0].offset, bytes);
    }
  }

  // Returns what is left for plain accesses: what is no whole slot, or all of it.
  template <class Steps>
  MSCCLPP_DEVICE Piece moveBySwitch(Steps const& steps, layout::PlanStep const& step, ThreadRange const& group,
                                    int chunk, Piece const& piece) const {
    using Switch = SwitchSlots<T>;
    auto const named = static_cast<dsl::ReduceKind>(step.reduce);
    auto const kind = named == dsl::ReduceKind::asCalled ? kindOf(op_) : named;
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
        PayloadReader<T, words, slotBytes> const reader(viewOf<T const>(operand, chunk, piece));
        MSCCLPP_UNROLL
        for (unsigned i = 0; i < batch; ++i) {
          auto const slot = first + i * std::uint64_t{group.size()};
          if (slot < slots) values[i] = reader.read(reader.window(slot * slotBytes), 0);
        }
        if (step.sources == 1) return;
        MSCCLPP_UNROLL
        for (unsigned i = 0; i < batch; ++i) add<words>(step, s, values[i], totals[i]);
      });
      if (step.sources != 1) {
        MSCCLPP_UNROLL
        for (unsigned i = 0; i < batch; ++i) values[i] = conclude<words>(step, totals[i]);
      }
      steps.forEachTarget(step, [&](int, layout::PlanOperand const& operand) {
        PayloadWriter<T, words, slotBytes> const writer(viewOf<T>(operand, chunk, piece));
        MSCCLPP_UNROLL
        for (unsigned i = 0; i < batch; ++i) {
          auto const slot = first + i * std::uint64_t{group.size()};
          if (slot < slots) writer.write(writer.window(slot * slotBytes), 0, values[i]);
        }
      });
    }
  }

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
          add<words>(step, first + i, values[i], total);
        }
      }
    }
    if (step.sources != 1) value = conclude<words>(step, total);
    storePacket(steps, step, chunk, piece, slot, value);
  }

  // Into the step's targets, packets or plain.
  template <class Steps>
  MSCCLPP_DEVICE void storePacket(Steps const& steps, layout::PlanStep const& step, int chunk, Piece const& piece,
                                  std::uint32_t slot, Payload<P::words> const& value) const {
    auto const packetsFlag = flag();
    steps.forEachTarget(step, [&](int, layout::PlanOperand const& operand) {
      if (operand.packets) {
        P::store(packetPlace(operand, chunk, piece, slot), value, packetsFlag, true);
      } else {
        auto const view = viewOf<T>(operand, chunk, piece);
        PayloadWriter<T, P::words, P::granule> const writer(view);
        writer.write(payloadWindow(view), slot * P::words * 4, value);
      }
    });
  }
  // From a plain source.
  MSCCLPP_DEVICE Payload<P::words> loadPacket(layout::PlanOperand const& operand, int chunk, Piece const& piece,
                                              std::uint32_t slot) const {
    auto const view = viewOf<T const>(operand, chunk, piece);
    PayloadReader<T, P::words, P::granule> const reader(view);
    return reader.read(payloadWindow(view), slot * P::words * 4);
  }
  MSCCLPP_DEVICE std::byte* packetPlace(layout::PlanOperand const& operand, int chunk, Piece const& piece,
                                        std::uint32_t slot) const {
    return this->place(operand, chunk, piece.first).address + std::uint64_t{slot} * P::slotBytes;
  }

  template <class U>
  MSCCLPP_DEVICE View<U> viewOf(layout::PlanOperand const& operand, int chunk, Piece const& piece) const {
    return {reinterpret_cast<U*>(this->place(operand, chunk, piece.first).address), piece.bytes() / sizeof(T)};
  }
  // A chunk that travels as packets has less than 4 GiB, see PlanContext.
  template <class U>
  MSCCLPP_DEVICE static Window<U> payloadWindow(View<U> const& view) {
    return {view.data, static_cast<std::uint32_t>(view.bytes())};
  }

  // The contribution of source `s`, in the order of sources.
  template <unsigned Words>
  MSCCLPP_DEVICE void add(layout::PlanStep const& step, int s, Payload<Words> const& value,
                          Totals<Words>& total) const {
    auto const contribution = convert<DefaultAccumulator<T>>(unpack<T>(value));
    total = s == 0 ? contribution : reduced(step, total, contribution);
  }
  template <unsigned Words>
  MSCCLPP_DEVICE Payload<Words> conclude(layout::PlanStep const& step, Totals<Words> total) const {
    if (step.concludes && static_cast<dsl::ReduceKind>(step.reduce) == dsl::ReduceKind::asCalled) {
      int const ranks = this->shape().ranks;
      total = map(total, [this, ranks](auto one) { return op_.finish(one, ranks); });
    }
    return pack(convert<T>(total));
  }

  template <class Values>
  MSCCLPP_DEVICE Values reduced(layout::PlanStep const& step, Values const& a, Values const& b) const {
    switch (static_cast<dsl::ReduceKind>(step.reduce)) {
      case dsl::ReduceKind::sum:
        return map(a, b, Sum{});
      case dsl::ReduceKind::prod:
        return map(a, b, Prod{});
      case dsl::ReduceKind::min:
        return map(a, b, Min{});
      case dsl::ReduceKind::max:
        return map(a, b, Max{});
      default:
        return map(a, b, op_);
    }
  }

  Op op_;
};

}  // namespace dsl_impl
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
