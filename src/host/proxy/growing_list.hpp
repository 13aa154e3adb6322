// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A list that other threads read, without a lock, while one at a time adds to it. Elements stay where they are as long
// as the list lives, and are seen whole.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>

namespace mscclpp {

template <class T, std::size_t Most>
class GrowingList {
 public:
  static constexpr std::size_t most = Most;

  std::size_t size() const noexcept { return size_.load(std::memory_order_acquire); }
  T& operator[](std::size_t i) const noexcept { return *items_[i]; }
  // Those that are there now.
  std::span<std::unique_ptr<T> const> all() const noexcept { return std::span(items_).first(size()); }

  // There must be room.
  template <class... Args>
  T& add(Args&&... args) {
    auto const at = size_.load(std::memory_order_relaxed);
    items_[at] = std::make_unique<T>(std::forward<Args>(args)...);
    size_.store(at + 1, std::memory_order_release);
    return *items_[at];
  }

 private:
  std::array<std::unique_ptr<T>, Most> items_;
  std::atomic<std::size_t> size_{0};
};

}  // namespace mscclpp
