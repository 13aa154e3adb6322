// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Memory that devices of other hosts can map, where NVLink goes from host to host. A machine that can have it is one of
// these beside a Runtime.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "mscclpp/host/device.hpp"
#include "mscclpp/host/env.hpp"
#include "mscclpp/host/runtime.hpp"

namespace mscclpp {

// The devices, of any hosts, that the fabric joins: equal for two that can map each other's memory. All zero: none.
struct FabricClique {
  std::array<std::uint8_t, 16> cluster{};
  std::uint32_t clique = 0;

  explicit operator bool() const { return cluster != decltype(cluster){} && clique != 0; }
  bool operator==(FabricClique const&) const = default;
};

// An allocation as any process of the clique can map it, for as long as its owner keeps it.
using FabricHandle = std::array<std::byte, 64>;

class FabricMemory {
 public:
  virtual ~FabricMemory() = default;
  // Asked of the device, never assumed.
  virtual FabricClique cliqueOf(int device) const = 0;
  // Nothing where the allocation was not made for that; on a GPU only MemoryKind::shareable is.
  virtual std::optional<FabricHandle> exportFabric(Allocation const& allocation) = 0;
  // Runtime::releaseImport() ends it.
  virtual void* importFabric(int device, FabricHandle const& handle, std::size_t bytes) = 0;
};

// That of the device's machine; null where it has no such memory.
inline FabricMemory* fabricMemoryOf(Device device) { return dynamic_cast<FabricMemory*>(&device.runtime()); }
// The clique of the device; none where MSCCLPP_FABRIC=0.
inline FabricClique fabricCliqueOf(Device device) {
  auto const* const memory = environment().fabric ? fabricMemoryOf(device) : nullptr;
  return memory == nullptr ? FabricClique{} : memory->cliqueOf(device.ordinal);
}

}  // namespace mscclpp
