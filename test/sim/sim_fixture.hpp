// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Short words for the tests of the simulated machine.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "mscclpp/device/memory.hpp"
#include "mscclpp/device/poll.hpp"
#include "mscclpp/device/thread.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/runtime.hpp"
#include "mscclpp/sim/backend/launch.hpp"
#include "mscclpp/sim/run.hpp"
#include "mscclpp/sim/runtime.hpp"

namespace simtest {

using namespace mscclpp;

// ThreadSanitizer keeps a megabyte for every fiber and has room for some 8000.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool fewFibers = true;
#else
inline constexpr bool fewFibers = false;
#endif

inline Runtime& machine() {
  sim::ensureInstalled();
  return runtime(DeviceKind::sim);
}

// Zero-filled memory of one device.
template <class T>
class DeviceArray {
 public:
  DeviceArray(int device, std::size_t count)
      : data_(static_cast<T*>(machine().allocate(device, count * sizeof(T), MemoryKind::standard))), count_(count) {}
  ~DeviceArray() { machine().release(data_); }
  DeviceArray(DeviceArray const&) = delete;
  DeviceArray& operator=(DeviceArray const&) = delete;
  T* data() const { return data_; }
  T& operator[](std::size_t i) const { return data_[i]; }
  std::vector<T> values() const { return {data_, data_ + count_}; }

 private:
  T* data_;
  std::size_t count_;
};

class Stream {
 public:
  explicit Stream(int device = 0) : handle_(machine().createStream(device)) {}
  ~Stream() { machine().destroyStream(handle_); }
  Stream(Stream const&) = delete;
  Stream& operator=(Stream const&) = delete;
  void* get() const { return handle_; }
  void launch(LaunchShape shape, std::function<void()> kernel, std::string name = "kernel") const {
    sim::enqueueKernel(handle_, shape, std::move(name), std::move(kernel));
  }
  void synchronize(std::chrono::nanoseconds limit = std::chrono::seconds(20)) const {
    machine().synchronize(handle_, limit);
  }

 private:
  void* handle_;
};

// One kernel on one device of a deterministic run.
inline sim::RunSummary runKernel(sim::RunOptions const& options, LaunchShape shape,
                                 std::function<void()> const& kernel) {
  return sim::run(options, [&](sim::RankContext& rank) {
    Stream stream(rank.device());
    stream.launch(shape, kernel);
    stream.synchronize();
  });
}

// The text of the error that `act` throws; empty if it throws none.
inline std::string errorText(std::function<void()> const& act, ErrorCode code) {
  try {
    act();
  } catch (Error const& e) {
    return e.code() == code ? e.what() : std::string("another code: ") + e.what();
  }
  return {};
}

inline bool contains(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

inline void waitUntil(std::uint32_t* flag, std::uint32_t value, layout::Watch* watch = nullptr, int peer = -1,
                      std::uint64_t channel = 0) {
  poll(watch, {layout::WaitKind::semaphore, peer, channel, value}, [&](std::uint64_t& seen) {
    seen = load<Order::acquire, Scope::system>(flag);
    return seen >= value;
  });
}

}  // namespace simtest
