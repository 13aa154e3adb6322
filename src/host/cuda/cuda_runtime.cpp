// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/cuda/cuda_runtime.hpp"

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/deadline.hpp"
#include "base/fabric_memory.hpp"
#include "base/format.hpp"
#include "host/cuda/cuda_copy_engine.hpp"
#include "host/cuda/cuda_error.hpp"
#include "host/cuda/fabric_driver.hpp"
#include "host/cuda/multicast_driver.hpp"
#include "host/memory/split_memory.hpp"
#include "mscclpp/base/bits.hpp"

namespace mscclpp {
namespace {

// The driver's functions, found at run time: the program starts on machines without a driver.
class Driver {
 public:
  Driver() {
    find("cuGetErrorName", 6000, getErrorName_);
    find("cuMemGetAddressRange", 3020, memGetAddressRange);
    find("cuPointerGetAttribute", 4000, pointerGetAttribute);
    find("cuMemGetAllocationGranularity", 10020, memGetAllocationGranularity);
    find("cuMemCreate", 10020, memCreate);
    find("cuMemRelease", 10020, memRelease);
    find("cuMemAddressReserve", 10020, memAddressReserve);
    find("cuMemAddressFree", 10020, memAddressFree);
    find("cuMemMap", 10020, memMap);
    find("cuMemUnmap", 10020, memUnmap);
    find("cuMemGetAccess", 10020, memGetAccess);
    find("cuMemSetAccess", 10020, memSetAccess);
    find("cuMemExportToShareableHandle", 10020, memExportToShareableHandle);
    find("cuMemImportFromShareableHandle", 10020, memImportFromShareableHandle);
    find("cuMemRetainAllocationHandle", 11000, memRetainAllocationHandle);
    find("cuStreamIsCapturing", 10000, streamIsCapturing);
    try {
      find("cuMemGetHandleForAddressRange", 11070, memGetHandleForAddressRange);
    } catch (Error const& error) {
      log(LogLevel::info, "GPU memory cannot be shared by dmabuf: {}", error.what());
    }
  }

  std::string nameOf(CUresult code) const {
    char const* name = nullptr;
    if (getErrorName_(code, &name) != CUDA_SUCCESS || name == nullptr) return fmt::format("CUresult {}", int{code});
    return name;
  }
  void check(CUresult code, std::string_view operation) const {
    if (code != CUDA_SUCCESS) failCall(fmt::format("{}: {}", operation, nameOf(code)));
  }

  PFN_cuStreamIsCapturing_v10000 streamIsCapturing = nullptr;
  PFN_cuMemGetAddressRange_v3020 memGetAddressRange = nullptr;
  PFN_cuPointerGetAttribute_v4000 pointerGetAttribute = nullptr;
  PFN_cuMemGetAllocationGranularity_v10020 memGetAllocationGranularity = nullptr;
  PFN_cuMemCreate_v10020 memCreate = nullptr;
  PFN_cuMemRelease_v10020 memRelease = nullptr;
  PFN_cuMemAddressReserve_v10020 memAddressReserve = nullptr;
  PFN_cuMemAddressFree_v10020 memAddressFree = nullptr;
  PFN_cuMemMap_v10020 memMap = nullptr;
  PFN_cuMemUnmap_v10020 memUnmap = nullptr;
  PFN_cuMemGetAccess_v10020 memGetAccess = nullptr;
  PFN_cuMemSetAccess_v10020 memSetAccess = nullptr;
  PFN_cuMemExportToShareableHandle_v10020 memExportToShareableHandle = nullptr;
  PFN_cuMemImportFromShareableHandle_v10020 memImportFromShareableHandle = nullptr;
  PFN_cuMemRetainAllocationHandle_v11000 memRetainAllocationHandle = nullptr;
  PFN_cuMemGetHandleForAddressRange_v11070 memGetHandleForAddressRange = nullptr;  // may stay so

 private:
  template <class Function>
  static void find(char const* name, unsigned version, Function& function) {
    void* address = nullptr;
    cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
    auto const code = cudaGetDriverEntryPointByVersion(name, &address, version, cudaEnableDefault, &result);
#else
    (void)version;
    auto const code = cudaGetDriverEntryPoint(name, &address, cudaEnableDefault, &result);
#endif
    mscclpp::check(code, fmt::format("look up {} in the CUDA driver", name));
    if (result != cudaDriverEntryPointSuccess || address == nullptr) {
      fail(ErrorCode::unsupported, "the CUDA driver has no {}; install a newer driver", name);
    }
    function = reinterpret_cast<Function>(address);
  }

  PFN_cuGetErrorName_v6000 getErrorName_ = nullptr;
};

// Makes `device` current, and calls that a running stream capture of this thread would refuse possible; both until the
// end of the scope.
class DeviceScope {
 public:
  explicit DeviceScope(int device) {
    check(cudaGetDevice(&before_), "ask for the current CUDA device");
    selectDevice(device);
    (void)cudaThreadExchangeStreamCaptureMode(&mode_);
  }
  ~DeviceScope() {
    (void)cudaThreadExchangeStreamCaptureMode(&mode_);
    (void)cudaSetDevice(before_);
  }
  DeviceScope(DeviceScope const&) = delete;
  DeviceScope& operator=(DeviceScope const&) = delete;

 private:
  int before_ = 0;
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// The numbers of streams, which CUDA does not tell of one that is being captured: what it was told before, else one
// that CUDA gives none.
class StreamNumbers {
 public:
  void learn(void* stream, std::uint64_t number) {
    // Most threads use one stream for long.
    thread_local std::pair<void*, std::uint64_t> last{nullptr, 0};
    if (last == std::pair(stream, number)) return;
    last = {stream, number};
    std::lock_guard const lock(mutex_);
    known_[stream] = number;
  }
  std::uint64_t ofCaptured(void* stream) {
    std::lock_guard const lock(mutex_);
    auto const [found, isNew] = known_.try_emplace(stream, 0);
    if (isNew) found->second = std::uint64_t{1} << 63 | ++made_;
    return found->second;
  }

 private:
  std::mutex mutex_;
  std::map<void*, std::uint64_t> known_;
  std::uint64_t made_ = 0;
};

class CudaRuntime final : public Runtime, public SplitMemory, public FabricMemory {
 public:
  explicit CudaRuntime(int devices) : devices_(devices), perDevice_(static_cast<std::size_t>(devices)) {}

  DeviceKind kind() const override { return DeviceKind::cuda; }
  int deviceCount() const override { return devices_; }

  DeviceProperties properties(int device) const override {
    checkDevice(device);
    std::lock_guard const lock(mutex_);
    auto& cached = perDevice_[static_cast<std::size_t>(device)].properties;
    if (!cached.name.empty()) return cached;
    cudaDeviceProp raw{};
    check(cudaGetDeviceProperties(&raw, device), fmt::format("read the properties of CUDA device {}", device));
    char busId[32] = {};
    check(cudaDeviceGetPCIBusId(busId, sizeof busId, device), fmt::format("read the bus id of CUDA device {}", device));
    cached = {raw.name, raw.multiProcessorCount, raw.major, raw.minor, raw.totalGlobalMem, busId};
    return cached;
  }

  void* allocate(int device, std::size_t bytes, MemoryKind kind) override {
    checkDevice(device);
    DeviceScope const scope(device);
    std::string const operation = fmt::format("allocate {} bytes on CUDA device {}", bytes, device);
    void* base = nullptr;
    if (kind == MemoryKind::shareable) {
      base = allocateShareable(device, bytes, operation);
    } else {
      check(cudaMalloc(&base, bytes), operation);
    }
    if (kind == MemoryKind::unfilled) return base;
    try {
      auto* const stream = utilityStream(device);
      check(cudaMemsetAsync(base, 0, bytes, stream), "clear new CUDA memory");
      check(cudaStreamSynchronize(stream), "clear new CUDA memory");
    } catch (...) {
      release(base);
      throw;
    }
    return base;
  }

  void giveBack(void* base) noexcept override {
    try {
      if (base == nullptr || releaseMapping(base)) return;
      DeviceScope const scope(std::max(deviceFor(base), 0));
      check(cudaFree(base), "free CUDA memory");
    } catch (std::exception const& error) {
      log(LogLevel::error, "{}", error.what());
    }
  }

  void* allocateHost(std::size_t bytes) override {
    DeviceScope const scope(currentDevice());
    void* base = nullptr;
    check(cudaHostAlloc(&base, bytes, cudaHostAllocPortable | cudaHostAllocMapped),
          fmt::format("allocate {} bytes of pinned host memory", bytes));
    std::fill_n(static_cast<std::byte*>(base), bytes, std::byte{0});
    return base;
  }

  void giveBackHost(void* base) noexcept override {
    if (base != nullptr) logFailure(cudaFreeHost(base), "free pinned host memory");
  }

  Allocation allocationOf(void const* pointer) const override {
    cudaPointerAttributes attributes{};
    check(cudaPointerGetAttributes(&attributes, pointer), fmt::format("ask CUDA about address {}", fmt::ptr(pointer)));
    if (attributes.type != cudaMemoryTypeDevice) {
      fail(ErrorCode::invalidUsage,
           "address {} is not CUDA device memory; allocate it with GpuBuffer, cudaMalloc or the framework's GPU "
           "allocator",
           fmt::ptr(pointer));
    }
    // The driver looks in the current context only.
    DeviceScope const scope(attributes.device);
    CUdeviceptr base = 0;
    std::size_t bytes = 0;
    driver_.check(driver_.memGetAddressRange(&base, &bytes, address(pointer)),
                  fmt::format("find the CUDA allocation of address {}", fmt::ptr(pointer)));
    unsigned long long id = 0;
    driver_.check(driver_.pointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, address(pointer)),
                  fmt::format("identify the CUDA allocation of address {}", fmt::ptr(pointer)));
    return {reinterpret_cast<void*>(base), bytes, attributes.device, id};
  }

  std::optional<IpcHandle> exportIpc(Allocation const& allocation) override {
    if (!supportsIpc(allocation)) return {};
    DeviceScope const scope(allocation.device);
    cudaIpcMemHandle_t handle{};
    check(cudaIpcGetMemHandle(&handle, allocation.base), "make a CUDA IPC handle");
    static_assert(sizeof handle == sizeof(IpcHandle));
    IpcHandle result{};
    std::copy_n(reinterpret_cast<std::byte const*>(&handle), result.size(), result.data());
    return result;
  }

  std::optional<int> exportDescriptor(Allocation const& allocation) override {
    if (supportsIpc(allocation)) return {};
    DeviceScope const scope(allocation.device);
    // Works for virtual memory of any maker in this process, if it asked for descriptors.
    CUmemGenericAllocationHandle handle{};
    if (driver_.memRetainAllocationHandle(&handle, allocation.base) != CUDA_SUCCESS) return {};
    int descriptor = -1;
    auto const code =
        driver_.memExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    (void)driver_.memRelease(handle);
    if (code != CUDA_SUCCESS) {
      log(LogLevel::info, "CUDA memory at {} has no file descriptor: {}", fmt::ptr(allocation.base),
          driver_.nameOf(code));
      return {};
    }
    return descriptor;
  }

  std::optional<Dmabuf> exportDmabuf(void const* pointer, std::size_t bytes) override {
    if (driver_.memGetHandleForAddressRange == nullptr) return {};
    DeviceScope const scope(allocationOf(pointer).device);
    // Whole pages of the host only.
    auto const page = static_cast<CUdeviceptr>(::sysconf(_SC_PAGESIZE));
    auto const first = address(pointer) / page * page;
    auto const last = (address(pointer) + bytes + page - 1) / page * page;
    int descriptor = -1;
    auto const code =
        driver_.memGetHandleForAddressRange(&descriptor, first, last - first, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    if (code != CUDA_SUCCESS) {
      log(LogLevel::info, "CUDA memory at {} has no dmabuf: {}", fmt::ptr(pointer), driver_.nameOf(code));
      return {};
    }
    return Dmabuf{descriptor, address(pointer) - first};
  }

  void* importIpc(int device, IpcHandle const& handle) override {
    checkDevice(device);
    DeviceScope const scope(device);
    cudaIpcMemHandle_t raw{};
    std::copy_n(handle.data(), handle.size(), reinterpret_cast<std::byte*>(&raw));
    void* base = nullptr;
    check(cudaIpcOpenMemHandle(&base, raw, cudaIpcMemLazyEnablePeerAccess),
          fmt::format(
              "map a peer's memory on CUDA device {} by IPC (has the peer freed it, and can the devices reach each "
              "other?)",
              device));
    CUdeviceptr start = 0;
    std::size_t bytes = 0;
    driver_.check(driver_.memGetAddressRange(&start, &bytes, address(base)), "find the size of a peer's memory");
    std::lock_guard const lock(mutex_);
    imports_[static_cast<std::byte*>(base)] = {bytes, device, Imported::ipc};
    return base;
  }

  void* importDescriptor(int device, int descriptor, std::size_t bytes) override {
    checkDevice(device);
    DeviceScope const scope(device);
    CUmemGenericAllocationHandle handle{};
    driver_.check(driver_.memImportFromShareableHandle(&handle, reinterpret_cast<void*>(std::intptr_t{descriptor}),
                                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                  fmt::format("import a peer's memory on CUDA device {}", device));
    return mapImported(device, handle, bytes);
  }

  FabricClique cliqueOf(int device) const override {
    auto const busId = properties(device).busId;
    DeviceScope const scope(device);
    std::lock_guard const lock(mutex_);
    auto& known = perDevice_[static_cast<std::size_t>(device)].clique;
    if (!known) {
      std::string why;
      known = driverCliqueOf(device, busId, why);
      // Who has such a fabric wants to know.
      auto const level = askFabricState(busId).clique ? LogLevel::warn : LogLevel::info;
      if (!why.empty()) log(level, "CUDA device {} reaches no memory of other hosts: {}", device, why);
    }
    return *known;
  }

  std::optional<FabricHandle> exportFabric(Allocation const& allocation) override {
    DeviceScope const scope(allocation.device);
    return driverExportFabric(allocation.base);
  }

  void* importFabric(int device, FabricHandle const& fabric, std::size_t bytes) override {
    checkDevice(device);
    DeviceScope const scope(device);
    CUmemGenericAllocationHandle const handle = driverImportFabric(fabric, device, bytes);
    return mapImported(device, handle, bytes);
  }

  // Virtual memory; what cuMemGetAddressRange tells of it is what one handle is mapped to.
  bool mayGoOn(Allocation const& allocation) const override { return !supportsIpc(allocation); }

  void* importPieces(int device, std::span<SharedPiece const> pieces) override {
    checkDevice(device);
    DeviceScope const scope(device);
    std::size_t total = 0;
    for (auto const& piece : pieces) total += piece.bytes;
    auto const operation =
        fmt::format("map {} bytes in {} pieces of a peer's memory on CUDA device {}", total, pieces.size(), device);
    CUdeviceptr base = 0;
    driver_.check(driver_.memAddressReserve(&base, total, 0, 0, 0), operation);
    std::size_t mapped = 0;
    auto code = CUDA_SUCCESS;
    for (auto const& piece : pieces) {
      CUmemGenericAllocationHandle handle{};
      code = driver_.memImportFromShareableHandle(&handle, reinterpret_cast<void*>(std::intptr_t{piece.descriptor}),
                                                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
      if (code != CUDA_SUCCESS) break;
      code = driver_.memMap(base + mapped, piece.bytes, 0, handle, 0);
      (void)driver_.memRelease(handle);  // the mapping keeps the memory
      if (code != CUDA_SUCCESS) break;
      mapped += piece.bytes;
    }
    if (code == CUDA_SUCCESS) code = letIn(device, base, total);
    if (code != CUDA_SUCCESS) {
      if (mapped != 0) (void)driver_.memUnmap(base, mapped);
      (void)driver_.memAddressFree(base, total);
      driver_.check(code, operation);
    }
    auto* const start = reinterpret_cast<std::byte*>(base);
    std::lock_guard const lock(mutex_);
    imports_[start] = {total, device, Imported::pieces};
    return start;
  }

  void releaseImport(void* base) noexcept override {
    try {
      if (base == nullptr) return;
      Import import{};
      {
        std::lock_guard const lock(mutex_);
        auto const found = imports_.find(static_cast<std::byte*>(base));
        if (found == imports_.end()) {
          log(LogLevel::error, "release of {}, which is no imported CUDA memory", fmt::ptr(base));
          return;
        }
        import = found->second;
        imports_.erase(found);
      }
      DeviceScope const scope(import.device);
      if (import.how == Imported::ipc) {
        check(cudaIpcCloseMemHandle(base), "unmap a peer's CUDA memory");
      } else if (import.how == Imported::pieces) {
        driver_.check(driver_.memUnmap(address(base), import.bytes), "unmap the pieces of a peer's CUDA memory");
        driver_.check(driver_.memAddressFree(address(base), import.bytes), "free a range of CUDA virtual addresses");
      } else {
        releaseMapping(base);
      }
    } catch (std::exception const& error) {
      log(LogLevel::error, "{}", error.what());
    }
  }

  void enablePeer(int device, Allocation const& allocation) override {
    checkDevice(device);
    if (device == allocation.device) return;
    int possible = 0;
    check(cudaDeviceCanAccessPeer(&possible, device, allocation.device), "ask for CUDA peer access");
    if (possible == 0) {
      fail(ErrorCode::unsupported,
           "CUDA device {} cannot use the memory of device {}; choose devices joined by NVLink, or by PCIe with peer "
           "access",
           device, allocation.device);
    }
    letInto(device, allocation);
    std::lock_guard const lock(mutex_);
    // Asking twice is an error to CUDA, which its tools report.
    if (!peers_.emplace(device, allocation.device).second) return;
    DeviceScope const scope(device);
    auto const code = cudaDeviceEnablePeerAccess(allocation.device, 0);
    if (code == cudaErrorPeerAccessAlreadyEnabled) {
      (void)cudaGetLastError();  // by another user of CUDA in this process
    } else if (code != cudaSuccess) {
      peers_.erase({device, allocation.device});
      check(code, fmt::format("let CUDA device {} use the memory of device {}", device, allocation.device));
    }
  }

  bool linesArriveWhole(int device, int peer) const override {
    if (device == peer) return true;
    if (device < 0 || device >= devices_ || peer < 0 || peer >= devices_) return false;
    // Native atomics across devices exist on NVLink and not on PCIe.
    int native = 0;
    auto const code = cudaDeviceGetP2PAttribute(&native, cudaDevP2PAttrNativeAtomicSupported, device, peer);
    check(code, fmt::format("ask for the link between CUDA devices {} and {}", device, peer));
    return native != 0;
  }

  bool multicastSupported(int device, std::string& why) const override {
    checkDevice(device);
    return driverSupportsMulticast(device, why);
  }

  std::unique_ptr<MulticastMemory> multicast(int device) override {
    checkDevice(device);
    return makeDriverMulticast(device);
  }

  bool multicastBinds(void const* pointer) const override { return !supportsIpc(allocationOf(pointer)); }

  void copy(void* dst, void const* src, std::size_t bytes) override {
    int device = deviceFor(dst);
    if (device < 0) device = deviceFor(src);
    if (device < 0) device = currentDevice();
    DeviceScope const scope(device);
    auto* const stream = utilityStream(device);
    std::string const operation = fmt::format("copy {} bytes from {} to {}", bytes, fmt::ptr(src), fmt::ptr(dst));
    check(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream), operation);
    check(cudaStreamSynchronize(stream), operation);
  }

  void copyAsync(void* dst, void const* src, std::size_t bytes, void* stream) override {
    // The sentence is made where it is needed: collectives of one rank are such a copy.
    auto const code = cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, static_cast<cudaStream_t>(stream));
    if (code != cudaSuccess) {
      check(code, fmt::format("copy {} bytes from {} to {}", bytes, fmt::ptr(src), fmt::ptr(dst)));
    }
  }

  void fill(void* dst, int value, std::size_t bytes) override {
    int device = deviceFor(dst);
    if (device < 0) device = currentDevice();
    DeviceScope const scope(device);
    auto* const stream = utilityStream(device);
    check(cudaMemsetAsync(dst, value, bytes, stream), fmt::format("fill {} bytes at {}", bytes, fmt::ptr(dst)));
    check(cudaStreamSynchronize(stream), fmt::format("fill {} bytes at {}", bytes, fmt::ptr(dst)));
  }

  void* createStream(int device) override {
    checkDevice(device);
    DeviceScope const scope(device);
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
          fmt::format("make a stream on CUDA device {}", device));
    return stream;
  }

  void destroyStream(void* stream) noexcept override {
    logFailure(cudaStreamDestroy(static_cast<cudaStream_t>(stream)), "destroy a CUDA stream");
  }

  std::uint64_t streamId(int device, void* stream) override {
    std::optional<DeviceScope> scope;
    auto const handle = reinterpret_cast<std::uintptr_t>(stream);
    if (handle <= reinterpret_cast<std::uintptr_t>(cudaStreamPerThread)) {
      scope.emplace(device);  // the handle means a stream of the current device
    }
    // The default stream is never captured, and to ask it may break off a capture of another one.
    bool const mayBeCaptured = handle >= reinterpret_cast<std::uintptr_t>(cudaStreamPerThread);
    if (mayBeCaptured && capturing(stream)) return streamNumbers_.ofCaptured(stream);
    unsigned long long id = 0;
    check(cudaStreamGetId(static_cast<cudaStream_t>(stream), &id), "ask for the number of a CUDA stream");
    streamNumbers_.learn(stream, id);
    return id;
  }

  void synchronize(void* stream, std::chrono::nanoseconds limit) override {
    Deadline const deadline(limit);
    // Most waits are short and somebody measures them, so look without pause for the first 2 ms.
    constexpr std::chrono::nanoseconds eager = std::chrono::milliseconds(2);
    constexpr std::chrono::nanoseconds longestPause = std::chrono::microseconds(200);
    std::chrono::nanoseconds pause = std::chrono::microseconds(10);
    while (!idle(stream)) {
      auto const passed = deadline.passed();
      if (passed >= limit) {
        fail(ErrorCode::timeout,
             "the work of a CUDA stream was not done after {}; give synchronize() a longer limit if it may take that, "
             "or "
             "look for a kernel that waits for ever",
             mscclpp::describe(limit));
      }
      if (passed < eager) continue;
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, longestPause);
    }
  }

  bool idle(void* stream) override {
    auto const code = cudaStreamQuery(static_cast<cudaStream_t>(stream));
    if (code == cudaErrorNotReady) {
      (void)cudaGetLastError();
      return false;
    }
    check(code, "a kernel or copy of a CUDA stream failed");
    return true;
  }

  bool synchronizeDevice(int device) override {
    checkDevice(device);
    DeviceScope const scope(device);
    auto const code = cudaDeviceSynchronize();
    if (code == cudaErrorStreamCaptureUnsupported) {
      (void)cudaGetLastError();
      return false;
    }
    check(code, fmt::format("wait for the work of CUDA device {}", device));
    return true;
  }

  bool capturing(void* stream) override {
    // Asked at every call of a collective: the driver answers sooner than the runtime.
    auto status = CU_STREAM_CAPTURE_STATUS_NONE;
    driver_.check(driver_.streamIsCapturing(static_cast<CUstream>(stream), &status),
                  "ask whether a stream is captured");
    return status != CU_STREAM_CAPTURE_STATUS_NONE;
  }

  std::uint64_t captureOf(void* stream) override {
    if (!capturing(stream)) return 0;
    auto status = cudaStreamCaptureStatusNone;
    unsigned long long id = 0;
    check(cudaStreamGetCaptureInfo(static_cast<cudaStream_t>(stream), &status, &id),
          "ask which graph a stream is captured into");
    return status == cudaStreamCaptureStatusNone ? 0 : id + 1;
  }

  void orderAfter(int device, void* stream, void* earlier) override {
    cudaEvent_t event = nullptr;
    DeviceScope const scope(device);
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "make an event");
    auto code = cudaEventRecord(event, static_cast<cudaStream_t>(earlier));
    if (code == cudaSuccess) code = cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), event);
    // What has been recorded stays until it is no longer needed.
    (void)cudaEventDestroy(event);
    check(code, "order a CUDA stream after another");
  }

  std::unique_ptr<CopyEngine> createCopyEngine(int device) override {
    checkDevice(device);
    return makeCudaCopyEngine(device);
  }

 private:
  struct PerDevice {
    DeviceProperties properties;
    cudaStream_t utility = nullptr;
    std::optional<FabricClique> clique{};
  };
  struct Mapping {
    CUmemGenericAllocationHandle handle;
    std::size_t bytes;
  };
  // A peer's memory, valid on `device` only, wherever it lies.
  enum class Imported : std::uint8_t { ipc, handle, pieces };
  struct Import {
    std::size_t bytes;
    int device;
    Imported how;
  };

  static CUdeviceptr address(void const* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

  static int currentDevice() {
    int device = 0;
    check(cudaGetDevice(&device), "ask for the current CUDA device");
    return device;
  }

  // The device that can use the memory at `pointer`; -1: any, it is host memory.
  int deviceFor(void const* pointer) const {
    {
      std::lock_guard const lock(mutex_);
      auto const* const wanted = static_cast<std::byte const*>(pointer);
      auto next = imports_.upper_bound(const_cast<std::byte*>(wanted));
      if (next != imports_.begin()) {
        auto const& [base, import] = *std::prev(next);
        if (wanted < base + import.bytes) return import.device;
      }
    }
    cudaPointerAttributes attributes{};
    check(cudaPointerGetAttributes(&attributes, pointer), fmt::format("ask CUDA about address {}", fmt::ptr(pointer)));
    return attributes.type == cudaMemoryTypeDevice ? attributes.device : -1;
  }

  void checkDevice(int device) const {
    if (device < 0 || device >= devices_) {
      fail(ErrorCode::invalidUsage, "CUDA device {} does not exist: this process sees {} of them, numbered from 0",
           device, devices_);
    }
  }

  // For fills and copies of the host helper: apart from the default stream, which may be under capture or hold up
  // others.
  cudaStream_t utilityStream(int device) {
    std::lock_guard const lock(mutex_);
    auto& stream = perDevice_[static_cast<std::size_t>(device)].utility;
    if (stream == nullptr) {
      check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
            fmt::format("make a stream on CUDA device {}", device));
    }
    return stream;
  }

  bool supportsIpc(Allocation const& allocation) const {
    int legacy = 0;
    auto const code =
        driver_.pointerGetAttribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address(allocation.base));
    driver_.check(code, fmt::format("ask CUDA how address {} can be shared", fmt::ptr(allocation.base)));
    return legacy != 0;
  }

  CUresult letIn(int device, CUdeviceptr base, std::size_t bytes) const {
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return driver_.memSetAccess(base, bytes, &access, 1);
  }

  // Peer access does not open virtual memory, whose maker may have thought of its own device only. What is none is left
  // as it is.
  void letInto(int device, Allocation const& allocation) const {
    if (supportsIpc(allocation)) return;
    CUmemLocation location{};
    location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    location.id = device;
    unsigned long long now = 0;
    if (driver_.memGetAccess(&now, &location, address(allocation.base)) != CUDA_SUCCESS) return;
    if (now == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) return;
    driver_.check(letIn(device, address(allocation.base), allocation.bytes),
                  fmt::format("let CUDA device {} use virtual memory of device {}", device, allocation.device));
  }

  // What others on this host map by descriptor; those on hosts that NVLink joins by fabric handle.
  static CUmemAllocationProp requestFor(int device) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return properties;
  }

  std::size_t granularity(CUmemAllocationProp const& properties) const {
    std::size_t bytes = 0;
    driver_.check(driver_.memGetAllocationGranularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
                  "ask for the granularity of CUDA virtual memory");
    return bytes;
  }

  void* allocateShareable(int device, std::size_t bytes, std::string const& operation) {
    CUmemAllocationProp properties = requestFor(device);
    std::size_t const rounded = roundUp(bytes, granularity(properties));
    CUmemGenericAllocationHandle handle{};
    auto code = CUDA_ERROR_NOT_SUPPORTED;
    if (fabricCliqueOf({DeviceKind::cuda, device})) {
      properties.requestedHandleTypes =
          static_cast<CUmemAllocationHandleType>(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | fabricHandleType);
      code = driver_.memCreate(&handle, rounded, &properties, 0);
      if (code != CUDA_SUCCESS) {
        log(LogLevel::warn, "{}: no fabric handle, so that other hosts cannot map it: {}", operation,
            driver_.nameOf(code));
        properties = requestFor(device);
      }
    }
    if (code != CUDA_SUCCESS) code = driver_.memCreate(&handle, rounded, &properties, 0);
    driver_.check(code, operation);
    std::vector<int> users{device};
    for (int other = 0; other < devices_; ++other) {
      int possible = 0;
      int const owner = device;
      if (other != owner && cudaDeviceCanAccessPeer(&possible, other, owner) == cudaSuccess && possible != 0) {
        users.push_back(other);
      }
    }
    return map(handle, rounded, users, operation);
  }

  // A peer's, which it takes over.
  void* mapImported(int device, CUmemGenericAllocationHandle handle, std::size_t bytes) {
    std::size_t const rounded = roundUp(bytes, granularity(requestFor(device)));
    void* const base =
        map(handle, rounded, {device}, fmt::format("map {} bytes of a peer's memory on CUDA device {}", bytes, device));
    std::lock_guard const lock(mutex_);
    imports_[static_cast<std::byte*>(base)] = {rounded, device, Imported::handle};
    return base;
  }

  // Takes over `handle`.
  void* map(CUmemGenericAllocationHandle handle, std::size_t bytes, std::vector<int> const& users,
            std::string const& operation) {
    CUdeviceptr base = 0;
    bool mapped = false;
    auto code = driver_.memAddressReserve(&base, bytes, 0, 0, 0);
    if (code == CUDA_SUCCESS) {
      code = driver_.memMap(base, bytes, 0, handle, 0);
      mapped = code == CUDA_SUCCESS;
    }
    if (mapped) {
      std::vector<CUmemAccessDesc> access;
      for (int user : users) {
        CUmemAccessDesc entry{};
        entry.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        entry.location.id = user;
        entry.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        access.push_back(entry);
      }
      code = driver_.memSetAccess(base, bytes, access.data(), access.size());
    }
    if (code != CUDA_SUCCESS) {
      if (mapped) (void)driver_.memUnmap(base, bytes);
      if (base != 0) (void)driver_.memAddressFree(base, bytes);
      (void)driver_.memRelease(handle);
      driver_.check(code, operation);
    }
    void* const pointer = reinterpret_cast<void*>(base);
    std::lock_guard const lock(mutex_);
    mappings_[pointer] = {handle, bytes};
    return pointer;
  }

  // False where `base` is no virtual memory of ours.
  bool releaseMapping(void* base) {
    Mapping mapping{};
    {
      std::lock_guard const lock(mutex_);
      auto const found = mappings_.find(base);
      if (found == mappings_.end()) return false;
      mapping = found->second;
      mappings_.erase(found);
    }
    driver_.check(driver_.memUnmap(address(base), mapping.bytes), "unmap CUDA virtual memory");
    driver_.check(driver_.memAddressFree(address(base), mapping.bytes), "free a range of CUDA virtual addresses");
    driver_.check(driver_.memRelease(mapping.handle), "release CUDA virtual memory");
    return true;
  }

  int const devices_;
  Driver const driver_;
  mutable std::mutex mutex_;
  mutable std::vector<PerDevice> perDevice_;
  StreamNumbers streamNumbers_;
  std::map<void*, Mapping> mappings_;
  std::map<std::byte*, Import> imports_;
  std::set<std::pair<int, int>> peers_;  // device, and the device whose memory it may use
};

}  // namespace

std::unique_ptr<Runtime> makeCudaRuntime(std::string& missing) {
  int devices = 0;
  auto const code = cudaGetDeviceCount(&devices);
  if (code != cudaSuccess || devices == 0) {
    (void)cudaGetLastError();
    missing = code == cudaSuccess ? "the CUDA driver sees no GPU" : describe(code);
    return nullptr;
  }
  try {
    auto machine = std::make_unique<CudaRuntime>(devices);
    reportLossesTo(*machine);
    return machine;
  } catch (Error const& error) {
    missing = error.what();
    return nullptr;
  }
}

}  // namespace mscclpp
