// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A kind of device, as kernels that are compiled at run time see it.
#pragma once

#include <memory>
#include <string>

#include "jit/request.hpp"

namespace mscclpp::jit {

class Machine {
 public:
  virtual ~Machine() = default;
  virtual Target targetOf(Device device) = 0;
  // The compiler and its target, for the key of what it makes.
  virtual std::string compiler(Target const& target) = 0;
  // What is kept on disk.
  virtual std::string compile(Request const& request, Target const& target) = 0;
  virtual std::shared_ptr<AnyKernel::Loaded const> load(std::string const& compiled, Device device,
                                                        std::string const& type) = 0;
};

// Throws unsupported where this build has no such devices.
Machine& machineOf(DeviceKind kind);

}  // namespace mscclpp::jit

namespace mscclpp {

struct jit::AnyKernel::Loaded {
  virtual ~Loaded() = default;
  virtual void launch(Stream const& stream, LaunchShape const& shape, void const* arguments) const = 0;
};

}  // namespace mscclpp
