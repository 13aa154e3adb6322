// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Layers of experts of every kind, for the checker.
#pragma once

#include <cstdint>
#include <random>

#include "support/experts.hpp"

namespace mscclpp_test {

inline ExpertsCase caseOf(int ranks, std::uint64_t variant) {
  std::mt19937_64 engine(variant * 4099 + static_cast<std::uint64_t>(ranks));
  auto const below = [&](unsigned limit) { return static_cast<std::uint32_t>(engine() % limit); };
  ExpertsCase test{.ranks = ranks};
  test.limits = {.experts = 1 + below(2 * static_cast<unsigned>(ranks)),
                 .topK = 1 + below(4),
                 .tokens = 1 + below(6),
                 .hidden = 1 + below(40),
                 .elementBytes = 4,
                 .blocks = 1 + below(3),
                 .partOfEach = below(2) == 0};
  test.crowd = static_cast<Crowd>(below(4));
  test.alignment = 1 + below(4);
  test.rowsOfExpert = below(3) == 0 ? 1 + below(4) : 0;
  test.movers = test.rowsOfExpert == 0 ? below(3) : 0;
  test.threads = 32 + 32 * below(2);
  test.overlap = below(2) == 0;
  test.repeats = 1 + below(2);
  test.limits.transport = variant % 4 == 1   ? layout::ExpertTransport::memory
                          : variant % 4 == 2 ? layout::ExpertTransport::automatic
                                             : layout::ExpertTransport::packets;
  test.byToken = test.movers == 0 && test.rowsOfExpert == 0 && below(3) == 0;
  test.seed = static_cast<unsigned>(variant);
  return test;
}

}  // namespace mscclpp_test
