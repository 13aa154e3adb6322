// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Types and numbers of the CUDA driver as cuda.h has them, for what opens the driver at run time; builds with the
// toolkit compare them.
#pragma once

#ifdef MSCCLPP_HAS_CUDA
#include <cuda.h>
#endif

#include <cstddef>

namespace mscclpp::cu {

using Result = int;
using DeviceNumber = int;
using DeviceAddress = unsigned long long;
using MemoryHandle = unsigned long long;

struct Location {
  int type;
  int id;
};
struct Access {
  Location location;
  int flags;
};
struct AllocationProperties {
  int type;
  int handleTypes;
  Location location;
  void* windows;
  unsigned char flags[8];
};

inline constexpr Result success = 0;
inline constexpr int pinned = 1;
inline constexpr int onDevice = 1;
inline constexpr int readWrite = 3;
inline constexpr int descriptorHandle = 1;
inline constexpr int minimumGranularity = 0;  // of allocations and of multicast objects

#ifdef MSCCLPP_HAS_CUDA
static_assert(sizeof(Result) == sizeof(CUresult) && sizeof(DeviceNumber) == sizeof(CUdevice) &&
              sizeof(DeviceAddress) == sizeof(CUdeviceptr) &&
              sizeof(MemoryHandle) == sizeof(CUmemGenericAllocationHandle));
static_assert(sizeof(Location) == sizeof(CUmemLocation) && sizeof(Access) == sizeof(CUmemAccessDesc) &&
              offsetof(Access, flags) == offsetof(CUmemAccessDesc, flags));
static_assert(sizeof(AllocationProperties) == sizeof(CUmemAllocationProp) &&
              offsetof(AllocationProperties, handleTypes) == offsetof(CUmemAllocationProp, requestedHandleTypes) &&
              offsetof(AllocationProperties, location) == offsetof(CUmemAllocationProp, location));
static_assert(success == CUDA_SUCCESS && pinned == CU_MEM_ALLOCATION_TYPE_PINNED &&
              onDevice == CU_MEM_LOCATION_TYPE_DEVICE && readWrite == CU_MEM_ACCESS_FLAGS_PROT_READWRITE &&
              descriptorHandle == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
              minimumGranularity == CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
              minimumGranularity == CU_MULTICAST_GRANULARITY_MINIMUM);
#endif

}  // namespace mscclpp::cu
