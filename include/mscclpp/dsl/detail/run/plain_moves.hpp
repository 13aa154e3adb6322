// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The moving steps of a lowered program from and to plain memory, as all threads of a block carry them out. A switch's
// move goes through the switch where buffers have multicast addresses, and by plain accesses of everybody's memory
// where they have none, or the switch lacks the type or the operation.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/device/copy.hpp"
#include "mscclpp/device/group.hpp"
#include "mscclpp/device/view.hpp"
#include "mscclpp/dsl/detail/run/step_reduction.hpp"
#include "mscclpp/dsl/detail/run/step_threads.hpp"
#include "mscclpp/dsl/detail/run/switch_slots.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace dsl_impl {

template <Number T>
MSCCLPP_DEVICE Payload<4> readSlot(std::byte const* slot) {
  PayloadReader<T, 4, 16> const reader({reinterpret_cast<T const*>(slot), 16 / sizeof(T)});
  return reader.read(reader.window(0), 0);
}

template <Number T>
MSCCLPP_DEVICE void writeSlot(std::byte* slot, Payload<4> const& value) {
  PayloadWriter<T, 4, 16> const writer({reinterpret_cast<T*>(slot), 16 / sizeof(T)});
  writer.write(writer.window(0), 0, value);
}

// Returns what is left for plain accesses: what is no whole slot, or all of it.
template <class Context, class Steps>
MSCCLPP_DEVICE Piece moveBySwitch(Context const& context, Steps const& steps, auto const& step,
                                  ThreadRange const& group, int chunk, Piece const& piece) {
  using T = typename Context::Element;
  using Switch = SwitchSlots<T>;
  auto const named = static_cast<dsl::ReduceKind>(step.reduce);
  auto const kind = named == dsl::ReduceKind::asCalled ? kindOf(context.reduction.op()) : named;
  std::byte *from = nullptr, *to = nullptr;  // multicast addresses
  std::byte* own = nullptr;                  // the source of this rank
  bool overlaps = false;                     // one side plain, the other not, in the same bytes
  steps.forEachOperand(step, [&](int i, auto const& operand) {
    bool const source = i < step.sources;
    if (i == 0 && (step.everybody & 1) != 0) from = context.places.multicastPlace(operand, chunk, piece.first);
    if (i == step.sources && (step.everybody & 2) != 0) to = context.places.multicastPlace(operand, chunk, piece.first);
    if (context.places.rankOf(operand) != context.places.plan().rank) return;
    auto* const place = context.places.place(operand, chunk, piece.first).address;
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
        steps.forEachSource(step, [&](int s, auto const& operand) {
          if (s != 0) return;  // there is no other: several are read by the switch
          values[i] = readSlot<T>(context.places.place(operand, chunk, piece.first).address + at);
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
        steps.forEachTarget(step, [&](int, auto const& operand) {
          writeSlot<T>(context.places.place(operand, chunk, piece.first).address + at, values[i]);
        });
      }
    }
  }
  if (through) multimemFence();  // before they are told
  return {piece.first + slots, piece.units - slots, piece.slack, 0, false};
}

// Plain sources and targets. `batch` slots of a thread are under way together.
template <class Context, class Steps>
MSCCLPP_DEVICE void combine(Context const& context, Steps const& steps, auto const& step, ThreadRange const& group,
                            int chunk, Piece const& piece) {
  using T = typename Context::Element;
  constexpr unsigned batch = 4, words = 4, slotBytes = 16;
  auto const slots = piece.units;
  for (std::uint64_t first = group.rank(); first < slots; first += batch * std::uint64_t{group.size()}) {
    Payload<words> values[batch] = {};
    typename Context::template Totals<words> totals[batch];
    steps.forEachSource(step, [&](int s, auto const& operand) {
      PayloadReader<T, words, slotBytes> const reader(context.places.template viewOf<T const>(operand, chunk, piece));
      MSCCLPP_UNROLL
      for (unsigned i = 0; i < batch; ++i) {
        auto const slot = first + i * std::uint64_t{group.size()};
        if (slot < slots) values[i] = reader.read(reader.window(slot * slotBytes), 0);
      }
      if (step.sources != 1) {
        MSCCLPP_UNROLL
        for (unsigned i = 0; i < batch; ++i) context.reduction.template add<words>(step, s, values[i], totals[i]);
      }
    });
    if (step.sources != 1) {
      MSCCLPP_UNROLL
      for (unsigned i = 0; i < batch; ++i)
        values[i] = context.reduction.template conclude<words>(step, context.places.shape(), totals[i]);
    }
    steps.forEachTarget(step, [&](int, auto const& operand) {
      PayloadWriter<T, words, slotBytes> const writer(context.places.template viewOf<T>(operand, chunk, piece));
      MSCCLPP_UNROLL
      for (unsigned i = 0; i < batch; ++i) {
        auto const slot = first + i * std::uint64_t{group.size()};
        if (slot < slots) writer.write(writer.window(slot * slotBytes), 0, values[i]);
      }
    });
  }
}

// `OneToOne`: there is one source and one target.
// Out of line, since it is long, and steps that copy differ in where alone.
MSCCLPP_COLD_DEVICE void copyPiece(ThreadRange group, std::byte* dst, std::byte const* src, std::uint64_t bytes) {
  copy(group, dst, src, bytes);
}

template <bool OneToOne, class Context, class Steps>
MSCCLPP_DEVICE void movePlain(Context const& context, Steps const& steps, auto const& step) {
  context.places.requireUsable();
  auto first = startOf(step, context.places.longestPiece(step)).thread;
  for (int chunk = 0; chunk < step.chunks; ++chunk) {
    auto const piece = context.places.pieceOf(steps, step, chunk);
    if (piece.units == 0) continue;
    auto const group = threadsFrom(first, piece.units);
    if constexpr (OneToOne) {
      std::byte* ends[2];
      steps.forEachOperand(step, [&](int i, auto const& operand) {
        ends[i] = context.places.place(operand, chunk, piece.first).address;
      });
      copyPiece(group, ends[1], ends[0], piece.bytes());
    } else {
      auto rest = piece;
      if constexpr (SwitchSlots<typename Context::Element>::moves && Steps::mayTakeSwitch()) {
        if (step.everybody != 0) rest = moveBySwitch(context, steps, step, group, chunk, piece);
      }
      combine(context, steps, step, group, chunk, rest);
    }
  }
}

}  // namespace dsl_impl
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
