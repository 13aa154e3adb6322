// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ranks as threads of this process: the shortest way to a running program on one machine, for examples, tests and
// tools. Programs with a process per rank use bootstrapFromEnvironment() (launcher.hpp) instead; the code of a rank is
// the same.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/device.hpp"

namespace mscclpp {

// Runs `rankMain` in one thread per rank, rank r on device r of `kind`, and returns when all have returned. When one
// throws, the waits of all others' kernels are ended, and the first exception (the cause, where it can be told from its
// consequences) is rethrown here. Throws invalidUsage for more ranks than devices.
void runRanks(DeviceKind kind, int ranks, std::function<void(Communicator&)> const& rankMain);

// The same with rank r on devices[r]. Ranks may share a device, to try code for many ranks on few: then the blocks of
// all its ranks' kernels must fit on it at once, since they wait for each other, and between the first and the last of
// the launches that do, no rank may call what waits for a device, such as a copy, an allocation or a release: meet at
// the bootstrap's barrier ahead of them. No figure of speed follows from such a run. Throws invalidUsage for no
// devices, and for one that is not there.
void runRanks(std::span<Device const> devices, std::function<void(Communicator&)> const& rankMain);

// `ranks` devices of `kind`, each in turn: {0, 1, 0, 1} for 4 ranks on 2. Throws invalidUsage where there is none.
std::vector<Device> devicesInTurn(DeviceKind kind, int ranks);

}  // namespace mscclpp
