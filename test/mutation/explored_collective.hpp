// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One collective under many schedules, its results compared.
#pragma once

#include <cstdint>

#include "explored.hpp"
#include "support/collective.hpp"

namespace mscclpp_test {

template <class Collective, class T = std::uint8_t>
void explored(CollectiveCase const& test, int schedules = 3) {
  everySchedule(
      test.ranks, [&](Rank& rank) { checkCollectiveRank<Collective, T>(rank, test); }, schedules);
}

}  // namespace mscclpp_test
