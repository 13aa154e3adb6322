// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Measures the latencies of a TimingModel. Single source: on GPUs it finds them, on the simulated machine it shows that
// a timed run takes what its model says.
#pragma once

#include <functional>
#include <memory>

#include "machine/timer.hpp"
#include "mscclpp/host/communicator.hpp"
#include "mscclpp/sim/timing.hpp"

namespace timing_bench {

using MakeTimer = std::function<std::unique_ptr<mscclpp::bench::Timer>(mscclpp::Stream const&)>;

// Collective over 2 ranks or more: the first two measure. What this does not measure is as in `rest`. All ranks get the
// same. Throws Error.
mscclpp::sim::TimingModel measure(mscclpp::Communicator const& communicator, MakeTimer const& makeTimer,
                                  unsigned rounds, mscclpp::sim::TimingModel const& rest);

}  // namespace timing_bench
