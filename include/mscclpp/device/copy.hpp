// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Copy of bytes by a group of threads, within a device or between peers.
//
// Any alignment and length: the widest access that both addresses allow together (16, 8, 4, 2 or 1 bytes), single bytes
// at both ends. No barrier: the caller orders it. The ranges must not overlap.
//
// Cost: `Unroll` accesses a thread are in flight together, each in registers of its own. A multiprocessor of an H200
// stores 46 GB/s, wherever to, so 8 blocks of 512 threads fill a link to a peer. From a peer, which is further away
// than memory, they load as much only with 8 accesses in flight (340 GB/s; 202 with 4).
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/base/bits.hpp"
#include "mscclpp/device/group.hpp"
#include "mscclpp/device/vector.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

namespace impl {

template <unsigned Unroll, class Access, Group G>
MSCCLPP_DEVICE void copyAccesses(G const& group, Access* dst, Access const* src, std::uint64_t count) {
  std::uint64_t const stride = group.size();
  for (std::uint64_t i = group.rank(); i < count; i += Unroll * stride) {
    Access held[Unroll];
    arch::leaveUnset(held);
    MSCCLPP_UNROLL
    for (unsigned u = 0; u < Unroll; ++u) {
      if (i + u * stride < count) held[u] = src[i + u * stride];
    }
    MSCCLPP_UNROLL
    for (unsigned u = 0; u < Unroll; ++u) {
      if (i + u * stride < count) dst[i + u * stride] = held[u];
    }
  }
}

struct [[gnu::may_alias]] Byte {
  unsigned char value;
};
struct alignas(2) [[gnu::may_alias]] HalfWord {
  std::uint16_t value;
};

template <unsigned Unroll, class Access, Group G>
MSCCLPP_DEVICE void copyAligned(G const& group, std::byte* dst, std::byte const* src, std::uint64_t bytes) {
  // `dst` and `src` are equally far from a multiple of the access.
  std::uint64_t const head =
      minimum<std::uint64_t>((0 - reinterpret_cast<std::uintptr_t>(dst)) % sizeof(Access), bytes);
  std::uint64_t const whole = (bytes - head) / sizeof(Access);
  std::uint64_t const tail = head + whole * sizeof(Access);
  copyAccesses<Unroll>(group, reinterpret_cast<Access*>(dst + head), reinterpret_cast<Access const*>(src + head),
                       whole);
  // Fewer bytes than an access has at either end.
  for (std::uint64_t i = group.rank(); i < head + bytes - tail; i += group.size()) {
    auto const at = i < head ? i : tail + i - head;
    reinterpret_cast<Byte*>(dst)[at] = reinterpret_cast<Byte const*>(src)[at];
  }
}

}  // namespace impl

// By all threads of the group, each of which copies its share and returns when it has issued its last store.
template <unsigned Unroll = 4, Group G>
MSCCLPP_DEVICE void copy(G const& group, void* dst, void const* src, std::uint64_t bytes) {
  auto* to = static_cast<std::byte*>(dst);
  auto const* from = static_cast<std::byte const*>(src);
  auto const skew =
      static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(dst) ^ reinterpret_cast<std::uintptr_t>(src));
  if (skew % 16 == 0) return impl::copyAligned<Unroll, Payload<4>>(group, to, from, bytes);
  if (skew % 8 == 0) return impl::copyAligned<Unroll, Payload<2>>(group, to, from, bytes);
  if (skew % 4 == 0) return impl::copyAligned<Unroll, Payload<1>>(group, to, from, bytes);
  if (skew % 2 == 0) return impl::copyAligned<Unroll, impl::HalfWord>(group, to, from, bytes);
  impl::copyAligned<Unroll, impl::Byte>(group, to, from, bytes);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
