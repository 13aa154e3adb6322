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

// The same with rank r on devices[r]. Ranks may share a device, to try code for many ranks on few, correctness and not
// speed:
// - the blocks of all its ranks' kernels must fit on it at once, since they wait for each other; the collections of
//   collectives/ see to that, with a block for each multiprocessor in all;
// - nothing that waits for all work of a device may come between the first and the last launch of kernels that wait for
//   each other. Memory that is released here stays until all ranks have returned for this reason;
// - start the program with CUDA_MODULE_LOADING=EAGER, or CUDA may wait so when it loads a kernel at its first launch,
//   and with CUDA_DEVICE_MAX_CONNECTIONS=32, or streams beyond the eighth take turns with others;
// - a rank puts its next kernel into its stream when the one before has ended. With two in a stream, an H200 was seen
//   now and then not to start another rank's kernel, for which the first one waited.
// Throws invalidUsage for no devices, and for one that is not there.
void runRanks(std::span<Device const> devices, std::function<void(Communicator&)> const& rankMain);

// `ranks` devices of `kind`, each in turn: {0, 1, 0, 1} for 4 ranks on 2. Throws invalidUsage where there is none.
std::vector<Device> devicesInTurn(DeviceKind kind, int ranks);

}  // namespace mscclpp
