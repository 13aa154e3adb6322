// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The machine's memory: what is allocated or mapped from other processes, who owns it and who may use it.
//
// Every region is shared memory with an inaccessible page behind it. All functions may be called from any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <shared_mutex>
#include <string>
#include <vector>

#include "mscclpp/host/runtime.hpp"

namespace mscclpp::sim {

inline constexpr int hostMemory = -1;  // in place of a device: usable by all

class Heap {
 public:
  ~Heap();

  void* allocate(int device, std::size_t bytes, std::size_t limit);
  // Of an allocation of this process or an import; nothing for other memory. With `keepMapped` plain accesses that come
  // too late do no harm until unmapReleased(), or until something is released without.
  void release(void* base, bool keepMapped) noexcept;
  void unmapReleased() noexcept;
  void* import(int device, int descriptor, std::size_t bytes);
  int duplicateDescriptor(void const* base) const;
  // The allocation's own, open for as long as it is there.
  int descriptorOf(void const* base) const;

  Allocation allocationOf(void const* pointer) const;
  void enablePeer(int device, Allocation const& allocation);
  // Throws invalidUsage if the range begins in a region and ends outside of it.
  void checkRange(void const* pointer, std::size_t bytes, char const* operation) const;

  struct Window {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
  };
  // The region around `address` if `device` may use it, else an empty one.
  Window windowOf(int device, std::uintptr_t address) const;
  // Why it may not.
  std::string whyNot(int device, std::uintptr_t address, std::size_t bytes) const;
  bool touches(std::uintptr_t begin, std::uintptr_t end) const;  // whether a region has bytes there
  int ownerOf(std::uintptr_t address) const;                     // device, hostMemory, or below for nobody's memory
  std::size_t bytesAt(void const* base) const;                   // of the region that begins there; 0: none
  std::string placeOf(std::uintptr_t address) const;
  // Changes whenever a window may have become invalid.
  std::uint64_t generation() const { return generation_.load(std::memory_order_acquire); }
  bool empty() const { return regions() == 0; }
  std::size_t regions() const;  // allocated or imported

 private:
  struct Region {
    std::byte* base = nullptr;
    std::size_t bytes = 0;
    std::size_t mapped = 0;  // whole pages
    int device = hostMemory;
    int descriptor = -1;  // -1: import
    std::set<int> peers;
    std::uint64_t id = 0;
  };

  Region const* find(std::uintptr_t address) const;
  void* map(int device, int descriptor, std::size_t bytes, bool import);
  static void unmap(Region const& region) noexcept;
  void unmapKept() noexcept;  // under the lock

  mutable std::shared_mutex mutex_;
  std::map<std::uintptr_t, Region> regions_;
  std::vector<Region> released_;  // but still mapped
  std::map<int, std::size_t> used_;
  std::atomic<std::uint64_t> generation_{1};
  std::uint64_t lastId_ = 0;
};

}  // namespace mscclpp::sim
