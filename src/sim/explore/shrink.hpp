// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Delta debugging (Zeller, Hildebrandt 2002): leaves decisions of a schedule out as long as the fault stays.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>

#include "sim/schedule/schedule.hpp"

namespace mscclpp::sim {

// `attempt` runs a schedule and returns the decisions that were really taken if the fault showed, else nothing; false
// from `mayGoOn` ends the search early. The result is a schedule that showed the fault, or the first one.
inline Schedule shrink(Schedule schedule, std::function<std::optional<Schedule>(Schedule const&)> const& attempt,
                       std::function<bool()> const& mayGoOn) {
  auto const adopt = [&](Schedule const& candidate) {
    auto const taken = attempt(candidate);
    if (!taken) return false;
    schedule = taken->size() < candidate.size() ? *taken : candidate;
    return true;
  };
  if (schedule.empty() || !mayGoOn() || adopt({})) return schedule;
  for (std::size_t parts = 2; schedule.size() > 1;) {
    bool smaller = false;
    auto const part = (schedule.size() + parts - 1) / parts;
    for (std::size_t first = 0; first < schedule.size() && !smaller; first += part) {
      if (!mayGoOn()) return schedule;
      auto const last = std::min(first + part, schedule.size());
      Schedule rest(schedule.begin(), schedule.begin() + static_cast<std::ptrdiff_t>(first));
      rest.insert(rest.end(), schedule.begin() + static_cast<std::ptrdiff_t>(last), schedule.end());
      smaller = adopt(rest);
    }
    if (smaller) {
      parts = std::max<std::size_t>(parts - 1, 2);
    } else if (part == 1) {
      break;
    } else {
      parts = std::min(parts * 2, schedule.size());
    }
  }
  return schedule;
}

}  // namespace mscclpp::sim
