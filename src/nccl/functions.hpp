// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// NCCL's functions that this library has, for its own programs; others have NVIDIA's header. Enumerations are passed as
// int, since callers may give any value.
#pragma once

#include "nccl/abi.hpp"

extern "C" {

ncclResult_t ncclGetVersion(int* version);
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
char const* ncclGetErrorString(int result);
char const* ncclGetLastError(ncclComm_t comm);

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank);
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config);
ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int ranks, int rank, int ids, ncclUniqueId* id,
                                      ncclConfig_t* config);
ncclResult_t ncclCommInitAll(ncclComm_t* comms, int count, int const* devices);
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t* config);
ncclResult_t ncclCommShrink(ncclComm_t comm, int* excluded, int count, ncclComm_t* made, ncclConfig_t* config,
                            int flags);
ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId* id);
ncclResult_t ncclCommGrow(ncclComm_t comm, int ranks, ncclUniqueId const* id, int rank, ncclComm_t* made,
                          ncclConfig_t* config);
ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags);
ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags);
ncclResult_t ncclCommResume(ncclComm_t comm);
ncclResult_t ncclCommMemStats(ncclComm_t comm, int which, std::uint64_t* value);
ncclResult_t ncclCommQueryProperties(ncclComm_t comm, ncclCommProperties_t* properties);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error);
ncclResult_t ncclCommCount(ncclComm_t comm, int* count);
ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank);
ncclResult_t ncclCommCuDevice(ncclComm_t comm, int* device);

ncclResult_t ncclMemAlloc(void** place, std::size_t bytes);
ncclResult_t ncclMemFree(void* data);
ncclResult_t ncclCommRegister(ncclComm_t comm, void* data, std::size_t bytes, void** handle);
ncclResult_t ncclCommDeregister(ncclComm_t comm, void* handle);
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* data, std::size_t bytes, ncclWindow_t* window, int flags);
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window);

ncclResult_t ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t window, void** place);
ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t window, std::size_t offset, int peer, void** place);
ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t window, std::size_t offset, int peer, void** place);

ncclTeam_t ncclTeamWorld(ncclComm_t comm);
ncclTeam_t ncclTeamLsa(ncclComm_t comm);
ncclTeam_t ncclTeamRail(ncclComm_t comm);
int ncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank);
int ncclTeamRankToLsa(ncclComm_t comm, ncclTeam_t team, int rank);

ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t* info);
ncclResult_t ncclPutSignal(void const* data, std::size_t count, int type, int peer, ncclWindow_t window,
                           std::size_t offset, int signal, int context, unsigned flags, ncclComm_t comm,
                           ncclStream stream);
ncclResult_t ncclSignal(int peer, int signal, int context, unsigned flags, ncclComm_t comm, ncclStream stream);
ncclResult_t ncclWaitSignal(int count, ncclWaitSignalDesc_t* waits, ncclComm_t comm, ncclStream stream);
ncclResult_t ncclRedOpCreatePreMulSum(int* op, void* scalar, int type, int residence, ncclComm_t comm);
ncclResult_t ncclRedOpDestroy(int op, ncclComm_t comm);
ncclResult_t ncclAllReduce(void const* in, void* out, std::size_t count, int type, int op, ncclComm_t comm,
                           ncclStream stream);
ncclResult_t ncclReduce(void const* in, void* out, std::size_t count, int type, int op, int root, ncclComm_t comm,
                        ncclStream stream);
ncclResult_t ncclReduceScatter(void const* in, void* out, std::size_t count, int type, int op, ncclComm_t comm,
                               ncclStream stream);
ncclResult_t ncclAllGather(void const* in, void* out, std::size_t count, int type, ncclComm_t comm, ncclStream stream);
ncclResult_t ncclAlltoAll(void const* in, void* out, std::size_t count, int type, ncclComm_t comm, ncclStream stream);
ncclResult_t ncclBroadcast(void const* in, void* out, std::size_t count, int type, int root, ncclComm_t comm,
                           ncclStream stream);
ncclResult_t ncclBcast(void* data, std::size_t count, int type, int root, ncclComm_t comm, ncclStream stream);
ncclResult_t ncclGather(void const* in, void* out, std::size_t count, int type, int root, ncclComm_t comm,
                        ncclStream stream);
ncclResult_t ncclScatter(void const* in, void* out, std::size_t count, int type, int root, ncclComm_t comm,
                         ncclStream stream);
ncclResult_t ncclSend(void const* data, std::size_t count, int type, int peer, ncclComm_t comm, ncclStream stream);
ncclResult_t ncclRecv(void* data, std::size_t count, int type, int peer, ncclComm_t comm, ncclStream stream);
}
