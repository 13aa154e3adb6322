// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds out from the environment who started this process, and joins it with the other ranks. Known are torchrun, Open
// MPI's mpirun, SLURM's srun, and MSCCLPP_RANK / MSCCLPP_WORLD_SIZE set by hand. docs/host.md says how each one's ranks
// find rank 0.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "mscclpp/host/bootstrap/bootstrap.hpp"
#include "mscclpp/host/env.hpp"

namespace mscclpp {

// Who started this process, which rank it is, and where it finds rank 0.
struct LaunchInfo {
  std::string launcher = "none";  // "mscclpp", "torchrun", "openmpi", "slurm"; "none": one process by itself
  int rank = 0;
  int size = 1;
  int localRank = 0;  // among the ranks of this host
  // Exactly one of the two is set where size > 1.
  std::string address;        // rank 0 listens here, as TcpBootstrap::initialize takes it
  std::string rendezvousKey;  // all ranks are on this host: they meet at a socket whose name comes from this
};

// Pure. Throws invalidUsage where a launcher's variables contradict each other or rank 0 cannot be found from them.
LaunchInfo detectLaunch(VariableLookup const& lookup);
LaunchInfo launchFromEnvironment();

// The first host of a SLURM list such as "node[01-04,07],other".
std::string firstHostOf(std::string const& slurmNodeList);

// Collective. May be called several times; calls are matched by order. A process by itself gets a bootstrap of one
// rank.
std::shared_ptr<Bootstrap> bootstrapFromEnvironment(std::optional<std::chrono::nanoseconds> timeout = {});

// Joins by hand: what bootstrapFromEnvironment does for `launch`. `sequence` tells bootstraps of the same launch apart.
std::shared_ptr<Bootstrap> bootstrapFor(LaunchInfo const& launch, int sequence,
                                        std::optional<std::chrono::nanoseconds> timeout = {});

}  // namespace mscclpp
