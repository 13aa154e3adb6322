// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The least that a launch can take of the processor's time: CUDA's own call, with a kernel that does nothing.
#pragma once

#include <functional>

#include "mscclpp/host/stream.hpp"
#include "mscclpp/layout/launch_shape.hpp"

namespace mscclpp::bench {

// Launches with 512 bytes of parameters, and with programmatic dependent launch where the shape overlaps, on the
// stream's device, which is the calling thread's.
std::function<void()> makeBareLaunch(Stream const& stream, LaunchShape const& shape);

}  // namespace mscclpp::bench
