// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A run of elements that lies at the same place in the symmetric memory of every rank, so that a kernel can name any
// rank's copy of it.
//
// Collectives that need no copy take one: they store results where the peer will look for them, or read inputs where
// they lie. It refers to the handle that the kernel got, which stays where it is: in constant memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/base/bits.hpp"
#include "mscclpp/device/poll.hpp"
#include "mscclpp/device/view.hpp"
#include "mscclpp/layout/window_handle.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

template <class T>
class SymmetricView {
 public:
  // `offset` bytes from the start of the window, a multiple of the element's size.
  MSCCLPP_DEVICE SymmetricView(layout::WindowHandle const& window, std::uint64_t offset, std::size_t count)
      : window_(window), offset_(offset), count_(count) {}

  MSCCLPP_DEVICE T* at(int rank) const { return reinterpret_cast<T*>(window_.bases[rank] + offset_); }
  MSCCLPP_DEVICE View<T> of(int rank) const { return {at(rank), count_}; }
  // Everybody's, for multicast accesses; null where the window has no such address.
  MSCCLPP_DEVICE T* multicast() const {
    return window_.multicast == nullptr ? nullptr : reinterpret_cast<T*>(window_.multicast + offset_);
  }
  MSCCLPP_DEVICE View<T> own() const { return of(window_.rank); }
  MSCCLPP_DEVICE std::size_t count() const { return count_; }

  // Refuses the launch where the view ends past the window, or the window is another team's.
  MSCCLPP_DEVICE void check(layout::Watch* watch, int teamSize) const {
    auto const end = rangeEnd(offset_, count_, sizeof(T));
    require(end <= window_.bytes, watch, -1, std::uint64_t(layout::Misuse::windowRange), window_.bytes, end);
    require(window_.size == teamSize, watch, -1, std::uint64_t(layout::Misuse::windowTeam),
            static_cast<std::uint64_t>(teamSize), static_cast<std::uint64_t>(window_.size));
  }

 private:
  layout::WindowHandle const& window_;
  std::uint64_t offset_;
  std::size_t count_;
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
