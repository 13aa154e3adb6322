// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// NVLink between hosts, by NVIDIA's management library and the driver's functions, which are looked up when first
// needed: neither toolkit nor GPU is needed to build or test this. A fabric manager makes cliques of GPUs; the service
// nvidia-imex lets processes hand memory to other hosts of theirs, by handles that it admits each process to through a
// channel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/fabric_memory.hpp"

namespace mscclpp {

// CU_MEM_HANDLE_TYPE_FABRIC, which toolkits before CUDA 12.3 do not have.
inline constexpr int fabricHandleType = 8;
// The folder of the device files that admit a process to fabric handles.
inline constexpr char const* fabricChannels = "/dev/nvidia-caps-imex-channels";

// What the management library says of a GPU.
struct FabricState {
  enum class Registration : std::uint8_t { unsupported, notStarted, inProgress, completed, unknown };

  Registration registration = Registration::unknown;  // unknown: nobody says
  int status = 0;                                     // of one that is completed; not 0: NVML's error
  FabricClique clique{};                              // as it is told, whatever the rest
};
FabricState askFabricState(std::string const& busId);
// Why memory does not go to other hosts, as far as these tell; empty: it may.
std::string whyNoFabric(FabricState const& state, bool handles);

// Whether the driver says that the device has fabric handles.
bool driverHasFabricHandles(int device);
// The clique of the CUDA device, where all of the above is well and a small allocation gets a fabric handle; else none,
// and why.
FabricClique driverCliqueOf(int device, std::string const& busId, std::string& why);
// By cuMemExportToShareableHandle; nothing where the allocation has none.
std::optional<FabricHandle> driverExportFabric(void* base);
// The memory's CUmemGenericAllocationHandle, which the caller releases. Throws deviceError with what to do.
unsigned long long driverImportFabric(FabricHandle const& handle, int device, std::size_t bytes);

}  // namespace mscclpp
