// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where the data of a lowered program's steps lie in one call of its kernel: the chunks of buffers, the piece of each
// that a step moves now, and both as threads and as proxies name them.
//
// Loops set a window into every chunk; outside of loops it holds all of it. Counted in units of 16 bytes, in 32 bits
// (see dsl::largestMessage): a step of packets takes some hundred instructions in all.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/base/bits.hpp"
#include "mscclpp/base/config.hpp"
#include "mscclpp/device/packet.hpp"
#include "mscclpp/device/pending.hpp"
#include "mscclpp/device/round_counter.hpp"
#include "mscclpp/device/view.hpp"
#include "mscclpp/dsl/core/kinds.hpp"
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

// What a step moves of one chunk, in units of 16 bytes.
struct Piece {
  std::uint32_t first;
  std::uint32_t units;
  std::uint32_t slack;  // bytes that the last unit lacks, where it ends the message
  std::uint32_t pad;    // units that packets carry behind these, see PlanShape::relaysPackets
  bool empty;           // a share that has not even the one slot of packets that is sent where there is no data

  MSCCLPP_DEVICE std::uint64_t bytes() const { return std::uint64_t{units} * 16 - slack; }
};

// The shape of a plan, from its handle; a program that is compiled in has one that is a constant.
struct LoadedShape {
  MSCCLPP_DEVICE static layout::PlanShape const& of(layout::PlanHandle const& plan) { return plan.shape; }
};

template <class T, class Shape>
class PlanPlaces {
 public:
  MSCCLPP_DEVICE PlanPlaces(layout::PlanHandle const& plan, layout::WindowHandle const& in,
                            layout::WindowHandle const& out, PlanCall<T> const& call, layout::RoundCounter const& done)
      : plan_(plan),
        inWindow_(in),
        outWindow_(out),
        call_(call),
        bytes_(call.count * sizeof(T)),
        done_(done),
        rank_(plan.rank) {
    units_ = static_cast<std::uint32_t>(ceilDiv<std::uint64_t>(bytes_, 16));
    upper_ = ceilDiv(units_, static_cast<std::uint32_t>(shape().longestOf));
    inputChunks_ = chunksOf(shape().inputPerSlice);
    outputChunks_ = shape().inputPerSlice == shape().outputPerSlice ? inputChunks_ : chunksOf(shape().outputPerSlice);
  }

  MSCCLPP_DEVICE layout::PlanHandle const& plan() const { return plan_; }
  MSCCLPP_DEVICE decltype(auto) shape() const { return Shape::of(plan_); }
  MSCCLPP_DEVICE int numberOf(layout::RankNumber const& number) const {
    return number.at(rank_, shape().ranks, instance_);
  }
  // Of a step that is known.
  template <class Known>
  MSCCLPP_DEVICE int numberOf(Known const& number) const {
    return number.at(rank_, shape().ranks, instance_, twin_);
  }
  MSCCLPP_DEVICE int rankOf(auto const& operand) const { return numberOf(operand.rank); }
  // Number of this call. Its load is begun before the call's other loads and awaited where the number is needed, which
  // is behind the first of them.
  MSCCLPP_DEVICE std::uint64_t epoch() const { return arch::notEarlier(done_.rounds) + 1; }

  // Of packets.
  MSCCLPP_DEVICE std::uint32_t flag() const { return packetFlag(epoch() + arch::notEarlier(done_.astray)); }
  // That ranks go together, and that this call's flag is new: old packets lie wherever programs leave them, and have it
  // where they are as old. Looks once a call, best while something is on its way.
  MSCCLPP_DEVICE void requireUsable() const {
    if (looked_) return;
    looked_ = true;
    requireTogether(plan_.watch, arch::notEarlier(done_.astray));
    require(epoch() < layout::flagPeriod, plan_.watch, -1, std::uint64_t(layout::Misuse::spentFlags),
            layout::flagPeriod - 1, epoch());
  }

  // Of the block: where instances share their steps, and where slices share their code.
  MSCCLPP_DEVICE void setInstance(int instance, int twin) {
    instance_ = instance;
    twin_ = twin;
  }
  MSCCLPP_DEVICE int twin() const { return twin_; }

  // ---- turns of loops -----------------------------------------------------------------------------------------------

  MSCCLPP_DEVICE std::uint64_t turns(auto const& loop) const { return ceilDiv<std::uint64_t>(upper_, windowOf(loop)); }
  MSCCLPP_DEVICE void enterTurn(auto const& loop, std::uint64_t turn) {
    window_ = windowOf(loop);
    windowStart_ = static_cast<std::uint32_t>(turn) * window_;
  }
  MSCCLPP_DEVICE void leaveLoop() {
    window_ = ~0u;
    windowStart_ = 0;
  }

  // ---- pieces of chunks ---------------------------------------------------------------------------------------------

  // No piece of the step has more units in this turn.
  MSCCLPP_DEVICE std::uint32_t longestPiece(auto const& step) const {
    auto const units = inWindow(upper_);
    return step.parts == 1 ? units : ceilDiv(units, static_cast<std::uint32_t>(step.parts));
  }

  // Of the step's chunk `chunk`, in this turn, for this block. All chunks of the message that meet here are equally
  // long.
  template <class Steps>
  MSCCLPP_DEVICE Piece pieceOf(Steps const& steps, auto const& step, int chunk) const {
    auto all = upper_;
    bool known = false, last = false;
    steps.forEachOperand(step, [&](int, auto const& operand) {
      if (known || isScratch(operand)) return;
      auto const c = chunkInSlice(operand, indexOf(operand) + chunk);
      auto const end = chunkStart(operand, c + 1);
      all = end - chunkStart(operand, c);
      last = end == units_;
      known = true;
    });
    Piece piece{windowStart_, inWindow(all), 0, 0, false};
    // Who takes packets from scratch to scratch waits for as many as the longest chunk has.
    if (shape().relaysPackets != 0 && step.part == step.parts - 1) piece.pad = inWindow(upper_) - piece.units;
    if (step.parts != 1) {
      std::uint64_t const units = piece.units == 0 ? 1 : piece.units;
      auto const parts = static_cast<unsigned>(step.parts), part = static_cast<unsigned>(step.part);
      auto const first = static_cast<std::uint32_t>(units * part / parts);
      auto const end = static_cast<std::uint32_t>(units * (part + 1) / parts);
      piece.empty = first == end;
      piece.first += first;
      piece.units = first < piece.units ? minimum(piece.units, end) - first : 0;
    }
    if (last && piece.units != 0 && piece.first + piece.units == all) {
      piece.slack = arch::notAnew(-static_cast<std::uint32_t>(bytes_) % 16);
    }
    return piece;
  }

  // `units` into the operand's chunk.
  MSCCLPP_DEVICE Place place(auto const& operand, int which, std::uint32_t units) const {
    int const rank = rankOf(operand);
    if (isScratch(operand)) return {plan_.scratch[rank] + offsetOf(operand, which, units), operand.packets};
    return {base(operand, rank) + offsetOf(operand, which, units), false};
  }
  // The piece of the operand's chunk, of T or T const.
  template <class U>
  MSCCLPP_DEVICE View<U> viewOf(auto const& operand, int which, Piece const& piece) const {
    return {reinterpret_cast<U*>(place(operand, which, piece.first).address), piece.bytes() / sizeof(T)};
  }
  MSCCLPP_DEVICE PortPlace portPlace(auto const& operand, int which, std::uint32_t units) const {
    auto const memory = plan_.portMemories[operand.buffer] + static_cast<std::uint32_t>(rankOf(operand));
    auto const at = offsetOf(operand, which, units);
    if (isScratch(operand)) return {memory, plan_.scratchStart + at};
    auto const* const window = (isInput(operand) ? inWindow_ : outWindow_).bases[rank_];
    return {memory, static_cast<std::uint64_t>(base(operand, rank_) - window) + at};
  }

  // For multicast accesses of 16 bytes, where everybody's operand lies at the same place; null where that cannot be.
  MSCCLPP_DEVICE std::byte* multicastPlace(auto const& operand, int which, std::uint32_t units) const {
    auto const& window = isInput(operand) ? inWindow_ : outWindow_;
    auto* const memory = isScratch(operand) ? plan_.scratchMulticast : window.multicast;
    if (memory == nullptr) return nullptr;
    auto* const start = isScratch(operand) ? memory : memory + (base(operand, rank_) - window.bases[rank_]);
    auto* const place = start + offsetOf(operand, which, units);
    return reinterpret_cast<std::uintptr_t>(place) % 16 == 0 ? place : nullptr;
  }

 private:
  // Of a chunk of so many units, those of this turn.
  MSCCLPP_DEVICE std::uint32_t inWindow(std::uint32_t units) const {
    return windowStart_ < units ? minimum(units - windowStart_, window_) : 0;
  }

  // How a slice is cut: the first `longer` chunks are one unit longer. Divided once, not wherever a chunk is looked
  // for.
  struct Chunking {
    std::uint32_t each, longer;
  };
  MSCCLPP_DEVICE Chunking chunksOf(int perSlice) const {
    auto const each = units_ / static_cast<unsigned>(perSlice);
    return {each, units_ - each * static_cast<unsigned>(perSlice)};
  }
  // Units that one turn takes of one chunk.
  MSCCLPP_DEVICE static std::uint32_t windowOf(auto const& loop) {
    auto const each = loop.unitBytes / static_cast<unsigned>(loop.loopChunks) / 16;
    return each == 0 ? 1 : static_cast<std::uint32_t>(minimum<std::uint64_t>(each, ~0u));
  }
  MSCCLPP_DEVICE unsigned slicesOf(auto const& operand) const {
    return static_cast<unsigned>(isInput(operand) ? shape().inputSlices : shape().outputSlices);
  }
  MSCCLPP_DEVICE unsigned chunkInSlice(auto const& operand, int chunk) const {
    auto const c = static_cast<unsigned>(chunk);
    return slicesOf(operand) == 1 ? c : c % perSliceOf(operand);
  }
  // Where chunk `c` of a slice begins, or the slice ends.
  MSCCLPP_DEVICE std::uint32_t chunkStart(auto const& operand, unsigned c) const {
    auto const& cut = isInput(operand) ? inputChunks_ : outputChunks_;
    return cut.each * c + minimum(c, cut.longer);
  }
  MSCCLPP_DEVICE unsigned perSliceOf(auto const& operand) const {
    return static_cast<unsigned>(isInput(operand) ? shape().inputPerSlice : shape().outputPerSlice);
  }
  MSCCLPP_DEVICE static bool isInput(auto const& operand) {
    return static_cast<dsl::BufferKind>(operand.buffer) == dsl::BufferKind::input;
  }
  MSCCLPP_DEVICE static bool isScratch(auto const& operand) {
    return static_cast<dsl::BufferKind>(operand.buffer) == dsl::BufferKind::scratch;
  }
  MSCCLPP_DEVICE int indexOf(auto const& operand) const { return numberOf(operand.index); }

  // In bytes from where the operand's buffer begins, on any rank.
  MSCCLPP_DEVICE std::uint64_t offsetOf(auto const& operand, int which, std::uint32_t units) const {
    auto const chunk = indexOf(operand) + which;
    if (isScratch(operand)) {
      auto const half = shape().doubleScratch != 0 && epoch() % 2 != 0 ? plan_.scratchHalf : 0;
      return std::uint64_t{half + static_cast<unsigned>(chunk) * plan_.scratchStride +
                           (operand.packets ? 2 : 1) * units} *
             16;
    }
    auto const c = chunkInSlice(operand, chunk);
    auto const inSlice = std::uint64_t{chunkStart(operand, c) + units} * 16;
    if (slicesOf(operand) == 1) return inSlice;
    return static_cast<unsigned>(chunk) / perSliceOf(operand) * bytes_ + inSlice;
  }
  MSCCLPP_DEVICE std::byte* base(auto const& operand, int rank) const {
    auto* const own = isInput(operand) ? reinterpret_cast<std::byte*>(const_cast<T*>(call_.in))
                                       : reinterpret_cast<std::byte*>(call_.out);
    if (rank == rank_) return own;
    auto const& window = isInput(operand) ? inWindow_ : outWindow_;
    return window.bases[rank] + (own - window.bases[rank_]);
  }

  layout::PlanHandle const& plan_;
  layout::WindowHandle const& inWindow_;
  layout::WindowHandle const& outWindow_;
  PlanCall<T> call_;
  std::uint64_t bytes_;  // of the message
  std::uint32_t units_;  // of the message
  std::uint32_t upper_;  // units of its longest chunk
  Chunking inputChunks_, outputChunks_;
  layout::RoundCounter done_;  // calls before this one
  int rank_;                   // kept: a load that the compiler takes for one that may change stays in every loop
  int instance_ = 0, twin_ = 0;
  std::uint32_t windowStart_ = 0;  // of the turn, into each chunk
  std::uint32_t window_ = ~0u;
  mutable bool looked_ = false;  // see requireUsable()
};

}  // namespace dsl_impl
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
