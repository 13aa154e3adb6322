// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/cuda/fabric_driver.hpp"

#include <dlfcn.h>
#ifdef MSCCLPP_HAS_CUDA
#include <cuda.h>
#endif

#include <algorithm>
#include <type_traits>

#include "base/format.hpp"
#include "host/cuda/driver_types.hpp"

namespace mscclpp {
namespace {

using cu::AllocationProperties;
using cu::MemoryHandle;
using cu::Result;

// As nvml.h has it.
struct GpuFabricInfo {
  unsigned version;
  std::uint8_t cluster[16];
  int status;
  unsigned clique;
  std::uint8_t state;
  unsigned health;
};

constexpr int nvmlSuccess = 0;
constexpr int fabricSupportedAttribute = 128;
constexpr unsigned infoVersion = sizeof(GpuFabricInfo) | 2u << 24;
static_assert(infoVersion == 0x02000024);

#if defined(MSCCLPP_HAS_CUDA) && CUDA_VERSION >= 12040
static_assert(fabricSupportedAttribute == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED &&
              fabricHandleType == CU_MEM_HANDLE_TYPE_FABRIC && sizeof(FabricHandle) == sizeof(CUmemFabricHandle));
#endif

template <class F>
void find(void* library, char const* name, F& function) {
  function = reinterpret_cast<F>(::dlsym(library, name));
}

// The one table of what is used of the driver. Never unloaded.
struct FabricDriver {
  Result (*init)(unsigned) = nullptr;
  Result (*getErrorName)(Result, char const**) = nullptr;
  Result (*deviceGet)(int*, int) = nullptr;
  Result (*deviceGetAttribute)(int*, int, int) = nullptr;
  Result (*memGetGranularity)(std::size_t*, AllocationProperties const*, int) = nullptr;
  Result (*memCreate)(MemoryHandle*, std::size_t, AllocationProperties const*, unsigned long long) = nullptr;
  Result (*memRelease)(MemoryHandle) = nullptr;
  Result (*memRetain)(MemoryHandle*, void*) = nullptr;
  Result (*memExport)(void*, MemoryHandle, int, unsigned long long) = nullptr;
  Result (*memImport)(MemoryHandle*, void*, int) = nullptr;

  bool there = false;

  static FabricDriver const& instance() {
    static FabricDriver const driver;
    return driver;
  }

  std::string nameOf(Result code) const {
    char const* name = nullptr;
    if (getErrorName(code, &name) != cu::success || name == nullptr) return fmt::format("CUresult {}", code);
    return name;
  }

 private:
  FabricDriver() {
    void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    find(library, "cuInit", init);
    find(library, "cuGetErrorName", getErrorName);
    find(library, "cuDeviceGet", deviceGet);
    find(library, "cuDeviceGetAttribute", deviceGetAttribute);
    find(library, "cuMemGetAllocationGranularity", memGetGranularity);
    find(library, "cuMemCreate", memCreate);
    find(library, "cuMemRelease", memRelease);
    find(library, "cuMemRetainAllocationHandle", memRetain);
    find(library, "cuMemExportToShareableHandle", memExport);
    find(library, "cuMemImportFromShareableHandle", memImport);
    there = init != nullptr && getErrorName != nullptr && deviceGet != nullptr && deviceGetAttribute != nullptr &&
            memGetGranularity != nullptr && memCreate != nullptr && memRelease != nullptr && memRetain != nullptr &&
            memExport != nullptr && memImport != nullptr && init(0) == cu::success;
  }
};

struct ManagementLibrary {
  Result (*deviceByBusId)(char const*, void**) = nullptr;
  Result (*fabricInfo)(void*, GpuFabricInfo*) = nullptr;

  static ManagementLibrary const& instance() {
    static ManagementLibrary const library;
    return library;
  }

 private:
  ManagementLibrary() {
    void* const library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    Result (*init)() = nullptr;
    find(library, "nvmlInit_v2", init);
    find(library, "nvmlDeviceGetHandleByPciBusId_v2", deviceByBusId);
    if (init != nullptr && deviceByBusId != nullptr && init() == nvmlSuccess) {
      find(library, "nvmlDeviceGetGpuFabricInfoV", fabricInfo);
    }
  }
};

// Gets a handle as every allocation for other hosts will: without the service it is refused here, not in a window.
bool getsHandle(FabricDriver const& driver, int device, std::string& why) {
  AllocationProperties const properties{
      cu::pinned, cu::descriptorHandle | fabricHandleType, {cu::onDevice, device}, nullptr, {}};
  std::size_t bytes = 0;
  MemoryHandle memory = 0;
  auto code = driver.memGetGranularity(&bytes, &properties, cu::minimumGranularity);
  if (code == cu::success) code = driver.memCreate(&memory, bytes, &properties, 0);
  if (code == cu::success) {
    FabricHandle handle{};
    code = driver.memExport(handle.data(), memory, fabricHandleType, 0);
    (void)driver.memRelease(memory);
  }
  if (code != cu::success) {
    why = fmt::format(
        "the driver gives this process no fabric handle ({}): have the service nvidia-imex run on all hosts of the "
        "clique, and a channel in {} that this process may open",
        driver.nameOf(code), fabricChannels);
  }
  return code == cu::success;
}

}  // namespace

FabricState askFabricState(std::string const& busId) {
  FabricState state;
  auto const& library = ManagementLibrary::instance();
  void* device = nullptr;
  GpuFabricInfo info{};
  info.version = infoVersion;
  if (library.fabricInfo == nullptr || library.deviceByBusId(busId.c_str(), &device) != nvmlSuccess ||
      library.fabricInfo(device, &info) != nvmlSuccess) {
    return state;
  }
  state.registration = static_cast<FabricState::Registration>(
      std::min<int>(info.state, static_cast<int>(FabricState::Registration::unknown)));
  state.status = info.status;
  std::copy_n(info.cluster, state.clique.cluster.size(), state.clique.cluster.begin());
  state.clique.clique = info.clique;
  return state;
}

std::string whyNoFabric(FabricState const& state, bool handles) {
  using Registration = FabricState::Registration;
  switch (state.registration) {
    case Registration::unknown:
      return "NVIDIA's management library (libnvidia-ml.so.1) does not tell of a fabric";
    case Registration::unsupported:
      return "it has no fabric";
    case Registration::notStarted:
    case Registration::inProgress:
      return "its registration with the fabric has not ended; look at the fabric manager";
    case Registration::completed:
      break;
  }
  if (state.status != nvmlSuccess) {
    return fmt::format("its registration with the fabric has failed (NVML error {}); look at the fabric manager",
                       state.status);
  }
  if (!state.clique) return "its fabric joins no other hosts: it has no cluster, or no clique";
  if (!handles) return "the driver has no fabric handles for it; install a newer one";
  return {};
}

bool driverHasFabricHandles(int device) {
  auto const& driver = FabricDriver::instance();
  int number = 0;
  int supported = 0;
  return driver.there && driver.deviceGet(&number, device) == cu::success &&
         driver.deviceGetAttribute(&supported, fabricSupportedAttribute, number) == cu::success && supported != 0;
}

FabricClique driverCliqueOf(int device, std::string const& busId, std::string& why) {
  auto const state = askFabricState(busId);
  why = whyNoFabric(state, driverHasFabricHandles(device));
  if (!why.empty() || !getsHandle(FabricDriver::instance(), device, why)) return {};
  return state.clique;
}

std::optional<FabricHandle> driverExportFabric(void* base) {
  auto const& driver = FabricDriver::instance();
  MemoryHandle memory = 0;
  if (!driver.there || driver.memRetain(&memory, base) != cu::success) return {};
  FabricHandle handle{};
  auto const code = driver.memExport(handle.data(), memory, fabricHandleType, 0);
  (void)driver.memRelease(memory);
  if (code != cu::success) {
    log(LogLevel::info, "CUDA memory at {} has no fabric handle: {}", fmt::ptr(base), driver.nameOf(code));
    return {};
  }
  return handle;
}

unsigned long long driverImportFabric(FabricHandle const& handle, int device, std::size_t bytes) {
  auto const& driver = FabricDriver::instance();
  if (!driver.there) fail(ErrorCode::unsupported, "memory of another host: the CUDA driver has no fabric handles");
  auto copy = handle;
  MemoryHandle memory = 0;
  if (auto const code = driver.memImport(&memory, copy.data(), fabricHandleType); code != cu::success) {
    fail(
        ErrorCode::deviceError,
        "map {} bytes of another host's memory on CUDA device {}: {}; have the service nvidia-imex run on both hosts "
        "with each other's addresses, and the same channel of {} open to both processes (nvidia-imex-ctl -N tells), or "
        "set MSCCLPP_FABRIC=0 on all ranks",
        bytes, device, driver.nameOf(code), fabricChannels);
  }
  return memory;
}

}  // namespace mscclpp
