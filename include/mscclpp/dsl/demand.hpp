// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a collective demands of each chunk of output.
#pragma once

#include <algorithm>
#include <vector>

#include "mscclpp/dsl/program.hpp"

namespace mscclpp::dsl {

// The input chunks that output `chunk` of `rank` must be the reduction of, sorted; empty: it may hold anything.
constexpr std::vector<Contribution> demanded(Program const& program, int rank, int chunk) {
  auto const& collective = program.collective;
  int const factor = collective.chunkFactor;
  std::vector<Contribution> holds;
  switch (collective.kind) {
    case CollectiveKind::allGather:
      holds.push_back({chunk / factor, chunk % factor});
      break;
    case CollectiveKind::allReduce:
      for (int from = 0; from < collective.ranks; ++from) holds.push_back({from, chunk});
      break;
    case CollectiveKind::reduceScatter:
      for (int from = 0; from < collective.ranks; ++from) holds.push_back({from, rank * factor + chunk});
      break;
    case CollectiveKind::allToAll:
      holds.push_back({chunk / factor, rank * factor + chunk % factor});
      break;
    case CollectiveKind::sendReceive:
      holds.push_back({(rank + collective.ranks - 1) % collective.ranks, chunk});
      break;
    case CollectiveKind::custom:
      for (auto const& wanted : program.expectations) {
        if (wanted.rank == rank && wanted.chunk == chunk) holds = wanted.holds;
      }
      std::sort(holds.begin(), holds.end());
      break;
  }
  return holds;
}

}  // namespace mscclpp::dsl
