// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Copy of bytes by a group of threads, within a device or between peers.
//
// Any alignment and length: the widest access that both addresses allow together (16, 8, 4, 2 or 1 bytes), four of them
// in flight per thread, single bytes at both ends. No barrier: the caller orders it. The ranges must not overlap.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/device/bits.hpp"
#include "mscclpp/device/group.hpp"
#include "mscclpp/device/vector.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

namespace impl {

template <class Access, Group G>
MSCCLPP_DEVICE void copyAccesses(G const& group, Access* dst, Access const* src, std::uint64_t count) {
  constexpr unsigned unroll = 4;
  std::uint64_t const stride = group.size();
  std::uint64_t i = group.rank();
  for (; i + (unroll - 1) * stride < count; i += unroll * stride) {
    Access held[unroll];
    MSCCLPP_UNROLL
    for (unsigned u = 0; u < unroll; ++u) held[u] = src[i + u * stride];
    MSCCLPP_UNROLL
    for (unsigned u = 0; u < unroll; ++u) dst[i + u * stride] = held[u];
  }
  for (; i < count; i += stride) dst[i] = src[i];
}

struct [[gnu::may_alias]] Byte {
  unsigned char value;
};
struct alignas(2) [[gnu::may_alias]] HalfWord {
  std::uint16_t value;
};

template <class Access, Group G>
MSCCLPP_DEVICE void copyAligned(G const& group, std::byte* dst, std::byte const* src, std::uint64_t bytes) {
  // `dst` and `src` are equally far from a multiple of the access.
  std::uint64_t const head =
      minimum<std::uint64_t>((0 - reinterpret_cast<std::uintptr_t>(dst)) % sizeof(Access), bytes);
  std::uint64_t const whole = (bytes - head) / sizeof(Access);
  std::uint64_t const tail = head + whole * sizeof(Access);
  copyAccesses(group, reinterpret_cast<Access*>(dst + head), reinterpret_cast<Access const*>(src + head), whole);
  copyAccesses(group, reinterpret_cast<Byte*>(dst), reinterpret_cast<Byte const*>(src), head);
  copyAccesses(group, reinterpret_cast<Byte*>(dst + tail), reinterpret_cast<Byte const*>(src + tail), bytes - tail);
}

}  // namespace impl

template <Group G>
MSCCLPP_DEVICE void copy(G const& group, void* dst, void const* src, std::uint64_t bytes) {
  auto* to = static_cast<std::byte*>(dst);
  auto const* from = static_cast<std::byte const*>(src);
  auto const skew =
      static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(dst) ^ reinterpret_cast<std::uintptr_t>(src));
  if (skew % 16 == 0) return impl::copyAligned<Payload<4>>(group, to, from, bytes);
  if (skew % 8 == 0) return impl::copyAligned<Payload<2>>(group, to, from, bytes);
  if (skew % 4 == 0) return impl::copyAligned<Payload<1>>(group, to, from, bytes);
  if (skew % 2 == 0) return impl::copyAligned<impl::HalfWord>(group, to, from, bytes);
  impl::copyAligned<impl::Byte>(group, to, from, bytes);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
