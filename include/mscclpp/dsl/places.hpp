// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where the data of a lowered program's steps lie in one call of its kernel: the chunks of buffers, the piece of each
// that a step moves now, and both as threads and as proxies name them.
//
// Loops set a window into every chunk; outside of loops it holds all of it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/device/bits.hpp"
#include "mscclpp/device/config.hpp"
#include "mscclpp/device/pending.hpp"
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

// Where an operand's data lie in this step.
struct Place {
  std::byte* address;
  bool packets;
};

// The same for a proxy.
struct PortPlace {
  std::uint32_t memory;  // its number in the proxy service
  std::uint64_t offset;
};

// What a step moves of one chunk.
struct Piece {
  std::uint64_t start, bytes;
  bool empty;  // a share that has not even the one slot of packets that is sent where there is no data
};

// The shape of a plan, from its handle; a program that is compiled in has one that is a constant.
struct LoadedShape {
  MSCCLPP_DEVICE static layout::PlanShape const& of(layout::PlanHandle const& plan) { return plan.shape; }
};

template <class T, class Shape>
class PlanPlaces {
 public:
  MSCCLPP_DEVICE PlanPlaces(layout::PlanHandle const& plan, layout::WindowHandle const& in,
                            layout::WindowHandle const& out, PlanCall<T> const& call, std::uint64_t done)
      : plan_(plan), inWindow_(in), outWindow_(out), call_(call), bytes_(call.count * sizeof(T)), done_(done) {
    upper_ = dsl::longestChunk(bytes_, shape().longestOf);
    inputChunks_ = chunksOf(bytes_, shape().inputPerSlice);
    outputChunks_ =
        shape().inputPerSlice == shape().outputPerSlice ? inputChunks_ : chunksOf(bytes_, shape().outputPerSlice);
  }

  // Of the block, where instances share their steps.
  MSCCLPP_DEVICE void setInstance(int instance) { instance_ = instance; }

  // ---- turns of loops -----------------------------------------------------------------------------------------------

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

  // ---- pieces of chunks ---------------------------------------------------------------------------------------------

  // No piece of the step has more bytes in this turn.
  MSCCLPP_DEVICE std::uint64_t longestPiece(layout::PlanStep const& step) const {
    auto const bytes = windowStart_ < upper_ ? minimum(upper_ - windowStart_, window_) : 0;
    if (step.parts == 1) return bytes;
    return ceilDiv(ceilDiv<std::uint64_t>(bytes, 16), static_cast<std::uint64_t>(step.parts)) * 16;
  }

  // Of the step's chunk `chunk`, in this turn, for this block. All chunks of the message that meet here are equally
  // long.
  template <class Steps>
  MSCCLPP_DEVICE Piece pieceOf(Steps const& steps, layout::PlanStep const& step, int chunk) const {
    std::uint64_t bytes = upper_;
    bool known = false;
    steps.forEachOperand(step.firstOperand, step.sources + step.targets, [&](int, layout::PlanOperand const& operand) {
      if (known || isScratch(operand)) return;
      bytes = chunkBytes(operand, indexOf(operand) + chunk);
      known = true;
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
    return {start, bytes, empty};
  }

  // `offset` bytes into the operand's chunk.
  MSCCLPP_DEVICE Place place(layout::PlanOperand const& operand, int which, std::uint64_t offset) const {
    int const rank = rankOf(operand);
    if (isScratch(operand)) return {plan_.scratch[rank] + offsetOf(operand, which, offset), operand.packets};
    return {base(operand, rank) + offsetOf(operand, which, offset), false};
  }
  MSCCLPP_DEVICE PortPlace portPlace(layout::PlanOperand const& operand, int which, std::uint64_t offset) const {
    auto const memory = plan_.portMemories[operand.buffer] + static_cast<std::uint32_t>(rankOf(operand));
    auto const at = offsetOf(operand, which, offset);
    if (isScratch(operand)) return {memory, plan_.scratchStart + at};
    auto const* const window = (isInput(operand) ? inWindow_ : outWindow_).bases[plan_.rank];
    return {memory, static_cast<std::uint64_t>(base(operand, plan_.rank) - window) + at};
  }

  // For multicast accesses of 16 bytes, where everybody's operand lies at the same place; null where that cannot be.
  MSCCLPP_DEVICE std::byte* multicastPlace(layout::PlanOperand const& operand, int which, std::uint64_t offset) const {
    auto const& window = isInput(operand) ? inWindow_ : outWindow_;
    auto* const memory = isScratch(operand) ? plan_.scratchMulticast : window.multicast;
    if (memory == nullptr) return nullptr;
    auto* const start = isScratch(operand) ? memory : memory + (base(operand, plan_.rank) - window.bases[plan_.rank]);
    auto* const place = start + offsetOf(operand, which, offset);
    return reinterpret_cast<std::uintptr_t>(place) % 16 == 0 ? place : nullptr;
  }

 protected:
  MSCCLPP_DEVICE decltype(auto) shape() const { return Shape::of(plan_); }
  MSCCLPP_DEVICE int numberOf(layout::RankNumber const& number) const {
    return number.at(plan_.rank, shape().ranks, instance_);
  }

  // Number of this call. Its load is begun before the call's other loads and awaited where the number is needed, which
  // is behind the first of them.
  MSCCLPP_DEVICE std::uint64_t epoch() const { return arch::notEarlier(done_) + 1; }

  layout::PlanHandle const& plan_;

 private:
  // How a slice is cut, in units of 16 bytes: the first `longer` chunks are one unit longer. Divided once, not wherever
  // a chunk is looked for, and in 32 bits: see dsl::largestMessage.
  struct Chunking {
    std::uint32_t each, longer;
  };
  MSCCLPP_DEVICE static Chunking chunksOf(std::uint64_t bytes, int perSlice) {
    auto const units = static_cast<std::uint32_t>(ceilDiv<std::uint64_t>(bytes, 16));
    auto const each = units / static_cast<unsigned>(perSlice);
    return {each, units - each * static_cast<unsigned>(perSlice)};
  }
  // Bytes that one turn takes of one chunk.
  MSCCLPP_DEVICE static std::uint64_t windowOf(layout::PlanStep const& loop) {
    auto const each = loop.unitBytes / static_cast<unsigned>(loop.loopChunks) / 16 * 16;
    return each == 0 ? 16 : each;
  }
  // Where chunk `c` of a slice begins, or the slice ends.
  MSCCLPP_DEVICE std::uint64_t chunkStart(layout::PlanOperand const& operand, unsigned c) const {
    if (c == 0) return 0;
    if (c == perSliceOf(operand)) return bytes_;
    auto const& cut = isInput(operand) ? inputChunks_ : outputChunks_;
    return minimum(std::uint64_t{cut.each * c + minimum(c, cut.longer)} * 16, bytes_);
  }
  MSCCLPP_DEVICE std::uint64_t chunkBytes(layout::PlanOperand const& operand, int chunk) const {
    auto const c = static_cast<unsigned>(chunk) % perSliceOf(operand);
    return chunkStart(operand, c + 1) - chunkStart(operand, c);
  }
  MSCCLPP_DEVICE unsigned perSliceOf(layout::PlanOperand const& operand) const {
    return static_cast<unsigned>(isInput(operand) ? shape().inputPerSlice : shape().outputPerSlice);
  }
  MSCCLPP_DEVICE static bool isInput(layout::PlanOperand const& operand) {
    return static_cast<dsl::BufferKind>(operand.buffer) == dsl::BufferKind::input;
  }
  MSCCLPP_DEVICE static bool isScratch(layout::PlanOperand const& operand) {
    return static_cast<dsl::BufferKind>(operand.buffer) == dsl::BufferKind::scratch;
  }
  MSCCLPP_DEVICE int rankOf(layout::PlanOperand const& operand) const { return numberOf(operand.rank); }
  MSCCLPP_DEVICE int indexOf(layout::PlanOperand const& operand) const { return numberOf(operand.index); }

  // From where the operand's buffer begins, on any rank.
  MSCCLPP_DEVICE std::uint64_t offsetOf(layout::PlanOperand const& operand, int which, std::uint64_t offset) const {
    auto const chunk = static_cast<unsigned>(indexOf(operand) + which);
    if (isScratch(operand)) {
      auto const half = shape().doubleScratch != 0 ? (epoch() % 2) * plan_.scratchHalf : 0;
      return half + chunk * plan_.scratchStride + (operand.packets ? 2 * offset : offset);
    }
    auto const perSlice = perSliceOf(operand);
    return chunk / perSlice * bytes_ + chunkStart(operand, chunk % perSlice) + offset;
  }
  MSCCLPP_DEVICE std::byte* base(layout::PlanOperand const& operand, int rank) const {
    auto* const own = isInput(operand) ? reinterpret_cast<std::byte*>(const_cast<T*>(call_.in))
                                       : reinterpret_cast<std::byte*>(call_.out);
    if (rank == plan_.rank) return own;
    auto const& window = isInput(operand) ? inWindow_ : outWindow_;
    return window.bases[rank] + (own - window.bases[plan_.rank]);
  }

  layout::WindowHandle const& inWindow_;
  layout::WindowHandle const& outWindow_;
  PlanCall<T> call_;
  std::uint64_t bytes_;  // of the message
  std::uint64_t upper_;  // of its longest chunk
  Chunking inputChunks_, outputChunks_;
  std::uint64_t done_;  // calls before this one
  int instance_ = 0;
  std::uint64_t windowStart_ = 0;  // of the turn, into each chunk
  std::uint64_t window_ = ~std::uint64_t{0};
};

}  // namespace dsl_impl
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
