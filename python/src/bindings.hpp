// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The parts of the module _mscclpp, and what they share.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "mscclpp/device/data_type.hpp"
#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/device.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/stream.hpp"

namespace mscclpp::python {

namespace nb = nanobind;

// For calls that may wait.
using WithoutGil = nb::call_guard<nb::gil_scoped_release>;

void bindErrors(nb::module_& module);
void bindDevices(nb::module_& module);
void bindCommunicators(nb::module_& module);
void bindChannels(nb::module_& module);
void bindProxies(nb::module_& module);
void bindPlans(nb::module_& module);
void bindAlgorithms(nb::module_& module);
void bindExperts(nb::module_& module);
void bindPrograms(nb::module_& module);
void bindGroups(nb::module_& module);

// InvalidUsage in Python.
[[noreturn]] inline void refuse(std::string const& why) { throw Error(ErrorCode::invalidUsage, why); }

// Python names memory and streams by numbers.
inline void* pointerOf(std::uintptr_t number) { return reinterpret_cast<void*>(number); }

// A function of Python, the last reference to which may go while no interpreter's lock is held.
inline std::shared_ptr<nb::callable> heldFunction(nb::callable function) {
  return {new nb::callable(std::move(function)), [](nb::callable* gone) {
            nb::gil_scoped_acquire const lock;
            delete gone;
          }};
}

// The device that this thread works with: CUDA's current one, or the simulated one of this rank of the host where there
// is no GPU or MSCCLPP_DEVICE says sim.
Device currentDevice();

// A stream by its handle. 0 is on GPUs the default stream; on the simulated machine calls in it end before they return,
// as those of CPU tensors do.
class CallStream {
 public:
  CallStream(Communicator const& communicator, std::uintptr_t handle);
  Stream const& operator*() const { return borrowed_ ? *borrowed_ : *own_; }
  // Throws what went wrong in a call that ends here.
  void finish(Communicator const& communicator) const;

 private:
  std::optional<Stream> borrowed_;
  Stream const* own_ = nullptr;
};

}  // namespace mscclpp::python
