// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Multicast memory of NVIDIA GPUs, by the driver's functions. They are looked up when first needed, so nothing of the
// driver is touched before, and neither toolkit nor GPU is needed to build or test this.
#pragma once

#include <memory>
#include <string>

#include "mscclpp/host/runtime.hpp"

namespace mscclpp {

// Whether the driver has the functions and says that the device can take part; if not, why.
bool driverSupportsMulticast(int device, std::string& why);
// For the device of that number. Throws unsupported where the driver lacks the functions.
std::unique_ptr<MulticastMemory> makeDriverMulticast(int device);

}  // namespace mscclpp
