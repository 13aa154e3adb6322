// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ranks as threads of this process: the shortest way to a running program on one machine, for examples, tests and
// tools. Programs with a process per rank use bootstrapFromEnvironment() (launcher.hpp) instead; the code of a rank is
// the same.
#pragma once

#include <functional>

#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/device.hpp"

namespace mscclpp {

// Runs `rankMain` in one thread per rank, rank r on device r of `kind`, and returns when all have returned. When one
// throws, the waits of all others' kernels are ended, and the first exception (the cause, where it can be told from its
// consequences) is rethrown here. Throws invalidUsage for more ranks than devices.
void runRanks(DeviceKind kind, int ranks, std::function<void(Communicator&)> const& rankMain);

}  // namespace mscclpp
