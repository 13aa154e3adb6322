// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Communicators: made, asked, split, ended; memory; errors.
#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "mscclpp/host/env.hpp"
#include "nccl/exports/exports.hpp"
#include "nccl/handle.hpp"
#include "nccl/ids.hpp"
#include "nccl/machine.hpp"

namespace mscclpp::nccl {
namespace {

// NCCL_MAX_CTAS, which goes before configurations; 0 where it is not set.
std::uint32_t blocksOfEnvironment() {
  auto const text = processVariable("NCCL_MAX_CTAS");
  if (!text) return 0;
  std::uint32_t blocks = 0;
  auto const [end, error] = std::from_chars(text->data(), text->data() + text->size(), blocks);
  if (error != std::errc() || end != text->data() + text->size() || blocks == 0) {
    refuse(ncclInvalidArgument, "NCCL_MAX_CTAS={}; it is a number of blocks from 1 on", *text);
  }
  return blocks;
}

// What a configuration asks for, as far as it is of use here.
Wishes wishesOf(ncclConfig_t const* given, Wishes inherited = {}) {
  auto const ofEnvironment = blocksOfEnvironment();
  if (ofEnvironment != 0) inherited.maxBlocks = ofEnvironment;
  if (given == nullptr) return inherited;
  ncclConfig_t config{.size = 0,
                      .magic = 0,
                      .version = 0,
                      .blocking = undefinedInt,
                      .cgaClusterSize = undefinedInt,
                      .minCTAs = undefinedInt,
                      .maxCTAs = undefinedInt};
  if (given->size < offsetof(ncclConfig_t, blocking)) {
    refuse(ncclInvalidArgument, "a configuration of {} bytes; begin with NCCL_CONFIG_INITIALIZER", given->size);
  }
  std::memcpy(&config, given, std::min(sizeof config, given->size));
  if (config.magic != configMagic) {
    refuse(ncclInvalidArgument, "a configuration that was not begun with NCCL_CONFIG_INITIALIZER (magic {:#x})",
           config.magic);
  }
  if (config.blocking != undefinedInt && config.blocking != 0 && config.blocking != 1) {
    refuse(ncclInvalidArgument, "a configuration with blocking {}; it is 0 or 1", config.blocking);
  }
  for (int const blocks : {config.minCTAs, config.maxCTAs}) {
    if (blocks != undefinedInt && blocks <= 0) refuse(ncclInvalidArgument, "a configuration of {} CTAs", blocks);
  }
  if (config.minCTAs != undefinedInt && config.maxCTAs != undefinedInt && config.minCTAs > config.maxCTAs) {
    refuse(ncclInvalidArgument, "a configuration of at least {} and at most {} CTAs", config.minCTAs, config.maxCTAs);
  }
  if (config.blocking != undefinedInt) inherited.blocking = config.blocking == 1;
  if (config.maxCTAs != undefinedInt && ofEnvironment == 0) {
    inherited.maxBlocks = static_cast<std::uint32_t>(config.maxCTAs);
  }
  return inherited;
}

// Sets *comm at once, and has `make` run, which waits for other ranks.
template <class Make>
ncclResult_t begin(ncclComm_t* comm, Device device, Wishes const& wishes, Handle const* parent, Make make) {
  auto* const handle = new Handle(device);  // never freed, see there
  *comm = handle->name();
  return enqueueJob(parent == nullptr ? handle : parent, wishes.blocking, [=, make = std::move(make)] {
    try {
      handle->made(make());
    } catch (...) {
      auto const code = noteException("a communicator could not be made");
      handle->failed(code, lastError());
      if (!wishes.blocking) return;  // ncclCommGetAsyncError tells
      *comm = nullptr;
      throw;
    }
  });
}

ncclResult_t initRank(ncclComm_t* comm, int ranks, ncclUniqueId const& id, int rank, ncclConfig_t const* config,
                      Device device) {
  if (comm == nullptr) refuse(ncclInvalidArgument, "no place for the communicator");
  *comm = nullptr;
  if (ranks < 1 || rank < 0 || rank >= ranks) {
    refuse(ncclInvalidArgument, "rank {} of {} ranks", rank, ranks);
  }
  (void)device.properties();
  auto const wishes = wishesOf(config);
  return begin(comm, device, wishes, nullptr,
               [=] { return std::make_shared<Comm>(meetBy(id, rank, ranks), device, wishes); });
}

void requirePlace(void const* place) {
  if (place == nullptr) refuse(ncclInvalidArgument, "no place for the answer");
}

// Of a rank's memory in a window, as kernels of this process's rank may use it.
ncclResult_t addressIn(char const* function, ncclWindow_t window, std::size_t offset, int peer, void** place) noexcept {
  return guarded(function, [&] {
    requirePlace(place);
    auto const memory = windowMemory(window);
    if (peer < 0 || peer >= memory->ranks()) {
      refuse(ncclInvalidArgument, "peer {}; there are ranks 0 to {}", peer, memory->ranks() - 1);
    }
    if (offset >= memory->bytes()) {
      refuse(ncclInvalidArgument, "byte {} of a window of {}", offset, memory->bytes());
    }
    *place = memory->of(peer) + offset;
    return ncclSuccess;
  });
}

}  // namespace
}  // namespace mscclpp::nccl

using namespace mscclpp;
using namespace mscclpp::nccl;

extern "C" {

ncclResult_t pncclGetVersion(int* version) {
  return guarded("ncclGetVersion", [&] {
    requirePlace(version);
    *version = nccl::version;
    return ncclSuccess;
  });
}

ncclResult_t pncclGetUniqueId(ncclUniqueId* id) {
  return guarded("ncclGetUniqueId", [&] {
    requirePlace(id);
    *id = freshId();
    return ncclSuccess;
  });
}

ncclResult_t pncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  return grouped("ncclCommInitRankConfig", [&] { return initRank(comm, ranks, id, rank, config, currentDevice()); });
}

ncclResult_t pncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  return grouped("ncclCommInitRank", [&] { return initRank(comm, ranks, id, rank, nullptr, currentDevice()); });
}

ncclResult_t pncclCommInitRankScalable(ncclComm_t* comm, int ranks, int rank, int ids, ncclUniqueId* id,
                                       ncclConfig_t* config) {
  return grouped("ncclCommInitRankScalable", [&] {
    requirePlace(id);
    if (ids < 1 || ids > ranks) refuse(ncclInvalidArgument, "{} ids for {} ranks", ids, ranks);
    return initRank(comm, ranks, id[0], rank, config, currentDevice());
  });
}

ncclResult_t pncclCommInitAll(ncclComm_t* comms, int count, int const* devices) {
  return grouped("ncclCommInitAll", [&] {
    requirePlace(comms);
    if (count < 1) refuse(ncclInvalidArgument, "{} devices", count);
    auto const id = freshId();
    groupStart();
    for (int rank = 0; rank < count; ++rank) {
      (void)grouped("ncclCommInitAll", [&] {
        return initRank(&comms[rank], count, id, rank, nullptr, {machine, devices == nullptr ? rank : devices[rank]});
      });
    }
    return groupEnd();
  });
}

ncclResult_t pncclCommFinalize(ncclComm_t comm) {
  return grouped("ncclCommFinalize", [&] {
    auto& handle = Handle::of(comm);
    auto const one = handle.comm();
    return enqueueJob(&handle, one->wishes().blocking, [one] { one->finalize(); });
  });
}

ncclResult_t pncclCommDestroy(ncclComm_t comm) {
  return grouped("ncclCommDestroy", [&] {
    if (comm != nullptr) retire(Handle::of(comm).take(), true);
    return ncclSuccess;
  });
}

ncclResult_t pncclCommAbort(ncclComm_t comm) {
  return guarded("ncclCommAbort", [&] {
    if (comm == nullptr) return ncclSuccess;
    if (auto one = Handle::of(comm).take()) {
      one->abort();
      retire(std::move(one), false);
    }
    return ncclSuccess;
  });
}

ncclResult_t pncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t* config) {
  return grouped("ncclCommSplit", [&] {
    requirePlace(made);
    *made = nullptr;
    auto& handle = Handle::of(comm);
    auto const parent = handle.comm();
    auto const wishes = wishesOf(config, parent->wishes());
    if (color < 0 && color != noColor)
      refuse(ncclInvalidArgument, "colour {}; give 0 or more, or NCCL_SPLIT_NOCOLOR", color);
    if (color == noColor) return enqueueJob(&handle, wishes.blocking, [=] { (void)parent->split(color, key, {}); });
    return begin(made, handle.device(), wishes, &handle, [=] { return parent->split(color, key, wishes); });
  });
}

ncclResult_t pncclCommShrink(ncclComm_t comm, int* excluded, int count, ncclComm_t* made, ncclConfig_t* config,
                             int flags) {
  return grouped("ncclCommShrink", [&] {
    requirePlace(made);
    *made = nullptr;
    auto& handle = Handle::of(comm);
    auto const parent = handle.comm();
    auto const wishes = wishesOf(config, parent->wishes());
    if (excluded == nullptr || count < 1 || count >= parent->size()) {
      refuse(ncclInvalidArgument, "{} of {} ranks to be excluded", count, parent->size());
    }
    if ((flags & shrinkAborts) != 0) parent->abort();
    std::vector<int> const out(excluded, excluded + count);
    return begin(made, handle.device(), wishes, &handle, [=] { return parent->shrink(out, wishes); });
  });
}

ncclResult_t pncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId* id) {
  return guarded("ncclCommGetUniqueId", [&] {
    requirePlace(id);
    *id = Handle::of(comm).comm()->makeGrowthId();
    return ncclSuccess;
  });
}

// With a communicator: its rank stays what it is. Without: a new one, which knows the id.
ncclResult_t pncclCommGrow(ncclComm_t comm, int ranks, ncclUniqueId const* id, int rank, ncclComm_t* made,
                           ncclConfig_t* config) {
  return grouped("ncclCommGrow", [&] {
    requirePlace(made);
    *made = nullptr;
    if (comm == nullptr) {
      if (id == nullptr) refuse(ncclInvalidArgument, "a new rank without the id of ncclCommGetUniqueId");
      return initRank(made, ranks, *id, rank, config, currentDevice());
    }
    auto& handle = Handle::of(comm);
    auto const parent = handle.comm();
    auto const wishes = wishesOf(config, parent->wishes());
    if (rank != -1) {
      refuse(ncclInvalidArgument, "rank {}: it grows with its communicator, so its rank is to be -1, not {}",
             parent->rank(), rank);
    }
    if (ranks <= parent->size()) {
      refuse(ncclInvalidArgument, "rank {}: to grow from {} ranks to {}", parent->rank(), parent->size(), ranks);
    }
    auto const given = id == nullptr ? std::nullopt : std::optional(*id);
    return begin(made, handle.device(), wishes, &handle, [=, device = handle.device()] {
      auto const agreed = parent->agreeToGrow(ranks, given ? &*given : nullptr);
      return std::make_shared<Comm>(meetBy(agreed, parent->rank(), ranks), device, wishes);
    });
  });
}

ncclResult_t pncclCommRevoke(ncclComm_t comm, int flags) {
  return guarded("ncclCommRevoke", [&] {
    auto const one = Handle::of(comm).comm();
    if (flags != 0) refuse(ncclInvalidArgument, "rank {}: flags {:#x}; there are none yet, give 0", one->rank(), flags);
    one->revoke();
    return ncclSuccess;
  });
}

ncclResult_t pncclCommSuspend(ncclComm_t comm, int flags) {
  return grouped("ncclCommSuspend", [&] {
    auto& handle = Handle::of(comm);
    auto const one = handle.comm();
    if (flags != suspendsMemory) {
      refuse(ncclInvalidArgument, "rank {}: flags {:#x}; what can be suspended is memory, {:#x}", one->rank(), flags,
             suspendsMemory);
    }
    return enqueueJob(&handle, true, [one] { one->suspend(); });
  });
}

ncclResult_t pncclCommResume(ncclComm_t comm) {
  return grouped("ncclCommResume", [&] {
    auto& handle = Handle::of(comm);
    return enqueueJob(&handle, true, [one = handle.comm()] { one->resume(); });
  });
}

ncclResult_t pncclCommMemStats(ncclComm_t comm, int which, std::uint64_t* value) {
  return guarded("ncclCommMemStats", [&] {
    requirePlace(value);
    auto const memory = Handle::of(comm).comm()->memory();
    switch (which) {
      case ncclStatGpuMemSuspend:
        *value = memory.suspendable;
        break;
      case ncclStatGpuMemSuspended:
        *value = memory.suspended ? 1 : 0;
        break;
      case ncclStatGpuMemPersist:
        *value = memory.rest;
        break;
      case ncclStatGpuMemTotal:
        *value = memory.rest + (memory.suspended ? 0 : memory.suspendable);
        break;
      default:
        refuse(ncclInvalidArgument, "statistic {}; there are 0 to {}", which, int{ncclStatGpuMemTotal});
    }
    return ncclSuccess;
  });
}

ncclResult_t pncclCommQueryProperties(ncclComm_t comm, ncclCommProperties_t* properties) {
  return guarded("ncclCommQueryProperties", [&] {
    requirePlace(properties);
    auto& handle = Handle::of(comm);
    auto const one = handle.comm();
    if (properties->size < offsetof(ncclCommProperties_t, rank) || properties->magic != configMagic) {
      refuse(ncclInvalidUsage, "properties that were not begun with NCCL_COMM_PROPERTIES_INITIALIZER (magic {:#x})",
             properties->magic);
    }
    auto found = *properties;
    found.rank = one->rank();
    found.nRanks = one->size();
    found.cudaDev = handle.device().ordinal;
    found.nvmlDev = -1;  // NVML is not asked
    found.deviceApiSupport = false;
    found.multimemSupport = false;
    found.ginType = 0;
    found.nLsaTeams = one->size() / one->ranksOfHost();
    found.hostRmaSupport = one->hasOneSided();
    found.railedGinType = 0;
    // As much as the caller's version knows.
    std::memcpy(properties, &found, std::min(sizeof found, properties->size));
    return ncclSuccess;
  });
}

ncclResult_t pncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t window, void** place) {
  return guarded("ncclWinGetUserPtr", [&] {
    requirePlace(place);
    *place = Handle::of(comm).comm()->baseOf(window);
    return ncclSuccess;
  });
}

ncclResult_t pncclGetPeerDevicePointer(ncclWindow_t window, std::size_t offset, int peer, void** place) {
  return addressIn("ncclGetPeerDevicePointer", window, offset, peer, place);
}

// Of windows there are only those of ranks that all reach each other, so that these numbers are those of the ranks.
ncclResult_t pncclGetLsaDevicePointer(ncclWindow_t window, std::size_t offset, int peer, void** place) {
  return addressIn("ncclGetLsaDevicePointer", window, offset, peer, place);
}

ncclResult_t pncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  return guarded("ncclCommGetAsyncError", [&] {
    requirePlace(error);
    auto& handle = Handle::of(comm);
    *error = handle.making();
    if (*error != ncclSuccess) return ncclSuccess;
    *error = handle.comm()->asyncError();
    if (*error != ncclSuccess) handle.failed(*error, lastError());
    return ncclSuccess;
  });
}

ncclResult_t pncclCommCount(ncclComm_t comm, int* count) {
  return guarded("ncclCommCount", [&] {
    requirePlace(count);
    *count = Handle::of(comm).comm()->size();
    return ncclSuccess;
  });
}

ncclResult_t pncclCommUserRank(ncclComm_t comm, int* rank) {
  return guarded("ncclCommUserRank", [&] {
    requirePlace(rank);
    *rank = Handle::of(comm).comm()->rank();
    return ncclSuccess;
  });
}

ncclResult_t pncclCommCuDevice(ncclComm_t comm, int* device) {
  return guarded("ncclCommCuDevice", [&] {
    requirePlace(device);
    *device = Handle::of(comm).device().ordinal;
    return ncclSuccess;
  });
}

ncclResult_t pncclCommRegister(ncclComm_t comm, void* data, std::size_t bytes, void** handle) {
  return guarded("ncclCommRegister", [&] {
    requirePlace(handle);
    (void)Handle::of(comm).comm();
    if (data == nullptr || bytes == 0) refuse(ncclInvalidArgument, "a registration without memory");
    // Nothing is gained by it here, but callers take null for a failure.
    *handle = data;
    return ncclSuccess;
  });
}

ncclResult_t pncclCommDeregister(ncclComm_t comm, void*) {
  return guarded("ncclCommDeregister", [&] {
    (void)Handle::of(comm).comm();
    return ncclSuccess;
  });
}

ncclResult_t pncclCommWindowRegister(ncclComm_t comm, void* data, std::size_t bytes, ncclWindow_t* window, int flags) {
  return grouped("ncclCommWindowRegister", [&] {
    requirePlace(window);
    *window = nullptr;
    auto& handle = Handle::of(comm);
    auto const one = handle.comm();
    return enqueueJob(&handle, true, [=] {
      *window = static_cast<ncclWindow_t>(one->addWindow(data, bytes, (flags & windowSymmetric) != 0));
    });
  });
}

ncclResult_t pncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  return guarded("ncclCommWindowDeregister", [&] {
    auto const one = Handle::of(comm).comm();
    if (window != nullptr) one->removeWindow(window);
    return ncclSuccess;
  });
}

ncclResult_t pncclMemAlloc(void** place, std::size_t bytes) {
  return guarded("ncclMemAlloc", [&] {
    requirePlace(place);
    *place = nullptr;
    auto const device = currentDevice();
    if (bytes != 0) *place = device.runtime().allocate(device.ordinal, bytes, MemoryKind::shareable);
    return ncclSuccess;
  });
}

ncclResult_t pncclMemFree(void* data) {
  return guarded("ncclMemFree", [&] {
    if (data == nullptr) return ncclSuccess;
    auto& own = runtime(machine);
    if (own.allocationOf(data).base != data) refuse(ncclInvalidArgument, "{} is within an allocation", fmt::ptr(data));
    own.release(data);
    return ncclSuccess;
  });
}

char const* pncclGetErrorString(int result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
      return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

// Of the communicator, where that has failed by itself; else what the thread was told last.
char const* pncclGetLastError(ncclComm_t comm) {
  char const* words = "";
  try {
    if (comm != nullptr) words = Handle::of(comm).words();
  } catch (...) {  // it is none: the caller has been told
  }
  return *words != 0 ? words : lastError();
}
}

MSCCLPP_NCCL_FUNCTION(ncclGetVersion);
MSCCLPP_NCCL_FUNCTION(ncclGetUniqueId);
MSCCLPP_NCCL_FUNCTION(ncclCommInitRankConfig);
MSCCLPP_NCCL_FUNCTION(ncclCommInitRank);
MSCCLPP_NCCL_FUNCTION(ncclCommInitRankScalable);
MSCCLPP_NCCL_FUNCTION(ncclCommInitAll);
MSCCLPP_NCCL_FUNCTION(ncclCommFinalize);
MSCCLPP_NCCL_FUNCTION(ncclCommDestroy);
MSCCLPP_NCCL_FUNCTION(ncclCommAbort);
MSCCLPP_NCCL_FUNCTION(ncclCommSplit);
MSCCLPP_NCCL_FUNCTION(ncclCommShrink);
MSCCLPP_NCCL_FUNCTION(ncclCommGetUniqueId);
MSCCLPP_NCCL_FUNCTION(ncclCommGrow);
MSCCLPP_NCCL_FUNCTION(ncclCommRevoke);
MSCCLPP_NCCL_FUNCTION(ncclCommSuspend);
MSCCLPP_NCCL_FUNCTION(ncclCommResume);
MSCCLPP_NCCL_FUNCTION(ncclCommMemStats);
MSCCLPP_NCCL_FUNCTION(ncclCommQueryProperties);
MSCCLPP_NCCL_FUNCTION(ncclWinGetUserPtr);
MSCCLPP_NCCL_FUNCTION(ncclGetPeerDevicePointer);
MSCCLPP_NCCL_FUNCTION(ncclGetLsaDevicePointer);
MSCCLPP_NCCL_FUNCTION(ncclCommGetAsyncError);
MSCCLPP_NCCL_FUNCTION(ncclCommCount);
MSCCLPP_NCCL_FUNCTION(ncclCommUserRank);
MSCCLPP_NCCL_FUNCTION(ncclCommCuDevice);
MSCCLPP_NCCL_FUNCTION(ncclCommRegister);
MSCCLPP_NCCL_FUNCTION(ncclCommDeregister);
MSCCLPP_NCCL_FUNCTION(ncclCommWindowRegister);
MSCCLPP_NCCL_FUNCTION(ncclCommWindowDeregister);
MSCCLPP_NCCL_FUNCTION(ncclMemAlloc);
MSCCLPP_NCCL_FUNCTION(ncclMemFree);
MSCCLPP_NCCL_FUNCTION(ncclGetErrorString);
MSCCLPP_NCCL_FUNCTION(ncclGetLastError);
