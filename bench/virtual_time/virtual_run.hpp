// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How long a collective of the library takes on the simulated machine's clocks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mscclpp/algorithms/core/traits.hpp"
#include "mscclpp/layout/launch_shape.hpp"
#include "mscclpp/sim/timing.hpp"

namespace virtual_time {

// Names of the kernel table.
std::vector<std::string> timedAlgorithms(mscclpp::Collective collective);

struct Query {
  mscclpp::Collective collective = mscclpp::Collective::allReduce;
  std::string algorithm;
  int ranks = 1;
  std::uint64_t bytes = 0;  // the whole buffer, as in SelectionRequest
  unsigned blocks = 0;      // 0: as the library would launch it
  unsigned threads = 0;
  bool overlapped = true;
};

// Seconds from one call to the next in a chain of bfloat16, and the launch. Throws invalidUsage where there is no such
// kernel, or it does not run so.
struct Answer {
  double seconds = 0;
  mscclpp::LaunchShape shape{};
};
Answer timeOf(Query const& query, mscclpp::sim::TimingModel const& model);

}  // namespace virtual_time
