// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A run of elements in device memory, and reading and writing it in payloads of any transport, whatever its alignment
// and length.
//
// `PayloadReader` and `PayloadWriter` decide once whether the buffer allows accesses of `Granule` bytes. Where it does,
// whole payloads move in such accesses; at a ragged end, or in a misaligned buffer, elements move one by one. Elements
// past the end read as zero and are not written. A `Window` is the part of the buffer that a tile lies in: with it,
// each access needs 32-bit arithmetic only, which counts in kernels of a few hundred instructions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "mscclpp/device/bits.hpp"
#include "mscclpp/device/vector.hpp"

namespace mscclpp {

template <class T>
struct View {
  T* data;
  std::size_t count;

  MSCCLPP_HOST_DEVICE constexpr std::uint64_t bytes() const { return std::uint64_t{count} * sizeof(T); }
};

template <class T>
View(T*, std::size_t) -> View<T>;

inline namespace MSCCLPP_BACKEND {

template <class T>
struct Window {
  T* data;              // its first element
  std::uint32_t bytes;  // that may be accessed from there
};

namespace impl {

template <class T, unsigned Granule>
class PayloadAccess {
  static_assert(sizeof(T) <= Granule, "an element must fit into one access of the transport; choose a wider packet");

 public:
  MSCCLPP_DEVICE explicit PayloadAccess(View<T> view)
      : data_(view.data), bytes_(view.bytes()), aligned_(isAligned(view.data, Granule)) {}

  // From `offset` bytes on, a multiple of the element's size; empty past the end.
  MSCCLPP_DEVICE Window<T> window(std::uint64_t offset) const {
    std::uint64_t const left = offset < bytes_ ? bytes_ - offset : 0;
    return {data_ + offset / sizeof(T), static_cast<std::uint32_t>(minimum<std::uint64_t>(left, 0xffffffffu))};
  }

 protected:
  T* data_;
  std::uint64_t bytes_;
  bool aligned_;
};

// Element by element. Out of line: hot kernels must stay small enough for the instruction cache, and these run at
// ragged ends and in misaligned buffers only.
template <class T, unsigned Words>
MSCCLPP_COLD_DEVICE Payload<Words> readRagged(T const* data, std::uint32_t bytes, std::uint32_t offset) {
  ElementsOf<T, Words> elements;
  MSCCLPP_UNROLL
  for (unsigned i = 0; i < elements.size; ++i) {
    auto const at = static_cast<std::uint32_t>(offset + i * sizeof(T));
    elements[i] = at < bytes ? data[at / sizeof(T)] : T{};
  }
  return pack(elements);
}

template <class T, unsigned Words>
MSCCLPP_COLD_DEVICE void writeRagged(T* data, std::uint32_t bytes, std::uint32_t offset, Payload<Words> payload,
                                     unsigned valid) {
  auto const elements = unpack<T>(payload);
  MSCCLPP_UNROLL
  for (unsigned i = 0; i < elements.size; ++i) {
    auto const at = static_cast<std::uint32_t>(offset + i * sizeof(T));
    if (i * sizeof(T) < valid && at < bytes) data[at / sizeof(T)] = elements[i];
  }
}

}  // namespace impl

template <class T, unsigned Words, unsigned Granule>
class PayloadReader : public impl::PayloadAccess<T const, Granule> {
 public:
  using impl::PayloadAccess<T const, Granule>::PayloadAccess;

  // The payload at `offset` bytes into the window, a multiple of Granule. Nothing behind its first `valid` bytes,
  // another multiple, is touched: it may be another thread's.
  MSCCLPP_DEVICE Payload<Words> read(Window<T const> const& window, std::uint32_t offset,
                                     unsigned valid = Words * 4) const {
    if (this->aligned_ && offset + valid <= window.bytes) [[likely]] {
      Payload<Words> payload{};
      using Access = Payload<Granule / 4>;
      auto const* from = reinterpret_cast<Access const*>(reinterpret_cast<std::byte const*>(window.data) + offset);
      MSCCLPP_UNROLL
      for (unsigned i = 0; i < Words * 4 / Granule; ++i) {
        if (i != 0 && i * Granule >= valid) break;
        Access const piece = from[i];
        MSCCLPP_UNROLL
        for (unsigned w = 0; w < Granule / 4; ++w) payload.word[i * (Granule / 4) + w] = piece.word[w];
      }
      return payload;
    }
    if (offset >= window.bytes) return {};
    return impl::readRagged<T, Words>(window.data, minimum(window.bytes, offset + valid), offset);
  }
};

template <class T, unsigned Words, unsigned Granule>
class PayloadWriter : public impl::PayloadAccess<T, Granule> {
 public:
  using impl::PayloadAccess<T, Granule>::PayloadAccess;

  // Writes the first `valid` bytes of `payload`, a multiple of Granule, at `offset` bytes into the window.
  MSCCLPP_DEVICE void write(Window<T> const& window, std::uint32_t offset, Payload<Words> const& payload,
                            unsigned valid = Words * 4) const {
    if (this->aligned_ && offset + valid <= window.bytes) [[likely]] {
      using Access = Payload<Granule / 4>;
      auto* to = reinterpret_cast<Access*>(reinterpret_cast<std::byte*>(window.data) + offset);
      MSCCLPP_UNROLL
      for (unsigned i = 0; i < Words * 4 / Granule; ++i) {
        Access piece;
        MSCCLPP_UNROLL
        for (unsigned w = 0; w < Granule / 4; ++w) piece.word[w] = payload.word[i * (Granule / 4) + w];
        if (i == 0 || i * Granule < valid) to[i] = piece;
      }
      return;
    }
    if (offset < window.bytes) impl::writeRagged<T, Words>(window.data, window.bytes, offset, payload, valid);
  }
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
