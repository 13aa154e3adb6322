// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/cuda/cuda_timer.hpp"

#include <cuda_runtime_api.h>

#include "host/cuda/cuda_error.hpp"

namespace mscclpp {
namespace {

// An event of the device that is the current one.
class Event {
 public:
  Event() { check(cudaEventCreate(&event_), "make an event"); }
  ~Event() { (void)cudaEventDestroy(event_); }
  Event(Event const&) = delete;
  Event& operator=(Event const&) = delete;

  void record(Stream const& stream) const {
    check(cudaEventRecord(event_, static_cast<cudaStream_t>(stream.native())), "record an event");
  }
  double secondsSince(Event const& earlier) const {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, earlier.event_, event_), "read the time between two events");
    return static_cast<double>(milliseconds) * 1e-3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

class SelectedDevice {
 public:
  explicit SelectedDevice(int device) {
    check(cudaGetDevice(&before_), "ask for the current CUDA device");
    if (before_ != device) selectDevice(device);
  }
  ~SelectedDevice() { (void)cudaSetDevice(before_); }
  SelectedDevice(SelectedDevice const&) = delete;
  SelectedDevice& operator=(SelectedDevice const&) = delete;

 private:
  int before_ = 0;
};

}  // namespace

double timeOnCuda(Stream const& stream, std::function<void()> const& work) {
  SelectedDevice const selected(stream.device().ordinal);
  Event const begin;
  Event const end;
  begin.record(stream);
  work();
  end.record(stream);
  stream.synchronize();
  return end.secondsSince(begin);
}

}  // namespace mscclpp
