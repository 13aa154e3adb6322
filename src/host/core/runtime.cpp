// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/runtime.hpp"

#include <pthread.h>

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "base/format.hpp"
#include "base/loss_listeners.hpp"
#include "base/own_thread.hpp"
#include "host/cuda/cuda_runtime.hpp"
#include "mscclpp/host/device.hpp"

namespace mscclpp {
namespace {

class OrdinaryThread final : public HostThread {
 public:
  OrdinaryThread(std::string const& name, std::function<void()> main)
      : thread_(startOwnThread([name = name.substr(0, longestName), main = std::move(main)] {
          ::pthread_setname_np(::pthread_self(), name.c_str());
          main();
        })) {}
  ~OrdinaryThread() override {
    if (process_) {
      thread_.join();
    } else {
      thread_.detach();  // after fork() it is not here
    }
  }

 private:
  static constexpr std::size_t longestName = 15;  // that debuggers and top are shown
  OwnProcess const process_;
  std::thread thread_;
};

class Registry {
 public:
  // Never destroyed: buffers in static objects may be released after everything here.
  static Registry& instance() {
    static auto* const registry = new Registry;
    return *registry;
  }

  void add(std::unique_ptr<Runtime> runtime) {
    std::lock_guard const lock(mutex_);
    auto const kind = runtime->kind();
    if (!runtimes_.try_emplace(kind, std::move(runtime)).second) {
      fail(ErrorCode::invalidUsage, "registerRuntime: this program has a {} machine already", nameOf(kind));
    }
  }

  // Without the lock once there is one, which stays: every call of a collective asks.
  Runtime* find(DeviceKind kind, std::string& missing) {
    if (auto* const known = found_[indexOf(kind)].load(std::memory_order_acquire)) return known;
    std::lock_guard const lock(mutex_);
    if (auto const there = runtimes_.find(kind); there != runtimes_.end()) return keep(kind, *there->second);
    if (kind == DeviceKind::cuda) {
      if (!triedCuda_) {
        triedCuda_ = true;
        if (auto made = makeCudaRuntime(cudaMissing_)) {
          return keep(kind, *runtimes_.emplace(kind, std::move(made)).first->second);
        }
      }
      missing = cudaMissing_;
    } else {
      missing = "the program does not contain the simulated machine: link mscclpp::sim and call sim::ensureInstalled()";
    }
    return nullptr;
  }

 private:
  static std::size_t indexOf(DeviceKind kind) { return kind == DeviceKind::cuda ? 0 : 1; }
  Runtime* keep(DeviceKind kind, Runtime& runtime) {
    found_[indexOf(kind)].store(&runtime, std::memory_order_release);
    return &runtime;
  }

  std::array<std::atomic<Runtime*>, 2> found_{};
  std::mutex mutex_;
  std::map<DeviceKind, std::unique_ptr<Runtime>> runtimes_;
  bool triedCuda_ = false;
  std::string cudaMissing_;
};

}  // namespace

Runtime::Runtime() : losses_(std::make_unique<LossListeners>()) {}

Runtime::~Runtime() = default;

std::shared_ptr<void> Runtime::onLoss(std::function<void(int, std::string const&)> lost) {
  return losses_->add(std::move(lost));
}

void Runtime::lose(int device, std::string const& reason) { losses_->tell(device, reason); }

bool Runtime::held(std::vector<void*>& list, void* base) noexcept {
  std::lock_guard const lock(holdMutex_);
  if (holds_ == 0) return false;
  try {
    list.push_back(base);
    return true;
  } catch (std::bad_alloc const&) {
    return false;
  }
}

void Runtime::release(void* base) noexcept {
  if (!held(held_, base)) giveBack(base);
}

void Runtime::releaseHost(void* base) noexcept {
  if (!held(heldHost_, base)) giveBackHost(base);
}

void Runtime::holdReleases() {
  std::lock_guard const lock(holdMutex_);
  ++holds_;
}

void Runtime::resumeReleases() noexcept {
  std::vector<void*> device;
  std::vector<void*> host;
  {
    std::lock_guard const lock(holdMutex_);
    if (--holds_ != 0) return;
    device.swap(held_);
    host.swap(heldHost_);
  }
  for (void* const base : device) giveBack(base);
  for (void* const base : host) giveBackHost(base);
}

bool Runtime::multicastSupported(int, std::string& why) const {
  why = fmt::format("{} devices have no multicast memory", nameOf(kind()));
  return false;
}

std::unique_ptr<MulticastMemory> Runtime::multicast(int device) {
  std::string why;
  (void)multicastSupported(device, why);
  fail(ErrorCode::unsupported, "multicast memory on {} device {}: {}", nameOf(kind()), device, why);
}

std::optional<Dmabuf> Runtime::exportDmabuf(void const*, std::size_t) { return {}; }

std::unique_ptr<CopyEngine> Runtime::createCopyEngine(int device) {
  fail(ErrorCode::unsupported, "{} device {} has no copy engines that a proxy could use", nameOf(kind()), device);
}

std::unique_ptr<HostThread> Runtime::startThread(int, std::string name, std::function<void()> main) {
  try {
    return std::make_unique<OrdinaryThread>(name, std::move(main));
  } catch (std::system_error const& error) {
    throwSystemError(fmt::format("cannot start the thread \"{}\"", name), error.code().value());
  }
}

int Runtime::nodeOf(int) const { return 0; }

Runtime& runtime(DeviceKind kind) {
  std::string missing;
  if (Runtime* const found = Registry::instance().find(kind, missing)) return *found;
  fail(ErrorCode::unsupported, "no {} devices: {}", nameOf(kind), missing);
}

bool hasRuntime(DeviceKind kind) noexcept {
  try {
    std::string missing;
    return Registry::instance().find(kind, missing) != nullptr;
  } catch (std::exception const& error) {
    writeLog(LogLevel::error, error.what());
    return false;
  }
}

void registerRuntime(std::unique_ptr<Runtime> runtime) { Registry::instance().add(std::move(runtime)); }

std::string_view nameOf(DeviceKind kind) noexcept { return kind == DeviceKind::cuda ? "CUDA" : "simulated"; }

int Device::count(DeviceKind kind) { return hasRuntime(kind) ? mscclpp::runtime(kind).deviceCount() : 0; }

Runtime& Device::runtime() const {
  Runtime& machine = mscclpp::runtime(kind);
  if (ordinal < 0 || ordinal >= machine.deviceCount()) {
    fail(ErrorCode::invalidUsage, "{} device {} does not exist: this process sees {} of them, numbered from 0",
         nameOf(kind), ordinal, machine.deviceCount());
  }
  return machine;
}

DeviceProperties Device::properties() const { return runtime().properties(ordinal); }

}  // namespace mscclpp
