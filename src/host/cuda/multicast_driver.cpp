// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/cuda/multicast_driver.hpp"

#include <dlfcn.h>
#ifdef MSCCLPP_HAS_CUDA
#include <cuda.h>
#endif

#include <cstddef>
#include <utility>

#include "base/format.hpp"
#include "host/cuda/driver_types.hpp"

namespace mscclpp {
namespace {

using cu::Access;
using cu::DeviceAddress;
using cu::DeviceNumber;
using cu::MemoryHandle;
using cu::Result;

struct ObjectProperties {
  unsigned numDevices;
  std::size_t size;
  unsigned long long handleTypes;
  unsigned long long flags;
};
constexpr int multicastSupportedAttribute = 132;

#ifdef MSCCLPP_HAS_CUDA
static_assert(sizeof(ObjectProperties) == sizeof(CUmulticastObjectProp) &&
              offsetof(ObjectProperties, size) == offsetof(CUmulticastObjectProp, size) &&
              offsetof(ObjectProperties, handleTypes) == offsetof(CUmulticastObjectProp, handleTypes) &&
              offsetof(ObjectProperties, flags) == offsetof(CUmulticastObjectProp, flags));
static_assert(multicastSupportedAttribute == CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED);
#endif

// The one table of what is used of the driver.
struct MulticastDriver {
  Result (*init)(unsigned) = nullptr;
  Result (*getErrorName)(Result, char const**) = nullptr;
  Result (*deviceGet)(DeviceNumber*, int) = nullptr;
  Result (*deviceGetAttribute)(int*, int, DeviceNumber) = nullptr;
  Result (*multicastGetGranularity)(std::size_t*, ObjectProperties const*, int) = nullptr;
  Result (*multicastCreate)(MemoryHandle*, ObjectProperties const*) = nullptr;
  Result (*multicastAddDevice)(MemoryHandle, DeviceNumber) = nullptr;
  Result (*multicastBindAddr)(MemoryHandle, std::size_t, DeviceAddress, std::size_t, unsigned long long) = nullptr;
  Result (*multicastUnbind)(MemoryHandle, DeviceNumber, std::size_t, std::size_t) = nullptr;
  Result (*memExport)(void*, MemoryHandle, int, unsigned long long) = nullptr;
  Result (*memImport)(MemoryHandle*, void*, int) = nullptr;
  Result (*memAddressReserve)(DeviceAddress*, std::size_t, std::size_t, DeviceAddress, unsigned long long) = nullptr;
  Result (*memAddressFree)(DeviceAddress, std::size_t) = nullptr;
  Result (*memMap)(DeviceAddress, std::size_t, std::size_t, MemoryHandle, unsigned long long) = nullptr;
  Result (*memUnmap)(DeviceAddress, std::size_t) = nullptr;
  Result (*memSetAccess)(DeviceAddress, std::size_t, Access const*, std::size_t) = nullptr;
  Result (*memRelease)(MemoryHandle) = nullptr;

  std::string missing;  // why it cannot be used; empty: it can

  // Never unloaded: windows may be in static objects.
  static MulticastDriver const& instance() {
    static MulticastDriver const driver;
    return driver;
  }

  void check(Result code, std::string const& operation) const {
    if (code != cu::success) fail(ErrorCode::deviceError, "{}: {}", operation, nameOf(code));
  }
  std::string nameOf(Result code) const {
    char const* name = nullptr;
    if (getErrorName(code, &name) != cu::success || name == nullptr) return fmt::format("CUresult {}", code);
    return name;
  }

 private:
  MulticastDriver() {
    void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      missing = fmt::format("there is no CUDA driver: {}", ::dlerror());
      return;
    }
    auto const find = [&](char const* name, auto& function) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
      if (function == nullptr && missing.empty()) {
        missing = fmt::format("the CUDA driver has no {}; install one of CUDA 12.1 or newer", name);
      }
    };
    find("cuInit", init);
    find("cuGetErrorName", getErrorName);
    find("cuDeviceGet", deviceGet);
    find("cuDeviceGetAttribute", deviceGetAttribute);
    find("cuMulticastGetGranularity", multicastGetGranularity);
    find("cuMulticastCreate", multicastCreate);
    find("cuMulticastAddDevice", multicastAddDevice);
    find("cuMulticastBindAddr", multicastBindAddr);
    find("cuMulticastUnbind", multicastUnbind);
    find("cuMemExportToShareableHandle", memExport);
    find("cuMemImportFromShareableHandle", memImport);
    find("cuMemAddressReserve", memAddressReserve);
    find("cuMemAddressFree", memAddressFree);
    find("cuMemMap", memMap);
    find("cuMemUnmap", memUnmap);
    find("cuMemSetAccess", memSetAccess);
    find("cuMemRelease", memRelease);
    if (!missing.empty()) return;
    if (auto const code = init(0); code != cu::success)
      missing = fmt::format("the CUDA driver does not start: {}", nameOf(code));
  }
};

class DriverMulticast final : public MulticastMemory {
 public:
  explicit DriverMulticast(int device) : driver_(MulticastDriver::instance()), device_(device) {
    if (!driver_.missing.empty()) fail(ErrorCode::unsupported, "multicast memory: {}", driver_.missing);
    driver_.check(driver_.deviceGet(&number_, device), fmt::format("ask for CUDA device {}", device));
  }
  DriverMulticast(DriverMulticast const&) = delete;
  DriverMulticast& operator=(DriverMulticast const&) = delete;

  ~DriverMulticast() override {
    if (mapped_) undo(driver_.memUnmap(base_, bytes_), "unmap multicast memory");
    if (base_ != 0) undo(driver_.memAddressFree(base_, bytes_), "free a range of multicast addresses");
    for (auto bound = bindings_.rbegin(); bound != bindings_.rend(); ++bound) {
      undo(driver_.multicastUnbind(object_, number_, bound->first, bound->second),
           "unbind memory from multicast memory");
    }
    if (made_) undo(driver_.memRelease(object_), "release multicast memory");
  }

  std::size_t granularity(int devices) override {
    auto const properties = propertiesOf(devices, 1);
    std::size_t bytes = 0;
    driver_.check(driver_.multicastGetGranularity(&bytes, &properties, cu::minimumGranularity),
                  fmt::format("ask for the granularity of multicast memory of {} devices", devices));
    return bytes;
  }

  std::optional<int> create(int devices, std::size_t bytes) override {
    auto const properties = propertiesOf(devices, bytes);
    driver_.check(
        driver_.multicastCreate(&object_, &properties),
        fmt::format("make multicast memory of {} bytes for {} devices (is the fabric manager running, and open "
                    "to this container?)",
                    bytes, devices));
    made_ = true;
    bytes_ = bytes;
    int descriptor = -1;
    driver_.check(driver_.memExport(&descriptor, object_, cu::descriptorHandle, 0),
                  "make a file descriptor of multicast memory");
    return descriptor;
  }

  void open(int descriptor, std::size_t bytes) override {
    driver_.check(driver_.memImport(&object_, reinterpret_cast<void*>(std::intptr_t{descriptor}), cu::descriptorHandle),
                  fmt::format("open multicast memory of {} bytes for CUDA device {}", bytes, device_));
    made_ = true;
    bytes_ = bytes;
  }

  void addDevice() override {
    driver_.check(driver_.multicastAddDevice(object_, number_),
                  fmt::format("add CUDA device {} to multicast memory", device_));
  }

  void bind(std::size_t offset, void* memory, std::size_t bytes) override {
    auto const code = driver_.multicastBindAddr(object_, offset, reinterpret_cast<DeviceAddress>(memory), bytes, 0);
    driver_.check(code, fmt::format("bind {} bytes at {} of CUDA device {} to multicast memory (it must be memory of "
                                    "MemoryKind::shareable, or of cuMemCreate, with so many bytes from there)",
                                    bytes, memory, device_));
    bindings_.emplace_back(offset, bytes);
  }

  bool wantsReplicas() const override { return false; }

  std::byte* map(std::vector<MulticastReplicas>) override {
    auto const operation = fmt::format("map {} bytes of multicast memory on CUDA device {}", bytes_, device_);
    driver_.check(driver_.memAddressReserve(&base_, bytes_, 0, 0, 0), operation);
    driver_.check(driver_.memMap(base_, bytes_, 0, object_, 0), operation);
    mapped_ = true;
    Access const access{{cu::onDevice, device_}, cu::readWrite};
    driver_.check(driver_.memSetAccess(base_, bytes_, &access, 1), operation);
    return reinterpret_cast<std::byte*>(base_);
  }

 private:
  static ObjectProperties propertiesOf(int devices, std::size_t bytes) {
    return {static_cast<unsigned>(devices), bytes, cu::descriptorHandle, 0};
  }
  void undo(Result code, char const* operation) const {
    if (code != cu::success) log(LogLevel::error, "{} of CUDA device {}: {}", operation, device_, driver_.nameOf(code));
  }

  MulticastDriver const& driver_;
  int device_;
  DeviceNumber number_ = 0;
  MemoryHandle object_ = 0;
  bool made_ = false;
  std::size_t bytes_ = 0;
  std::vector<std::pair<std::size_t, std::size_t>> bindings_;  // offset, bytes
  DeviceAddress base_ = 0;
  bool mapped_ = false;
};

}  // namespace

bool driverSupportsMulticast(int device, std::string& why) {
  auto const& driver = MulticastDriver::instance();
  if (!driver.missing.empty()) {
    why = driver.missing;
    return false;
  }
  DeviceNumber number = 0;
  int supported = 0;
  driver.check(driver.deviceGet(&number, device), fmt::format("ask for CUDA device {}", device));
  driver.check(driver.deviceGetAttribute(&supported, multicastSupportedAttribute, number),
               fmt::format("ask whether CUDA device {} has multicast memory", device));
  if (supported == 0) {
    why = fmt::format("CUDA device {} is not joined to others by a switch that can reduce (NVLink SHARP)", device);
  }
  return supported != 0;
}

std::unique_ptr<MulticastMemory> makeDriverMulticast(int device) { return std::make_unique<DriverMulticast>(device); }

}  // namespace mscclpp
