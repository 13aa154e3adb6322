// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every litmus test: those of the public list, then ours.
#pragma once

#include <span>
#include <vector>

#include "litmus/table/barriers.hpp"
#include "litmus/table/buffering.hpp"
#include "litmus/table/coherence.hpp"
#include "litmus/table/passing.hpp"
#include "litmus/table/updates.hpp"

namespace litmus {

inline std::vector<Litmus> joined(std::initializer_list<std::span<Litmus const>> families) {
  std::vector<Litmus> all;
  for (auto const family : families) all.insert(all.end(), family.begin(), family.end());
  return all;
}

inline std::vector<Litmus> listedTests() {
  return joined({coherenceListed, passingListed, bufferingListed, updatesListed, barriersListed});
}

inline std::vector<Litmus> allTests() {
  return joined({coherenceListed, passingListed, bufferingListed, updatesListed, barriersListed, coherenceOwn,
                 passingOwn, bufferingOwn, updatesOwn, barriersOwn});
}

}  // namespace litmus
