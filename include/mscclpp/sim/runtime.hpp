// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The simulated machine of this process: how many devices, how large, and its registration as a Runtime.
//
// Device memory is shared memory: another process maps it from the descriptor that exportDescriptor returns. Kernels
// advance as on a GPU, whether or not host code waits for them: whoever waits in synchronize() or asks idle() drives
// the machine, one thread at a time, and a helper thread does while nobody waits. See run.hpp for the deterministic
// way.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/sim/backend/installed.hpp"

namespace mscclpp::sim {

// What the one machine of this process is like.
struct MachineOptions {
  int devices = 0;                                  // 0: from MSCCLPP_SIM_DEVICES, else 8
  std::size_t memoryBytes = std::size_t{16} << 30;  // per device
  int devicesPerNode = 0;                           // 0: MSCCLPP_SIM_DEVICES_PER_NODE, else all on one node; kernels
                                                    // reach no memory of another
  int multiprocessors = 16;                         // each holds 2048 threads; further blocks start as others end
  std::size_t threadStackBytes = std::size_t{64} << 10;
  bool stackGuards = true;       // a page behind each stack that must not be touched; the system has room for some
                                 // 30,000 of them. Without, a kernel that overruns its stack goes wrong unseen
  bool linesArriveWhole = true;  // whether links deliver 128-byte lines whole, as NVLink does
  bool multicast = true;         // whether a switch joins the devices that reads and writes several memories at once
  bool checkAddresses = true;    // fail kernels whose ordered accesses leave the device's memory
  std::uint64_t seed = 1;        // outside of deterministic runs
  double preemption = 0;         // chance that a thread is interrupted at a memory step
  bool operator==(MachineOptions const&) const = default;
};

// Replaces the machine's options. Throws invalidUsage for values out of range and while memory or streams exist.
void install(MachineOptions const& options);

}  // namespace mscclpp::sim
