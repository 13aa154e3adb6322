// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is remembered of the accesses to each 8 bytes of simulated memory.
//
// Found by address in a few nanoseconds. Memory is taken a page (4 KiB of the program's, 32 KiB of ours) at a time when
// first accessed, and bounded: beyond the limit the pages touched first forget their plain accesses.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "sim/checker/agent.hpp"
#include "sim/memory/clock.hpp"

namespace mscclpp::sim {

// One remembered access.
struct Slot {
  std::uint64_t who = 0;    // thread 20 bits, epoch 28, bytes of the granule 8, traits 8
  std::uint64_t where = 0;  // code address 48 bits, node of the call tree 16

  static constexpr unsigned threadBits = 20;
  static constexpr unsigned epochBits = 28;
  static Slot of(ThreadId thread, Epoch epoch, unsigned mask, unsigned traits, std::uint64_t where) {
    return {thread | std::uint64_t{epoch & ((1u << epochBits) - 1)} << threadBits | std::uint64_t{mask} << 48 |
                std::uint64_t{traits} << 56,
            where};
  }
  ThreadId thread() const { return static_cast<ThreadId>(who & ((1u << threadBits) - 1)); }
  Epoch epoch() const { return static_cast<Epoch>(who >> threadBits & ((1u << epochBits) - 1)); }
  unsigned mask() const { return static_cast<unsigned>(who >> 48 & 0xff); }
  unsigned traits() const { return static_cast<unsigned>(who >> 56); }
};

// Accesses of several threads of one chunk that differ in nothing else: what a block does together.
struct Crowd {
  Slot slot;                // of any of them
  std::uint64_t lanes = 0;  // bit i: the chunk's thread i is one of them

  static constexpr std::uint64_t laneBits = threadsPerChunk - 1;
  static std::uint64_t laneOf(Slot slot) { return std::uint64_t{1} << (slot.who & laneBits); }
  std::uint32_t chunk() const { return slot.thread() / threadsPerChunk; }
  bool fits(Slot other) const { return ((slot.who ^ other.who) & ~laneBits) == 0; }
  bool holds(Slot other) const { return fits(other) && (lanes & laneOf(other)) != 0; }
  // The access of one lane.
  Slot of(unsigned lane) const { return {(slot.who & ~laneBits) | lane, slot.where}; }
};
static_assert(threadsPerChunk == 64);

namespace trait {
inline constexpr unsigned write = 1;
inline constexpr unsigned strong = 2;      // ordered or relaxed, not plain
inline constexpr unsigned scopeShift = 2;  // two bits, for strong ones
inline constexpr unsigned freed = 16;      // the memory was released
inline constexpr unsigned bulk = 32;       // by a bulk copy, past the generic proxy
inline constexpr unsigned multicast = 64;  // by a multicast address, another one than the memory's own

inline unsigned ofOrdered(bool writes, Scope scope) {
  return (writes ? write : 0u) | strong | scopeIndex(scope) << scopeShift;
}
inline Scope scopeOf(unsigned traits) {
  return static_cast<Scope>((traits >> scopeShift & 3u) + static_cast<unsigned>(Scope::block));
}
}  // namespace trait

struct Cell {
  static constexpr unsigned inlineSlots = 3;
  std::array<Slot, inlineSlots> slots;
  std::uint32_t overflow = 0;  // number of the list with all others; 0: none
  std::uint32_t count = 0;     // of inline slots in use
  std::uint32_t words = 0;     // number of the history of its ordered accesses; 0: none
  std::uint32_t unused = 0;
};
static_assert(sizeof(Cell) == 64);

class Shadow {
 public:
  static constexpr std::size_t pageBytes = 4096;
  static constexpr std::size_t granule = 8;
  static constexpr std::size_t maxOverflow = 256;  // crowds of one cell

  // `tracked` tells whether a page holds memory to be followed; 65536 pages are 2 GiB of cells.
  explicit Shadow(std::function<bool(std::uintptr_t page)> tracked, std::size_t maxPages = 65536)
      : tracked_(std::move(tracked)), maxPages_(maxPages) {}

  // The cell of the 8 bytes around `address`; null for memory that is not followed.
  Cell* find(std::uintptr_t address) {
    auto const page = address / pageBytes;
    auto& entry = cache_[page % cache_.size()];
    if (entry.page != page) [[unlikely]]
      look(page);
    return entry.cells == nullptr ? nullptr : entry.cells + address / granule % (pageBytes / granule);
  }

  // Other memory is followed than before.
  void invalidate() { cache_.fill({}); }
  // Calls `act(address, cell)` for each cell of the range that may hold something.
  void forEach(std::uintptr_t address, std::size_t bytes, std::function<void(std::uintptr_t, Cell&)> const& act);
  void forEach(std::function<void(std::uintptr_t, Cell&)> const& act);
  void forget(std::uintptr_t address, std::size_t bytes);  // whole pages
  void clear();

  std::vector<Crowd>& overflow(Cell& cell);
  bool hasOverflow(Cell const& cell) const { return cell.overflow != 0; }

  std::uint64_t forgotten() const { return forgotten_; }
  void noteForgotten(std::uint64_t slots) { forgotten_ += slots; }

 private:
  static constexpr std::size_t cells = pageBytes / granule;
  using Page = std::array<Cell, cells>;
  struct Entry {
    std::uintptr_t page = 0;  // 0 is no page of anybody's
    Cell* cells = nullptr;
  };

  void look(std::uintptr_t page);
  Cell* cellsOf(std::uintptr_t page);
  void recycle(std::unique_ptr<Page> page);
  void evictOne();

  std::function<bool(std::uintptr_t)> tracked_;
  std::size_t maxPages_;
  std::array<Entry, 4096> cache_{};
  std::unordered_map<std::uintptr_t, std::unique_ptr<Page>> pages_;
  std::deque<std::uintptr_t> age_;  // pages in the order of their first access
  std::vector<std::unique_ptr<Page>> free_;
  std::vector<std::vector<Crowd>> overflow_{1};
  std::vector<std::uint32_t> freeOverflow_;
  std::uint64_t forgotten_ = 0;
};

}  // namespace mscclpp::sim
