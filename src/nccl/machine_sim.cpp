// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "nccl/machine_sim.hpp"

#include <utility>

#include "mscclpp/dsl/plan_algorithm.hpp"
#include "mscclpp/host/stream.hpp"
#include "nccl/machine.hpp"
#include "nccl/result.hpp"

namespace mscclpp::nccl {
namespace {
thread_local int current = 0;
}

DeviceKind const machine = DeviceKind::sim;

Device currentDevice() { return {machine, current}; }

// A kernel that is compiled late takes the machine's functions from the program, and this library shows none.
std::shared_ptr<Algorithm const> planAlgorithm(dsl::ExecutionPlan const& plan) { return dsl::planAlgorithm(plan); }

KeepDevice::KeepDevice(Device device) : before_(std::exchange(current, device.ordinal)) {}
KeepDevice::~KeepDevice() { current = before_; }

}  // namespace mscclpp::nccl

using namespace mscclpp;

extern "C" {

__attribute__((visibility("default"))) void mscclppNcclSimSetDevice(int ordinal) { nccl::current = ordinal; }

__attribute__((visibility("default"))) void* mscclppNcclSimCreateStream() {
  void* made = nullptr;
  (void)nccl::guarded("mscclppNcclSimCreateStream", [&] {
    made = runtime(nccl::machine).createStream(nccl::current);
    return ncclSuccess;
  });
  return made;
}

__attribute__((visibility("default"))) int mscclppNcclSimSynchronizeStream(void* stream) {
  return nccl::guarded("mscclppNcclSimSynchronizeStream", [&] {
    Stream::borrow(nccl::currentDevice(), stream).synchronize();
    return ncclSuccess;
  });
}

__attribute__((visibility("default"))) int mscclppNcclSimDestroyStream(void* stream) {
  return nccl::guarded("mscclppNcclSimDestroyStream", [&] {
    Stream::borrow(nccl::currentDevice(), stream).synchronize();
    runtime(nccl::machine).destroyStream(stream);
    return ncclSuccess;
  });
}
}
