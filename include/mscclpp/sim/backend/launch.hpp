// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Starts a kernel on the simulated machine. Called by launch/launch.hpp.
#pragma once

#include <functional>
#include <string>
#include <typeinfo>

#include "mscclpp/layout/launch_shape.hpp"
#include "mscclpp/sim/backend/installed.hpp"

namespace mscclpp::sim {

// A program that launches on the simulator has the simulator's Runtime.
inline bool const installedByLaunch = ensureInstalled();

// The name of a kernel's type as source code has it.
std::string kernelName(std::type_info const& type);

// Puts a kernel into the stream's queue; `perThread` is run once by each of its threads and must hold its arguments by
// value. `name` appears in errors. Throws invalidUsage for a shape that no device could run.
void enqueueKernel(void* stream, LaunchShape const& shape, std::string name, std::function<void()> perThread);

}  // namespace mscclpp::sim
