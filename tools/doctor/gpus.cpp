// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "doctor/gpus.hpp"

#include <dlfcn.h>

#include <array>
#include <cctype>
#include <cstddef>

#include <fmt/format.h>

namespace mscclpp::doctor {
namespace {

// Numbers of cuda.h and nvml.h, which a build without CUDA has not.
constexpr int multiprocessorCount = 16, asyncEngineCount = 40, majorVersion = 75, minorVersion = 76,
              fabricSupported = 128, multicastSupported = 132;
constexpr int nativeAtomicSupported = 3;
constexpr int stubLibrary = 34, noDevice = 100, systemDriverMismatch = 803;
constexpr unsigned mostLinks = 18;

template <class F>
F* find(void* library, char const* name) {
  return reinterpret_cast<F*>(::dlsym(library, name));
}

std::string fileOf(void const* function) {
  Dl_info info{};
  return ::dladdr(function, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

class Driver {
 public:
  explicit Driver(void* library)
      : init(find<int(unsigned)>(library, "cuInit")),
        version(find<int(int*)>(library, "cuDriverGetVersion")),
        count(find<int(int*)>(library, "cuDeviceGetCount")),
        get(find<int(int*, int)>(library, "cuDeviceGet")),
        name(find<int(char*, int, int)>(library, "cuDeviceGetName")),
        bytes(find<int(std::size_t*, int)>(library, "cuDeviceTotalMem_v2")),
        attribute(find<int(int*, int, int)>(library, "cuDeviceGetAttribute")),
        busId(find<int(char*, int, int)>(library, "cuDeviceGetPCIBusId")),
        canAccess(find<int(int*, int, int)>(library, "cuDeviceCanAccessPeer")),
        betweenTwo(find<int(int*, int, int, int)>(library, "cuDeviceGetP2PAttribute")),
        errorText(find<int(int, char const**)>(library, "cuGetErrorString")) {}

  bool isComplete() const {
    return init && version && count && get && name && bytes && attribute && busId && canAccess && betweenTwo;
  }
  std::string textOf(int code) const {
    char const* text = nullptr;
    if (errorText == nullptr || errorText(code, &text) != 0 || text == nullptr) return fmt::format("error {}", code);
    return fmt::format("{} (error {})", text, code);
  }
  int valueOf(int what, int device) const {
    int value = 0;
    return attribute(&value, what, device) == 0 ? value : 0;
  }

  int (*init)(unsigned);
  int (*version)(int*);
  int (*count)(int*);
  int (*get)(int*, int);
  int (*name)(char*, int, int);
  int (*bytes)(std::size_t*, int);
  int (*attribute)(int*, int, int);
  int (*busId)(char*, int, int);
  int (*canAccess)(int*, int, int);
  int (*betweenTwo)(int*, int, int, int);
  int (*errorText)(int, char const**);
};

std::string whyNot(Driver const& driver, int code, std::string const& file) {
  if (code == stubLibrary) {
    return fmt::format(
        "{} is the toolkit's stub to link with, not the driver; take the folder of stubs out of "
        "LD_LIBRARY_PATH",
        file);
  }
  if (code == noDevice) return "the driver finds no GPU";
  if (code == systemDriverMismatch) {
    return fmt::format(
        "{} does not belong to the kernel's driver; have both of one version, or take other folders out "
        "of LD_LIBRARY_PATH",
        file);
  }
  return fmt::format("the driver does not start: {}", driver.textOf(code));
}

// How many links of NVLink are up, by NVIDIA's management library, where it is there.
class Links {
 public:
  Links() : library_(::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) return;
    auto* const init = find<int()>(library_, "nvmlInit_v2");
    handle_ = find<int(char const*, void**)>(library_, "nvmlDeviceGetHandleByPciBusId_v2");
    state_ = find<int(void*, unsigned, int*)>(library_, "nvmlDeviceGetNvLinkState");
    if (init == nullptr || handle_ == nullptr || state_ == nullptr || init() != 0) state_ = nullptr;
  }
  int of(std::string const& busId) const {
    void* device = nullptr;
    if (state_ == nullptr || handle_(busId.c_str(), &device) != 0) return -1;
    int up = 0;
    for (unsigned link = 0; link < mostLinks; ++link) {
      int isUp = 0;
      up += state_(device, link, &isUp) == 0 && isUp != 0 ? 1 : 0;
    }
    return up;
  }

 private:
  void* library_;
  int (*handle_)(char const*, void**) = nullptr;
  int (*state_)(void*, unsigned, int*) = nullptr;
};

}  // namespace

Gpus askDriver() {
  Gpus result;
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    auto const* const error = ::dlerror();
    result.why = fmt::format("CUDA's driver cannot be loaded: {}", error != nullptr ? error : "libcuda.so.1");
    return result;
  }
  Driver const driver(library);
  result.library = fileOf(reinterpret_cast<void const*>(driver.init));
  if (!driver.isComplete()) {
    result.why = fmt::format("{} lacks functions of CUDA's driver; it is another library of that name", result.library);
    return result;
  }
  if (auto const code = driver.init(0); code != 0) {
    result.why = whyNot(driver, code, result.library);
    return result;
  }
  int count = 0;
  if (driver.version(&result.version) != 0 || driver.count(&count) != 0) {
    result.why = "the driver does not answer";
    return result;
  }
  if (count == 0) result.why = "the driver finds no GPU; CUDA_VISIBLE_DEVICES may leave none";
  std::vector<int> devices(static_cast<std::size_t>(count));
  Links const links;
  for (int i = 0; i < count; ++i) {
    auto& device = devices[static_cast<std::size_t>(i)];
    std::array<char, 256> name{}, busId{};
    std::size_t bytes = 0;
    if (driver.get(&device, i) != 0) continue;
    (void)driver.name(name.data(), name.size(), device);
    (void)driver.busId(busId.data(), busId.size(), device);
    (void)driver.bytes(&bytes, device);
    Gpu gpu{.name = name.data(), .busId = busId.data(), .bytes = bytes};
    gpu.links = links.of(gpu.busId);
    gpu.fabric = askFabricState(gpu.busId);
    gpu.fabricHandles = driver.valueOf(fabricSupported, device) != 0;
    for (auto& letter : gpu.busId) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    gpu.multiprocessors = driver.valueOf(multiprocessorCount, device);
    gpu.computeMajor = driver.valueOf(majorVersion, device);
    gpu.computeMinor = driver.valueOf(minorVersion, device);
    gpu.copyEngines = driver.valueOf(asyncEngineCount, device);
    gpu.multicast = driver.valueOf(multicastSupported, device) != 0;
    result.all.push_back(std::move(gpu));
  }
  for (std::size_t a = 0; a < result.all.size(); ++a) {
    for (std::size_t b = 0; b < result.all.size(); ++b) {
      int can = 0, atomic = 0;
      if (a != b) {
        (void)driver.canAccess(&can, devices[a], devices[b]);
        (void)driver.betweenTwo(&atomic, nativeAtomicSupported, devices[a], devices[b]);
      }
      result.all[a].reaches.push_back(a == b || can != 0);
      result.all[a].atomics.push_back(a == b || atomic != 0);
    }
  }
  return result;
}

}  // namespace mscclpp::doctor
