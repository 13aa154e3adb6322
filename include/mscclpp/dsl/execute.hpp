// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Carries out the steps of a lowered program, one block's, on either machine. Steps that are known when the kernel is
// compiled fold into straight-line code; the same function interprets the steps of a loaded plan.
//
// A moving step is done by all threads of the block, slot by slot; neighbouring steps begin at different warps, so that
// small ones run side by side. Signals, waits, acquires and releases are done by lanes of the first warp, in order.
// Relaxed signals are sent as full ones: between devices nothing less orders the reads before them.
#pragma once

#include <cstdint>
#include <type_traits>

#include "mscclpp/device/copy.hpp"
#include "mscclpp/device/device_syncer.hpp"
#include "mscclpp/device/group.hpp"
#include "mscclpp/device/number.hpp"
#include "mscclpp/device/packet.hpp"
#include "mscclpp/device/reduce_op.hpp"
#include "mscclpp/device/semaphore.hpp"
#include "mscclpp/device/view.hpp"
#include "mscclpp/dsl/lower.hpp"
#include "mscclpp/layout/plan_handle.hpp"
#include "mscclpp/layout/window_handle.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace dsl_impl {

// What a call of the kernel works on. `count`: elements of the message, which is one rank's part where the collective's
// buffers hold a part of each rank.
template <class T>
struct PlanCall {
  T const* in;
  T* out;
  std::uint64_t count;
};

// What a moving step comes to. Known when a program is compiled in, so that its code holds no more.
enum class MoveShape : std::uint8_t { copy, plain, packets };

// Where an operand's data lie in this step.
struct Place {
  std::byte* address;
  bool packets;
};

template <Number T, class Op, PacketFormat P>
class PlanRunner {
 public:
  MSCCLPP_DEVICE PlanRunner(layout::PlanHandle const& plan, layout::WindowHandle const& in,
                            layout::WindowHandle const& out, PlanCall<T> const& call, Op const& op = {})
      : plan_(plan), inWindow_(in), outWindow_(out), call_(call), op_(op), bytes_(call.count * sizeof(T)) {
    waitForPreviousKernel();
    epoch_ = load<Order::relaxed, Scope::device>(plan.epochs + arch::blockIndex()) + 1;
    flag_ = packetFlag(epoch_);
    upper_ = dsl::longestChunk(bytes_, plan.shape.longestOf);
  }

  // Every thread has read the epoch; the next call finds the next one.
  MSCCLPP_DEVICE void finish() const {
    thisBlock().sync();
    if (arch::threadIndex() == 0) store<Order::relaxed, Scope::device>(plan_.epochs + arch::blockIndex(), epoch_);
  }

  // The first `count` steps. `Steps` answers step(i), forEachOperand(first, count, f) and forEachObject(...).
  template <class Steps>
  MSCCLPP_DEVICE void run(Steps const& steps, int count) {
    for (int s = 0; s < count; ++s) s = next(steps, s, steps.step(s));
  }

  // One step that is no loop, of a kind that is only known here.
  template <class Steps>
  MSCCLPP_DEVICE void step(Steps const& steps, layout::PlanStep const& step) {
    if (static_cast<dsl::StepKind>(step.kind) != dsl::StepKind::move) return order(steps, step);
    bool packets = false;
    steps.forEachOperand(step.firstOperand, step.sources + step.targets,
                         [&](int, layout::PlanOperand const& operand) { packets = packets || operand.packets; });
    if (packets) return move<MoveShape::packets>(steps, step);
    if (step.sources == 1 && step.targets == 1) return move<MoveShape::copy>(steps, step);
    move<MoveShape::plain>(steps, step);
  }

  // A step that moves no data.
  template <class Steps>
  MSCCLPP_DEVICE void order(Steps const& steps, layout::PlanStep const& step) {
    using Semaphore = MemoryDevice2DeviceSemaphoreDeviceHandle;
    switch (static_cast<dsl::StepKind>(step.kind)) {
      case dsl::StepKind::signal:
        forEachObject(steps, step, [&](int id) { Semaphore(plan_.channels[id]).signal(); });
        break;
      case dsl::StepKind::wait:
        forEachObject(steps, step, [&](int id) { Semaphore(plan_.channels[id]).wait(); });
        break;
      case dsl::StepKind::release:
        forEachObject(steps, step, [&](int id) { Semaphore(plan_.semaphores[id]).signal(); });
        break;
      case dsl::StepKind::acquire:
        forEachObject(steps, step, [&](int id) { Semaphore(plan_.semaphores[id]).wait(); });
        break;
      case dsl::StepKind::sync:
        thisBlock().sync();
        break;
      case dsl::StepKind::barrier:
        reinterpret_cast<DeviceSyncer*>(plan_.barriers)[barrierOf(steps, step)].meet(
            thisBlock(), static_cast<unsigned>(step.blocks), plan_.watch);
        break;
      default:
        break;
    }
  }

  MSCCLPP_DEVICE std::uint64_t turns(layout::PlanStep const& loop) const {
    return ceilDiv<std::uint64_t>(upper_, windowOf(loop));
  }
  MSCCLPP_DEVICE void enterTurn(layout::PlanStep const& loop, std::uint64_t turn) {
    window_ = windowOf(loop);
    windowStart_ = turn * window_;
  }
  MSCCLPP_DEVICE void leaveLoop() {
    window_ = ~std::uint64_t{0};
    windowStart_ = 0;
  }

 private:
  template <class Steps>
  MSCCLPP_DEVICE int next(Steps const& steps, int s, layout::PlanStep const& now) {
    if (static_cast<dsl::StepKind>(now.kind) != dsl::StepKind::loopBegin) {
      step(steps, now);
      return s;
    }
    auto const all = turns(now);
    for (std::uint64_t turn = 0; turn < all; ++turn) {
      enterTurn(now, turn);
      for (int inner = s + 1; inner < now.loopEnd; ++inner) step(steps, steps.step(inner));
    }
    leaveLoop();
    return now.loopEnd;
  }

  // Bytes that one turn takes of one chunk.
  MSCCLPP_DEVICE static std::uint64_t windowOf(layout::PlanStep const& loop) {
    auto const each = loop.unitBytes / static_cast<unsigned>(loop.loopChunks) / 16 * 16;
    return each == 0 ? 16 : each;
  }

  // f(id) by lanes of the first warp, one for each object.
  template <class Steps, class F>
  MSCCLPP_DEVICE void forEachObject(Steps const& steps, layout::PlanStep const& step, F&& f) const {
    auto const thread = arch::threadIndex();
    if (thread >= arch::warpSize) return;
    steps.forEachObject(step.firstObject, step.objects, [&](int i, layout::RankNumber const& object) {
      if (static_cast<unsigned>(i) % arch::warpSize == thread) f(object.at(plan_.rank, plan_.shape.ranks));
    });
    thisWarp().sync();
  }
  template <class Steps>
  MSCCLPP_DEVICE int barrierOf(Steps const& steps, layout::PlanStep const& step) const {
    int id = 0;
    steps.forEachObject(step.firstObject, 1, [&](int, layout::RankNumber const& object) { id = object.base; });
    return id;
  }

  // ---- where data lie -----------------------------------------------------------------------------------------------

  MSCCLPP_DEVICE static std::uint64_t chunkStart(std::uint64_t bytes, int perSlice, int chunk) {
    auto const units = ceilDiv<std::uint64_t>(bytes, 16);
    auto const each = units / static_cast<unsigned>(perSlice), longer = units % static_cast<unsigned>(perSlice);
    auto const c = static_cast<unsigned>(chunk);
    return minimum((each * c + minimum<std::uint64_t>(c, longer)) * 16, bytes);
  }
  MSCCLPP_DEVICE std::uint64_t chunkBytes(layout::PlanOperand const& operand, int chunk) const {
    auto const perSlice = perSliceOf(operand);
    auto const c = chunk % perSlice;
    return chunkStart(bytes_, perSlice, c + 1) - chunkStart(bytes_, perSlice, c);
  }
  MSCCLPP_DEVICE int perSliceOf(layout::PlanOperand const& operand) const {
    return isInput(operand) ? plan_.shape.inputPerSlice : plan_.shape.outputPerSlice;
  }
  MSCCLPP_DEVICE static bool isInput(layout::PlanOperand const& operand) {
    return static_cast<dsl::BufferKind>(operand.buffer) == dsl::BufferKind::input;
  }
  MSCCLPP_DEVICE static bool isScratch(layout::PlanOperand const& operand) {
    return static_cast<dsl::BufferKind>(operand.buffer) == dsl::BufferKind::scratch;
  }

  // `offset` bytes into the operand's chunk.
  MSCCLPP_DEVICE Place place(layout::PlanOperand const& operand, int which, std::uint64_t offset) const {
    int const rank = operand.rank.at(plan_.rank, plan_.shape.ranks);
    int const chunk = operand.index.at(plan_.rank, plan_.shape.ranks) + which;
    if (isScratch(operand)) {
      auto const half = plan_.shape.doubleScratch != 0 ? (epoch_ % 2) * plan_.scratchHalf : 0;
      return {plan_.scratch[rank] + half + static_cast<unsigned>(chunk) * plan_.scratchStride +
                  (operand.packets ? 2 * offset : offset),
              operand.packets};
    }
    auto const perSlice = perSliceOf(operand);
    auto const at =
        static_cast<unsigned>(chunk / perSlice) * bytes_ + chunkStart(bytes_, perSlice, chunk % perSlice) + offset;
    return {base(operand, rank) + at, false};
  }
  MSCCLPP_DEVICE std::byte* base(layout::PlanOperand const& operand, int rank) const {
    auto* const own = isInput(operand) ? reinterpret_cast<std::byte*>(const_cast<T*>(call_.in))
                                       : reinterpret_cast<std::byte*>(call_.out);
    if (rank == plan_.rank) return own;
    auto const& window = isInput(operand) ? inWindow_ : outWindow_;
    return window.bases[rank] + (own - window.bases[plan_.rank]);
  }

  // ---- moving data --------------------------------------------------------------------------------------------------

 public:
  template <MoveShape M, class Steps>
  MSCCLPP_DEVICE void move(Steps const& steps, layout::PlanStep const& step) {
    constexpr bool packets = M == MoveShape::packets;
    auto const threads = arch::blockThreads();
    auto const shift = (step.lead * arch::warpSize) % threads;
    auto const thread = arch::threadIndex() + shift;
    auto const group = threadRange(thread < threads ? thread : thread - threads, threads);
    for (int chunk = 0; chunk < step.chunks; ++chunk) {
      // All chunks of the message that meet here are equally long.
      std::uint64_t bytes = upper_;
      steps.forEachOperand(
          step.firstOperand, step.sources + step.targets, [&](int, layout::PlanOperand const& operand) {
            if (isScratch(operand)) return;
            bytes = minimum(bytes, chunkBytes(operand, operand.index.at(plan_.rank, plan_.shape.ranks) + chunk));
          });
      bytes = windowStart_ < bytes ? minimum(bytes - windowStart_, window_) : 0;
      auto start = windowStart_;
      bool empty = false;
      if (step.parts != 1) {
        auto const units = bytes == 0 ? 1 : ceilDiv<std::uint64_t>(bytes, 16);
        auto const parts = static_cast<unsigned>(step.parts), part = static_cast<unsigned>(step.part);
        auto const first = units * part / parts * 16, end = units * (part + 1) / parts * 16;
        empty = first == end;
        start += first;
        bytes = first < bytes ? minimum(bytes, end) - first : 0;
      }
      // Packets tell that their sender has come so far, so a slot is sent even where there is no data.
      if (empty || (bytes == 0 && !packets)) continue;
      if constexpr (packets) {
        combine<P, 1>(steps, step, group, chunk, start, bytes,
                      ceilDiv<std::uint64_t>(bytes == 0 ? 1 : bytes, P::words * 4));
      } else if constexpr (M == MoveShape::copy) {
        std::byte* ends[2];
        steps.forEachOperand(step.firstOperand, 2, [&](int i, layout::PlanOperand const& operand) {
          ends[i] = place(operand, chunk, start).address;
        });
        copy(group, ends[1], ends[0], bytes);
      } else {
        combine<PlainSlots, 4>(steps, step, group, chunk, start, bytes, ceilDiv<std::uint64_t>(bytes, 16));
      }
    }
  }

 private:
  struct PlainSlots {
    static constexpr unsigned words = 4;
    static constexpr unsigned granule = 16;
  };

  // Slot by slot: sources into registers, combined, into all targets. `Batch` slots of a thread are under way together.
  template <class Slots, unsigned Batch, class Steps>
  MSCCLPP_DEVICE void combine(Steps const& steps, layout::PlanStep const& step, ThreadRange const& group, int chunk,
                              std::uint64_t start, std::uint64_t bytes, std::uint64_t slots) const {
    using Accumulator = DefaultAccumulator<T>;
    constexpr unsigned slotBytes = Slots::words * 4;
    using Reader = PayloadReader<T, Slots::words, Slots::granule>;
    using Writer = PayloadWriter<T, Slots::words, Slots::granule>;
    auto const elements = bytes / sizeof(T);
    for (std::uint64_t first = group.rank(); first < slots; first += Batch * std::uint64_t{group.size()}) {
      Payload<Slots::words> values[Batch] = {};
      Vector<Accumulator, ElementsOf<T, Slots::words>::size> totals[Batch];
      steps.forEachOperand(step.firstOperand, step.sources, [&](int s, layout::PlanOperand const& operand) {
        auto const source = place(operand, chunk, start);
        MSCCLPP_UNROLL
        for (unsigned i = 0; i < Batch; ++i) {
          auto const slot = first + i * std::uint64_t{group.size()};
          if (slot >= slots) continue;
          if constexpr (!std::is_same_v<Slots, PlainSlots>) {
            if (source.packets) {
              receive<Slots>(source.address + slot * Slots::slotBytes, slot, values[i]);
              continue;
            }
          }
          Reader const reader({reinterpret_cast<T const*>(source.address), elements});
          values[i] = reader.read(reader.window(slot * slotBytes), 0);
        }
        if (step.sources == 1) return;
        MSCCLPP_UNROLL
        for (unsigned i = 0; i < Batch; ++i) {
          auto const contribution = convert<Accumulator>(unpack<T>(values[i]));
          totals[i] = s == 0 ? contribution : reduced(step, totals[i], contribution);
        }
      });
      if (step.sources != 1) {
        MSCCLPP_UNROLL
        for (unsigned i = 0; i < Batch; ++i) {
          if (step.concludes && static_cast<dsl::ReduceKind>(step.reduce) == dsl::ReduceKind::asCalled) {
            int const ranks = plan_.shape.ranks;
            totals[i] = map(totals[i], [this, ranks](Accumulator total) { return op_.finish(total, ranks); });
          }
          values[i] = pack(convert<T>(totals[i]));
        }
      }
      steps.forEachOperand(step.firstOperand + step.sources, step.targets,
                           [&](int, layout::PlanOperand const& operand) {
                             auto const target = place(operand, chunk, start);
                             MSCCLPP_UNROLL
                             for (unsigned i = 0; i < Batch; ++i) {
                               auto const slot = first + i * std::uint64_t{group.size()};
                               if (slot >= slots) continue;
                               if constexpr (!std::is_same_v<Slots, PlainSlots>) {
                                 if (target.packets) {
                                   Slots::store(target.address + slot * Slots::slotBytes, values[i], flag_, true);
                                   continue;
                                 }
                               }
                               Writer const writer({reinterpret_cast<T*>(target.address), elements});
                               writer.write(writer.window(slot * slotBytes), 0, values[i]);
                             }
                           });
    }
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

  template <class Slots>
  MSCCLPP_DEVICE void receive(std::byte const* slot, std::uint64_t number, Payload<Slots::words>& payload) const {
    poll(plan_.watch, {layout::WaitKind::packet, -1, number, flag_},
         [&](std::uint64_t& seen) { return Slots::unwrap(Slots::load(slot, true), flag_, true, payload, seen); });
  }

  layout::PlanHandle const& plan_;
  layout::WindowHandle const& inWindow_;
  layout::WindowHandle const& outWindow_;
  PlanCall<T> call_;
  Op op_;
  std::uint64_t bytes_;  // of the message
  std::uint64_t upper_;  // of its longest chunk
  std::uint64_t epoch_;
  std::uint32_t flag_;
  std::uint64_t windowStart_ = 0;  // of the turn, into each chunk
  std::uint64_t window_ = ~std::uint64_t{0};
};

}  // namespace dsl_impl
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
