// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "sim/memory/multicasts.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <iterator>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include "mscclpp/host/error.hpp"

namespace mscclpp::sim {

std::byte* Multicasts::map(Window window) {
  void* const base = ::mmap(nullptr, window.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    throwSystemError(fmt::format("cannot reserve {} bytes of multicast addresses for simulated device {}", window.bytes,
                                 window.device),
                     errno);
  }
  std::unique_lock const lock(mutex_);
  windows_.emplace(reinterpret_cast<std::uintptr_t>(base), std::make_shared<Window const>(std::move(window)));
  return static_cast<std::byte*>(base);
}

void Multicasts::unmap(std::byte* base) noexcept {
  std::unique_lock const lock(mutex_);
  auto const it = windows_.find(reinterpret_cast<std::uintptr_t>(base));
  if (it == windows_.end()) return;
  ::munmap(base, it->second->bytes);
  windows_.erase(it);
}

Multicasts::Place Multicasts::find(std::uintptr_t address) const {
  std::shared_lock const lock(mutex_);
  auto it = windows_.upper_bound(address);
  if (it == windows_.begin()) return {};
  --it;
  auto const at = address - it->first;
  if (at >= it->second->bytes) return {};
  for (auto const& part : it->second->replicas) {
    if (at >= part.offset && at - part.offset < part.bytes) return {it->second, &part, at - part.offset};
  }
  return {it->second, nullptr, at};
}

}  // namespace mscclpp::sim
