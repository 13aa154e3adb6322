// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "sim/machine/block_memory.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <iterator>

#include "mscclpp/host/error.hpp"

namespace mscclpp::sim {

std::byte* BlockMemory::take() {
  if (free_.empty()) {
    void* const base =
        ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) throwSystemError("cannot map the shared memory of a simulated block", errno);
    free_.push_back(static_cast<std::byte*>(base));
    all_.insert(free_.back());
  }
  auto* const base = free_.back();
  free_.pop_back();
  return base;
}

bool BlockMemory::touches(std::uintptr_t begin, std::uintptr_t end) const {
  auto const it = all_.upper_bound(reinterpret_cast<std::byte*>(end - 1));
  return it != all_.begin() && reinterpret_cast<std::uintptr_t>(*std::prev(it)) + mapped > begin;
}

std::optional<std::size_t> BlockMemory::offsetOf(std::uintptr_t address) const {
  auto const it = all_.upper_bound(reinterpret_cast<std::byte*>(address));
  if (it == all_.begin()) return std::nullopt;
  auto const offset = address - reinterpret_cast<std::uintptr_t>(*std::prev(it));
  return offset < mapped ? std::optional(offset) : std::nullopt;
}

}  // namespace mscclpp::sim
