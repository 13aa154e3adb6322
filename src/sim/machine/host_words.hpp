// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How host code shares words with simulated kernels (host/wait.hpp): in a deterministic run through the observer and
// the scheduler, otherwise as plain memory.
#pragma once

#include "mscclpp/host/wait.hpp"

namespace mscclpp::sim {

// For all code of a deterministic run.
extern HostWords const hostWords;
// For ordinary threads beside the machine, whose kernels need the processors more.
extern HostWords const restingHostWords;

}  // namespace mscclpp::sim
