// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How rows of a matrix lie in block-shared memory for the tensor cores of compute capability 9.0, and the words that
// tell them so. Plain arithmetic, for kernels and the host.
//
//   SwizzledRows::offset(row, chunk)              where 16 bytes of a row are put, from the begin of the rows on
//   SwizzledRows::descriptor(address, bytes)      the rows at that shared address, from that byte of each row on
//   SwizzledRows::place(descriptor, row, byte)    the shared address that tensor cores then read
//
// A row has 128 bytes, 64 elements of 16 bits along the dimension that is summed over. Rows stand behind each other;
// in each, the 8 chunks of 16 bytes are in an order of the row's own, so that the same chunk of 8 rows is in all 32
// banks (PTX: the 128-byte swizzle of K-major matrices). The begin is a multiple of 1024 bytes.
#pragma once

#include <cstdint>

#include "mscclpp/base/config.hpp"

namespace mscclpp {

struct SwizzledRows {
  static constexpr unsigned rowBytes = 128;
  static constexpr unsigned chunkBytes = 16;
  static constexpr unsigned chunks = rowBytes / chunkBytes;
  static constexpr unsigned alignment = 8 * rowBytes;

  // The hardware goes by the address: bits 4 to 6 are those of the chunk, exchanged by bits 7 to 9, the row's.
  MSCCLPP_HOST_DEVICE static constexpr std::uint32_t swizzled(std::uint32_t address) {
    return address ^ (address >> 7 & 7) << 4;
  }
  MSCCLPP_HOST_DEVICE static constexpr std::uint32_t offset(unsigned row, unsigned chunk) {
    return swizzled(row * rowBytes + chunk * chunkBytes);
  }

  // `bytes`: a multiple of 32 below 128; that of a row's first element that is summed over.
  MSCCLPP_HOST_DEVICE static constexpr std::uint64_t descriptor(std::uint32_t address, unsigned bytes) {
    return encoded(address + bytes) | encoded(chunkBytes) << 16 | encoded(alignment) << 32 | std::uint64_t{1} << 62;
  }
  // The distance from 8 rows to the next 8 is in the descriptor; that between chunks is not used with this swizzle.
  MSCCLPP_HOST_DEVICE static constexpr std::uint32_t place(std::uint64_t descriptor, unsigned row, unsigned byte) {
    auto const begin = decoded(descriptor);
    auto const ofEight = decoded(descriptor >> 32);
    return swizzled(begin + row / 8 * ofEight + row % 8 * rowBytes + byte);
  }

 private:
  // Addresses and distances are in units of 16 bytes, of 14 bits.
  MSCCLPP_HOST_DEVICE static constexpr std::uint64_t encoded(std::uint32_t bytes) { return (bytes & 0x3ffff) >> 4; }
  MSCCLPP_HOST_DEVICE static constexpr std::uint32_t decoded(std::uint64_t field) {
    return static_cast<std::uint32_t>(field & 0x3fff) << 4;
  }
};

}  // namespace mscclpp
