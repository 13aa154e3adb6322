// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "nccl/machine_sim.hpp"

#include <utility>

#include "mscclpp/dsl/plan_algorithm.hpp"
#include "nccl/machine.hpp"

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

extern "C" void mscclppNcclSimSetDevice(int ordinal) { mscclpp::nccl::current = ordinal; }
