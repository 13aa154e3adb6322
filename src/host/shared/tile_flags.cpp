// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/tile_flags.hpp"

#include <algorithm>
#include <utility>

#include "host/shared/members.hpp"
#include "mscclpp/host/fused/symmetric_arena.hpp"

namespace mscclpp {

TileFlags::TileFlags(Communicator const& communicator, layout::TileFlagsSize const& size, std::vector<int> ranks)
    : TileFlags(communicator, size, std::move(ranks), nullptr) {}
TileFlags::TileFlags(SymmetricArena& arena, layout::TileFlagsSize const& size)
    : TileFlags(arena.communicator(), size, arena.ranks(), &arena) {}

TileFlags::TileFlags(Communicator const& communicator, layout::TileFlagsSize const& size, std::vector<int> ranks,
                     SymmetricArena* arena) {
  auto const& shared = CommunicatorImpl::of(communicator);
  int const self = communicator.rank();
  Members const members("Set of tile flags", *shared, std::move(ranks));
  auto const layout = layout::TileFlagsLayout::make(static_cast<std::uint32_t>(members.size()), size);
  DeviceMemory memory;
  auto const sizes = members.propose([&] {
    if (size.tiles == 0 || size.blocks == 0) {
      fail(ErrorCode::invalidUsage, "rank {}: TileFlags for {} tiles and grids of {} blocks; ask for at least 1 each",
           self, size.tiles, size.blocks);
    }
    if (arena == nullptr) memory = DeviceMemory(communicator.device(), layout.total, communicator.mappedKind());
    return size;
  });
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == size) continue;
    fail(ErrorCode::invalidUsage,
         "TileFlags: rank {} asks for {} tiles and {} blocks, rank {} for {} and {}; all members must ask for the same",
         self, size.tiles, size.blocks, members.ranks()[i], sizes[i].tiles, sizes[i].blocks);
  }
  window_ = arena != nullptr ? arena->take("tile flags", layout.total)
                             : MemoryWindow(communicator, std::move(memory), members.ranks());

  auto const& window = window_->deviceHandle();
  handle_.rank = window.rank;
  handle_.size = window.size;
  handle_.watch = shared->watch;
  handle_.layout = layout;
  std::copy(std::begin(window.bases), std::end(window.bases), handle_.bases);
  // This also holds everybody until all know whose kernels to lead astray.
  members.together([&] {
    std::vector<layout::RoundCounters> counters;
    for (int i = 0; i < handle_.size; ++i) {
      auto* const epochs = handle_.bases[i] + layout::TileFlagsLayout::epochs;
      counters.push_back({reinterpret_cast<layout::RoundCounter*>(epochs), layout.blocks, static_cast<unsigned>(i)});
    }
    guard_ = communicator.leadAstray(counters);
    return std::vector<std::byte>();
  });
}

}  // namespace mscclpp
