// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The ranks that run a collective together, as device code sees them: numbers, and addresses in every rank's workspace.
//
// Kernels take a DeviceTeam by value and pass it on by reference: it holds a pointer per rank, and a copy would move
// that table from constant memory to the stack. All offsets are those of layout::WorkspaceLayout.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/device/group.hpp"
#include "mscclpp/device/poll.hpp"
#include "mscclpp/layout/team_handle.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

struct DeviceTeam : layout::TeamHandle {
  DeviceTeam() = default;
  MSCCLPP_HOST_DEVICE DeviceTeam(layout::TeamHandle const& handle) : layout::TeamHandle(handle) {}

  MSCCLPP_DEVICE std::byte* workspace(int ofRank) const { return workspaces[ofRank]; }

  // The rank that many places behind this one; `ranks` is the size, which callers may know when they are compiled.
  MSCCLPP_DEVICE int peerAt(int distance, int ranks) const {
    return rank + distance < ranks ? rank + distance : rank + distance - ranks;
  }

  // This rank's counters, one for each of layout.blocks blocks; see epoch.hpp.
  MSCCLPP_DEVICE layout::RoundCounter* epochs() const {
    return reinterpret_cast<layout::RoundCounter*>(workspaces[rank] + layout.epochs);
  }
  // Where `source` tells block `block` of `ofRank` the last epoch whose phase it has published.
  MSCCLPP_DEVICE std::uint64_t* signal(int ofRank, unsigned phase, unsigned block, int source) const {
    return reinterpret_cast<std::uint64_t*>(workspaces[ofRank] + layout.signals) + signalIndex(phase, block, source);
  }
  // The same of all ranks at once, for multicast accesses.
  MSCCLPP_DEVICE std::uint64_t* multicastSignal(unsigned phase, unsigned block, int source) const {
    return reinterpret_cast<std::uint64_t*>(multicast + layout.signals) + signalIndex(phase, block, source);
  }

 private:
  MSCCLPP_DEVICE unsigned signalIndex(unsigned phase, unsigned block, int source) const {
    return (phase * layout.blocks + block) * layout.ranks + static_cast<unsigned>(source);
  }
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
