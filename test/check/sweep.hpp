// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Host code of ranks under many schedules, none of which may give a finding. MSCCLPP_CHECK_SCHEDULES is the number of
// schedules of each program and rank count, each with another shape of it; 1000 for the long run.
// MSCCLPP_CHECK_SHARD=I/N leaves the others to the processes of the other N - 1 shards; I counts from 0.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "check/explore_ranks.hpp"

namespace check_test {

inline int schedules() {
  auto const* const text = std::getenv("MSCCLPP_CHECK_SCHEDULES");
  return text == nullptr ? 4 : std::max(1, std::atoi(text));
}

// Whether that exploration is for this process.
inline bool isOurs(int exploration) {
  auto const* const text = std::getenv("MSCCLPP_CHECK_SHARD");
  if (text == nullptr) return true;
  int shard = 0;
  int shards = 0;
  REQUIRE_MESSAGE((std::sscanf(text, "%d/%d", &shard, &shards) == 2 && 0 <= shard && shard < shards),
                  "MSCCLPP_CHECK_SHARD wants I/N with 0 <= I < N; got '", text, "'");
  return exploration % shards == shard;
}

// Half of the schedules at random, half by random priorities; `variant` changes from one to the next.
inline void sweep(int ranks, std::function<void(Rank&, std::uint64_t variant)> const& body,
                  sim::MachineOptions const& machine = {}) {
  CAPTURE(ranks);
  // A machine is begun anew for each exploration, so those are not too short.
  int const together = std::max(1, schedules() / 50);
  for (int first = 0, variant = 1; first < schedules(); first += together, ++variant) {
    if (!isOurs(variant - 1)) continue;
    CAPTURE(variant);
    sim::ExploreOptions const options{
        .strategy = variant % 2 == 1 ? sim::Strategy::random : sim::Strategy::pct,
        .schedules = std::min(together, schedules() - first),
        .seed = 1 + static_cast<std::uint64_t>(first),
    };
    auto const result = exploreRanks(
        {ranks, machine}, [&](Rank& rank) { body(rank, static_cast<std::uint64_t>(variant)); }, options);
    REQUIRE_MESSAGE(result.ok(), sim::toText(result));
    CHECK(result.schedules >= static_cast<std::uint64_t>(options.schedules));
  }
}

}  // namespace check_test
