// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/cuda/cuda_copy_engine.hpp"

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <deque>
#include <string>
#include <vector>

#include "base/format.hpp"
#include "host/cuda/cuda_error.hpp"

namespace mscclpp {
namespace {

constexpr std::size_t streamCount = 2;
// Smaller copies end before a second engine has begun.
constexpr std::size_t splitBytes = std::size_t{8} << 20;
constexpr std::size_t splitAlignment = std::size_t{64} << 10;
// Values of signals that are copied, on their way.
constexpr std::size_t valueSlots = std::size_t{1} << 14;

// Null where the driver has none: then signals are copied.
PFN_cuStreamWriteValue64_v11070 findWriteValue() {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
  auto const code =
      cudaGetDriverEntryPointByVersion("cuStreamWriteValue64", &address, 11070, cudaEnableDefault, &result);
#else
  auto const code = cudaGetDriverEntryPoint("cuStreamWriteValue64", &address, cudaEnableDefault, &result);
#endif
  if (code != cudaSuccess || result != cudaDriverEntryPointSuccess) {
    (void)cudaGetLastError();
    return nullptr;
  }
  return reinterpret_cast<PFN_cuStreamWriteValue64_v11070>(address);
}

// Makes `device` current for the calling thread, and calls possible that a stream capture of another would refuse.
// Proxies' threads do nothing else, so they stay so; other threads are left as they were.
class OnDevice {
 public:
  explicit OnDevice(int device) : device_(device) {
    (void)cudaThreadExchangeStreamCaptureMode(&mode_);
    check(cudaGetDevice(&before_), "ask for the current CUDA device");
    if (before_ != device_) selectDevice(device_);
  }
  ~OnDevice() {
    if (before_ != device_) (void)cudaSetDevice(before_);
    (void)cudaThreadExchangeStreamCaptureMode(&mode_);
  }
  OnDevice(OnDevice const&) = delete;
  OnDevice& operator=(OnDevice const&) = delete;

 private:
  int device_;
  int before_ = 0;
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

class CudaCopyEngine final : public CopyEngine {
 public:
  explicit CudaCopyEngine(int device) : device_(device), writeValue_(findWriteValue()) {
    OnDevice const on(device_);
    for (auto& stream : streams_) {
      check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
            fmt::format("make a stream on CUDA device {}", device_));
    }
    constexpr int eventsAtFirst = 32;
    for (int i = 0; i < eventsAtFirst; ++i) freeEvents_.push_back(makeEvent());
    // Pinned now: later it could wait for kernels that wait for this proxy.
    void* values = nullptr;
    check(cudaHostAlloc(&values, valueSlots * sizeof(std::uint64_t), cudaHostAllocPortable),
          "allocate pinned host memory for signals");
    values_ = static_cast<std::uint64_t*>(values);
  }

  ~CudaCopyEngine() override {
    try {
      OnDevice const on(device_);
      for (auto* const stream : streams_) {
        if (stream == nullptr) continue;
        (void)cudaStreamSynchronize(stream);
        (void)cudaStreamDestroy(stream);
      }
      for (auto const& mark : marks_) (void)cudaEventDestroy(mark.event);
      for (auto* const event : freeEvents_) (void)cudaEventDestroy(event);
      (void)cudaFreeHost(values_);
      (void)cudaGetLastError();
    } catch (std::exception const& error) {
      log(LogLevel::error, "{}", error.what());
    }
  }

  void copy(void* dst, void const* src, std::size_t bytes) override {
    OnDevice const on(device_);
    auto const parts = bytes < splitBytes ? std::size_t{1} : streamCount;
    auto const part = (bytes / parts + splitAlignment - 1) / splitAlignment * splitAlignment;
    std::size_t at = 0;
    for (std::size_t i = 0; i < parts && at < bytes; ++i) {
      auto const here = i + 1 == parts || parts == 1 ? bytes - at : std::min(part, bytes - at);
      check(cudaMemcpyAsync(static_cast<std::byte*>(dst) + at, static_cast<std::byte const*>(src) + at, here,
                            cudaMemcpyDefault, streams_[i]),
            fmt::format("copy {} bytes from {} to {}", bytes, fmt::ptr(src), fmt::ptr(dst)));
      used_[i] = true;
      at += here;
    }
    ++posted_;
  }

  void signal(std::uint64_t* word, std::uint64_t value) override {
    OnDevice const on(device_);
    joinStreams();
    auto const target = reinterpret_cast<CUdeviceptr>(word);
    if (writeValue_ != nullptr) {
      if (writeValue_(streams_[0], target, value, CU_STREAM_WRITE_VALUE_DEFAULT) == CUDA_SUCCESS) {
        ++posted_;
        return;
      }
      log(LogLevel::info, "CUDA device {} cannot write a value in stream order to {}; signals are copied", device_,
          fmt::ptr(word));
      writeValue_ = nullptr;
    }
    // A slot is used again only when its copy is done.
    while (copiedSignals_ - signalsDone_ == valueSlots) progress();
    auto* const slot = values_ + copiedSignals_ % valueSlots;
    *slot = value;
    check(cudaMemcpyAsync(word, slot, sizeof *slot, cudaMemcpyDefault, streams_[0]),
          fmt::format("signal at {}", fmt::ptr(word)));
    ++copiedSignals_;
    ++posted_;
  }

  std::uint64_t posted() const noexcept override { return posted_; }

  std::uint64_t progress() override {
    if (done_ == posted_) return done_;
    OnDevice const on(device_);
    if (marked_ != posted_) {
      joinStreams();
      if (freeEvents_.empty()) freeEvents_.push_back(makeEvent());
      marks_.push_back({freeEvents_.back(), posted_, copiedSignals_});
      freeEvents_.pop_back();
      check(cudaEventRecord(marks_.back().event, streams_[0]), "record an event");
      marked_ = posted_;
    }
    while (!marks_.empty()) {
      auto const& mark = marks_.front();
      auto const code = cudaEventQuery(mark.event);
      if (code == cudaErrorNotReady) {
        (void)cudaGetLastError();
        break;
      }
      check(code, "a copy of a proxy failed");
      done_ = mark.posts;
      signalsDone_ = mark.signals;
      freeEvents_.push_back(mark.event);
      marks_.pop_front();
    }
    return done_;
  }

 private:
  struct Mark {
    cudaEvent_t event;
    std::uint64_t posts;
    std::uint64_t signals;
  };

  static cudaEvent_t makeEvent() {
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "make an event");
    return event;
  }

  // What comes in the first stream comes after what is in the others.
  void joinStreams() {
    for (std::size_t i = 1; i < streamCount; ++i) {
      if (!used_[i]) continue;
      if (freeEvents_.empty()) freeEvents_.push_back(makeEvent());
      auto* const event = freeEvents_.back();
      check(cudaEventRecord(event, streams_[i]), "record an event");
      // The wait keeps what was recorded, so the event may be recorded again at once.
      check(cudaStreamWaitEvent(streams_[0], event), "order a CUDA stream after another");
      used_[i] = false;
    }
  }

  int device_;
  PFN_cuStreamWriteValue64_v11070 writeValue_;
  std::array<cudaStream_t, streamCount> streams_{};
  std::array<bool, streamCount> used_{};  // since they were last joined
  std::vector<cudaEvent_t> freeEvents_;
  std::deque<Mark> marks_;
  std::uint64_t* values_ = nullptr;
  std::uint64_t posted_ = 0;
  std::uint64_t marked_ = 0;
  std::uint64_t done_ = 0;
  std::uint64_t copiedSignals_ = 0;
  std::uint64_t signalsDone_ = 0;
};

}  // namespace

std::unique_ptr<CopyEngine> makeCudaCopyEngine(int device) { return std::make_unique<CudaCopyEngine>(device); }

}  // namespace mscclpp
