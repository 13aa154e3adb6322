// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A barrier of some blocks of one device, in two words of its memory that are zero at first.
//
// Orders memory: what any thread of the blocks wrote before it, every one of them sees after it. The blocks must be on
// the device together; the same number of them comes each time. Cost: one atomic per block and a poll.
#pragma once

#include <cstdint>

#include "mscclpp/device/group.hpp"
#include "mscclpp/device/memory.hpp"
#include "mscclpp/device/poll.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

struct DeviceSyncer {
  std::uint32_t arrivals;
  std::uint32_t generation;

  // Called by all threads of `blocks` blocks.
  MSCCLPP_DEVICE void sync(int blocks, layout::Watch* watch = nullptr) {
    meet(thisBlock(), static_cast<unsigned>(blocks), watch);
  }

  // The same for groups of threads, one from each block.
  template <SyncGroup G>
  MSCCLPP_DEVICE void meet(G const& group, unsigned groups, layout::Watch* watch) {
    syncWhole(group);
    if (group.rank() == 0) {
      auto const mine = load<Order::relaxed, Scope::device>(&generation);
      if (fetchAdd<Order::acquireRelease, Scope::device>(&arrivals, 1u) + 1 == groups) {
        store<Order::relaxed, Scope::device>(&arrivals, 0u);
        store<Order::release, Scope::device>(&generation, mine + 1);
      } else {
        poll(watch, {layout::WaitKind::gridBarrier, -1, 0, mine + 1}, [&](std::uint64_t& seen) {
          auto const now = load<Order::acquire, Scope::device>(&generation);
          seen = now;
          return now != mine;
        });
      }
    }
    syncWhole(group);
  }
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
