// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// NCCL's binary interface, as programs built against its headers 2.28 to 2.30 call it: names, numbers and the layout of
// what is passed. Streams are cudaStream_t, or the simulated machine's.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>

extern "C" {

struct ncclComm;
using ncclComm_t = ncclComm*;
struct ncclWindow_vidmem;
using ncclWindow_t = ncclWindow_vidmem*;
using ncclStream = void*;

struct ncclUniqueId {
  char internal[128];
};

enum ncclResult_t : int {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
};

enum ncclDataType_t : int {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9,
  ncclFloat8e4m3 = 10,
  ncclFloat8e5m2 = 11,
  ncclNumTypes = 12,
};

// Larger ones are a communicator's own (ncclRedOpCreatePreMulSum).
enum ncclRedOp_t : int {
  ncclSum = 0,
  ncclProd = 1,
  ncclMax = 2,
  ncclMin = 3,
  ncclAvg = 4,
  ncclNumOps = 5,
};

enum ncclScalarResidence_t : int { ncclScalarDevice = 0, ncclScalarHostImmediate = 1 };

// The part that every version has that this library reads; callers give more, or less, and say how much.
struct ncclConfig_t {
  std::size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
  int cgaClusterSize;
  int minCTAs;
  int maxCTAs;
};

// Of ncclCommQueryProperties, likewise; in 2.29.
struct ncclCommProperties_t {
  std::size_t size;
  unsigned magic;
  unsigned version;
  int rank;
  int nRanks;
  int cudaDev;
  int nvmlDev;
  bool deviceApiSupport;
  bool multimemSupport;
  int ginType;
  int nLsaTeams;
  bool hostRmaSupport;
  int railedGinType;
};

enum ncclCommMemStat_t : int {
  ncclStatGpuMemSuspend = 0,
  ncclStatGpuMemSuspended = 1,
  ncclStatGpuMemPersist = 2,
  ncclStatGpuMemTotal = 3,
};

struct ncclWaitSignalDesc_t {
  int opCnt;
  int peer;
  int sigIdx;
  int ctx;
};

struct ncclSimInfo_t {
  std::size_t size;
  unsigned magic;
  unsigned version;
  float estimatedTime;  // microseconds
};

struct ncclTeam_t {
  int nRanks;
  int rank;
  int stride;
};
}

namespace mscclpp::nccl {

inline constexpr int version = 22809;  // what callers take features for granted from
inline constexpr unsigned configMagic = 0xcafebeef;
inline constexpr unsigned simInfoMagic = 0x74685283;
inline constexpr int undefinedInt = INT_MIN;
inline constexpr int noColor = -1;
inline constexpr int shrinkAborts = 1;
inline constexpr int windowSymmetric = 1;
inline constexpr int suspendsMemory = 1;

}  // namespace mscclpp::nccl
