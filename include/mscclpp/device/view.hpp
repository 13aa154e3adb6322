// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A run of elements in device memory, and reading and writing it in payloads of any transport, whatever its alignment
// and length.
//
// `PayloadReader` and `PayloadWriter` decide once whether the buffer allows accesses of `Granule` bytes. Where it does,
// payloads move in such accesses; at a ragged end, or in a misaligned buffer, elements move one by one. Elements past
// the end read as zero and are not written. A `Window` is the part of the buffer that a tile lies in: with it, each
// access needs 32-bit arithmetic only, which counts in kernels of a few hundred instructions.
//
// Buffer, window and extent are the same for all threads of a block, up to a multiple of Granule in the window's
// offset: whether a window is whole decides for all of them which way they go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "mscclpp/base/bits.hpp"
#include "mscclpp/device/vector.hpp"

namespace mscclpp {

template <class T>
struct View {
  using Element = std::remove_const_t<T>;
  T* data;
  std::size_t count;

  MSCCLPP_HOST_DEVICE constexpr std::uint64_t bytes() const { return std::uint64_t{count} * sizeof(T); }
  MSCCLPP_HOST_DEVICE constexpr View part(std::size_t first, std::size_t elements) const {
    return {data + first, elements};
  }
};

template <class T>
View(T*, std::size_t) -> View<T>;

inline namespace MSCCLPP_BACKEND {

template <class T>
struct Window {
  T* data;              // its first element
  std::uint32_t bytes;  // that may be accessed from there
  bool whole;           // no access of Granule bytes is cut off, or misaligned
};

namespace impl {

template <class T, unsigned Granule>
class PayloadAccess {
  static_assert(sizeof(T) <= Granule, "an element must fit into one access of the transport; choose a wider packet");

 public:
  PayloadAccess() = default;  // to be assigned
  MSCCLPP_DEVICE explicit PayloadAccess(View<T> view)
      : data_(view.data), bytes_(view.bytes()), aligned_(isAligned(view.data, Granule)) {}

  // From `offset` bytes on, a multiple of Granule; empty past the end. `extent`: bytes from there behind which nothing
  // is asked for; a buffer with a ragged end is as fast as others where that is further away.
  MSCCLPP_DEVICE Window<T> window(std::uint64_t offset, std::uint64_t extent = ~std::uint64_t{0}) const {
    std::uint64_t const left = offset < bytes_ ? bytes_ - offset : 0;
    return {data_ + offset / sizeof(T), static_cast<std::uint32_t>(minimum<std::uint64_t>(left, 0xffffffffu)),
            aligned_ && (bytes_ % Granule == 0 || left >= extent)};
  }

 protected:
  T* data_;
  std::uint64_t bytes_;
  bool aligned_;
};

// In a whole window, the accesses of `Granule` bytes that lie inside it and in the first `valid` bytes of the payload.
template <class T, unsigned Words, unsigned Granule>
MSCCLPP_DEVICE Payload<Words> readWhole(Window<T const> const& window, std::uint32_t offset, unsigned valid) {
  using Access = Payload<Granule / 4>;
  auto const* from = reinterpret_cast<Access const*>(reinterpret_cast<std::byte const*>(window.data) + offset);
  Payload<Words> payload{};
  MSCCLPP_UNROLL
  for (unsigned i = 0; i < Words * 4 / Granule; ++i) {
    if (offset + i * Granule >= window.bytes || (i != 0 && i * Granule >= valid)) break;
    Access const piece = from[i];
    MSCCLPP_UNROLL
    for (unsigned w = 0; w < Granule / 4; ++w) payload.word[i * (Granule / 4) + w] = piece.word[w];
  }
  return payload;
}

template <class T, unsigned Words, unsigned Granule>
MSCCLPP_DEVICE void writeWhole(Window<T> const& window, std::uint32_t offset, Payload<Words> const& payload,
                               unsigned valid) {
  using Access = Payload<Granule / 4>;
  auto* to = reinterpret_cast<Access*>(reinterpret_cast<std::byte*>(window.data) + offset);
  MSCCLPP_UNROLL
  for (unsigned i = 0; i < Words * 4 / Granule; ++i) {
    Access piece;
    MSCCLPP_UNROLL
    for (unsigned w = 0; w < Granule / 4; ++w) piece.word[w] = payload.word[i * (Granule / 4) + w];
    if (offset + i * Granule < window.bytes && (i == 0 || i * Granule < valid)) to[i] = piece;
  }
}

// Windows that are not whole. Out of line: hot kernels must stay small enough for the instruction cache. Whole windows
// are the same for all threads of a block, so that these go the same way (base/config.hpp).
template <class T, unsigned Words, unsigned Granule>
MSCCLPP_COLD_DEVICE Payload<Words> readPieces(Window<T const> window, bool aligned, std::uint32_t offset,
                                              std::uint32_t valid) {
  if (aligned && offset + valid <= window.bytes) return readWhole<T, Words, Granule>(window, offset, valid);
  auto const end = minimum(window.bytes, offset + valid);
  ElementsOf<T, Words> elements;
  MSCCLPP_UNROLL
  for (unsigned i = 0; i < elements.size; ++i) {
    auto const at = static_cast<std::uint32_t>(offset + i * sizeof(T));
    elements[i] = at < end ? window.data[at / sizeof(T)] : T{};
  }
  return pack(elements);
}

template <class T, unsigned Words, unsigned Granule>
MSCCLPP_COLD_DEVICE void writePieces(Window<T> window, bool aligned, std::uint32_t offset, Payload<Words> payload,
                                     std::uint32_t valid) {
  if (aligned && offset + valid <= window.bytes) return writeWhole<T, Words, Granule>(window, offset, payload, valid);
  auto const end = minimum(window.bytes, offset + valid);
  auto const elements = unpack<T>(payload);
  MSCCLPP_UNROLL
  for (unsigned i = 0; i < elements.size; ++i) {
    auto const at = static_cast<std::uint32_t>(offset + i * sizeof(T));
    if (at < end) window.data[at / sizeof(T)] = elements[i];
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
    if (window.whole) [[likely]]
      return impl::readWhole<T, Words, Granule>(window, offset, valid);
    return impl::readPieces<T, Words, Granule>(window, this->aligned_, offset, valid);
  }
};

template <class T, unsigned Words, unsigned Granule>
class PayloadWriter : public impl::PayloadAccess<T, Granule> {
 public:
  using impl::PayloadAccess<T, Granule>::PayloadAccess;

  // Writes the first `valid` bytes of `payload`, a multiple of Granule, at `offset` bytes into the window.
  MSCCLPP_DEVICE void write(Window<T> const& window, std::uint32_t offset, Payload<Words> const& payload,
                            unsigned valid = Words * 4) const {
    if (window.whole) [[likely]]
      return impl::writeWhole<T, Words, Granule>(window, offset, payload, valid);
    impl::writePieces<T, Words, Granule>(window, this->aligned_, offset, payload, valid);
  }
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
