// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Communicators: made, asked, split, ended; memory; errors.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "mscclpp/host/bootstrap/local_bootstrap.hpp"
#include "mscclpp/host/bootstrap/tcp_bootstrap.hpp"
#include "nccl/exports.hpp"
#include "nccl/handle.hpp"
#include "nccl/machine.hpp"
#include "nccl/patience.hpp"

namespace mscclpp::nccl {
namespace {

// What a configuration asks for, as far as it is of use here.
struct Wishes {
  bool blocking = true;
};

Wishes wishesOf(ncclConfig_t const* given, Wishes const& inherited = {}) {
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
  return {config.blocking == undefinedInt ? inherited.blocking : config.blocking == 1};
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
  std::array<std::byte, uniqueIdBytes> bytes;
  std::memcpy(bytes.data(), id.internal, sizeof bytes);
  return begin(comm, device, wishes, nullptr, [=] {
    std::shared_ptr<Bootstrap> bootstrap;
    if (ranks == 1) {
      bootstrap = LocalBootstrap::create(1).front();
    } else {
      auto tcp = std::make_shared<TcpBootstrap>(rank, ranks);
      tcp->initialize(UniqueId::fromBytes(bytes), patience("MSCCLPP_TIMEOUT"));
      bootstrap = std::move(tcp);
    }
    return std::make_shared<Comm>(std::move(bootstrap), device, wishes.blocking);
  });
}

ncclUniqueId freshId() {
  ncclUniqueId id{};
  auto const bytes = TcpBootstrap::createUniqueId().toBytes();
  static_assert(sizeof bytes == sizeof id.internal);
  std::memcpy(id.internal, bytes.data(), sizeof bytes);
  return id;
}

void requirePlace(void const* place) {
  if (place == nullptr) refuse(ncclInvalidArgument, "no place for the answer");
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
    return enqueueJob(&handle, one->blocking(), [one] { one->finalize(); });
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
    auto const wishes = wishesOf(config, {parent->blocking()});
    if (color < 0 && color != noColor)
      refuse(ncclInvalidArgument, "colour {}; give 0 or more, or NCCL_SPLIT_NOCOLOR", color);
    if (color == noColor) return enqueueJob(&handle, wishes.blocking, [=] { (void)parent->split(color, key, true); });
    return begin(made, handle.device(), wishes, &handle, [=] { return parent->split(color, key, wishes.blocking); });
  });
}

ncclResult_t pncclCommShrink(ncclComm_t comm, int* excluded, int count, ncclComm_t* made, ncclConfig_t* config,
                             int flags) {
  return grouped("ncclCommShrink", [&] {
    requirePlace(made);
    *made = nullptr;
    auto& handle = Handle::of(comm);
    auto const parent = handle.comm();
    auto const wishes = wishesOf(config, {parent->blocking()});
    if (excluded == nullptr || count < 1 || count >= parent->size()) {
      refuse(ncclInvalidArgument, "{} of {} ranks to be excluded", count, parent->size());
    }
    if ((flags & shrinkAborts) != 0) parent->abort();
    std::vector<int> const out(excluded, excluded + count);
    return begin(made, handle.device(), wishes, &handle, [=] { return parent->shrink(out, wishes.blocking); });
  });
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
