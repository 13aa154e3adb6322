// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One window cut into parts, which lie at the same offsets on all its ranks: tiles, workspaces, flags and experts of a
// fused kernel, or of a whole engine, in one allocation and one mapping.
//
//   SymmetricArena arena(communicator, bytes);                       // or over a tensor: (communicator, data, bytes)
//   auto const slots = arena.take<bf16>("slots", count);             // a MemoryWindow
//   TileFlags const flags(arena, {.tiles = grid.count(), .blocks = 264});
//   launch(stream, shape, Kernel{}, ..., slots.deviceHandle(), flags.deviceHandle());
//
// Taking a part is collective over the arena's ranks, which must all take the same parts in the same order. It is zero
// then, aligned, and taken for good: memory comes back only with the arena and its last part, whichever ends later.
// Costs one exchange of messages on the host and clearing the part; in kernels a part is a window like any other.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "mscclpp/base/bits.hpp"
#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/memory_window.hpp"

namespace mscclpp {

class SymmetricArena {
 public:
  static constexpr std::size_t line = 128;  // bytes; parts begin at multiples of it or of more

  // In memory of its own, for `ranks` as in a MemoryWindow. `use` is not for proxies, which reach no part. The
  // communicator outlives the arena.
  SymmetricArena(Communicator const& communicator, std::size_t bytes, std::vector<int> ranks = {},
                 WindowUse use = WindowUse::threads);
  // In memory of somebody else, who keeps it for as long as the arena and its parts. Its content is lost as parts are
  // taken.
  SymmetricArena(Communicator const& communicator, void* memory, std::size_t bytes, std::vector<int> ranks = {},
                 WindowUse use = WindowUse::threads);

  // The next `bytes` whose address is a multiple of `alignment`, a power of two, on every rank. `name`, of 1 to 47
  // characters, is what errors call them. Throws on every member, and takes nothing, where members do not take the
  // same, where too little is free, or where some rank's memory does not begin at such a multiple.
  MemoryWindow take(std::string const& name, std::size_t bytes, std::size_t alignment = line);
  template <class T>
  MemoryWindow take(std::string const& name, std::size_t count) {
    return take(name, rangeEnd(0, count, sizeof(T)), std::max(line, alignof(T)));
  }
  // What parts of these sizes take together.
  static constexpr std::size_t room(std::initializer_list<std::size_t> parts) {
    std::size_t total = 0;
    for (auto const bytes : parts) total += roundUp(bytes, line);
    return total;
  }

  // used() counts the bytes of parts and what lies unused ahead of them for their alignment, of size() in all.
  MemoryWindow const& window() const noexcept { return *window_; }
  std::size_t size() const noexcept { return window_->size(); }
  std::size_t used() const noexcept { return used_; }
  Communicator const& communicator() const noexcept { return communicator_; }
  std::vector<int> const& ranks() const noexcept { return ranks_; }

 private:
  // `memory` empty: of its own.
  SymmetricArena(Communicator const& communicator, std::optional<void*> memory, std::size_t bytes,
                 std::vector<int> ranks, WindowUse use);

  Communicator const& communicator_;
  std::optional<MemoryWindow> window_;
  std::vector<int> ranks_;
  std::uint64_t number_ = 0;  // the same on all its ranks, and of no other arena of theirs
  std::size_t used_ = 0;
};

}  // namespace mscclpp
