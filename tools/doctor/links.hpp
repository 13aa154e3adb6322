// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Measures the links between devices: copies from each to each other, and the round trip of a signal between kernels.
// On the simulated machine by virtual time. Takes 64 MiB of each device and some milliseconds a pair.
#pragma once

#include <functional>
#include <vector>

#include "doctor/report.hpp"
#include "mscclpp/host/communicator.hpp"

namespace mscclpp::doctor {

// By the device that copies or signals, and the other one; 0 where that is not reached.
struct Links {
  std::vector<std::vector<double>> copies;      // GB/s; to itself: within its memory
  std::vector<std::vector<double>> roundTrips;  // microseconds
};

using Reaches = std::function<bool(int, int)>;  // alike in both directions

// By all of the first `devices` devices, in this process. Throws Error.
Links measureLinks(DeviceKind machine, int devices, Reaches const& reaches);

// What was measured, and links that are slower than half of the best.
void addLinks(Report& report, DeviceKind machine, Links const& links);

// One rank's part, compiled for each machine: collective over one rank for each device. It fills its own rows.
// `nanoseconds`: this rank's clock.
template <DeviceKind machine>
void probeLinks(Communicator const& communicator, std::function<double()> const& nanoseconds, Reaches const& reaches,
                Links& links);

}  // namespace mscclpp::doctor
