// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The figures of the cost model, measured: cases of the library's own kernels that differ by one figure each, or that
// one of them bounds. So the figures hold what the kernels really take, and the results are checked like any others.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "mscclpp/collectives/cost_model.hpp"
#include "plan/options.hpp"
#include "plan/plan.hpp"

namespace mscclpp::bench {

enum class Limit : std::uint8_t {
  oneExchange,       // kernel + packets
  twoExchanges,      // kernel + 2 packets
  withoutOverlap,    // the first, launched behind the kernel ahead
  twoMeetings,       // kernel + 2 meetings
  throughStage,      // kernel + meeting + stage
  byBulkCopies,      // kernel + 2 meetings + bulk
  copiesToAll,       // call + copies
  copiesReduced,     // call + copies + chunk
  copiesTwice,       // call + 2 copies + chunk
  manyBlocksStore,   // bound by the links
  someBlocksStore,   // the same, less of them
  oneBlockStores,    // bound by a multiprocessor
  loadsFromPeers,    // bound by the links
  copyEnginesStore,  // bound by the links
};
inline constexpr std::size_t limitCount = 14;

struct LimitCase {
  Limit limit{};
  std::string_view what;
  Collective collective{};
  std::string_view algorithm;
  std::uint64_t bytes = 0;
  unsigned blocks = 0;  // 0: the library's choice
  unsigned threads = 0;
  bool overlapped = true;
};

using LimitCases = std::array<LimitCase, limitCount>;
using LimitTimes = std::array<double, limitCount>;  // seconds of an operation, in the order of Limit

LimitCases limitCases(World const& world, unsigned multiprocessors);

// What follows from the times. Figures that would come out negative, as noise may make small ones, are 0.
MachineModel solveLimits(LimitCases const& cases, LimitTimes const& seconds, int ranks, std::string device,
                         unsigned multiprocessors, double memoryRate);

// Measures on all ranks, prints what it found and writes `options.limits`, a file: of ranks on several hosts a
// NetworkModel, else a MachineModel. `digest` as of a Session. Throws UsageError where nothing lies between the ranks.
void measureLimits(Options const& options, std::uint64_t digest);

}  // namespace mscclpp::bench
