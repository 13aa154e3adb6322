// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a collective demands of each chunk of output.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "mscclpp/dsl/core/program.hpp"

namespace mscclpp::dsl {

// The input chunks that output `chunk` of `rank` must be the reduction of, sorted; empty: it may hold anything.
constexpr std::vector<Contribution> demanded(Program const& program, int rank, int chunk) {
  auto const& collective = program.collective;
  int const factor = collective.chunkFactor;
  switch (collective.kind) {
    case CollectiveKind::allGather:
      return {{chunk / factor, chunk % factor}};
    case CollectiveKind::allToAll:
      return {{chunk / factor, rank * factor + chunk % factor}};
    case CollectiveKind::sendReceive:
      return {{(rank + collective.ranks - collective.shift) % collective.ranks, chunk}};
    case CollectiveKind::allReduce:
    case CollectiveKind::reduceScatter: {
      int const of = collective.kind == CollectiveKind::allReduce ? chunk : rank * factor + chunk;
      std::vector<Contribution> holds(static_cast<std::size_t>(collective.ranks));
      Contribution* const each = holds.data();
      for (int from = 0; from < collective.ranks; ++from) each[from] = {from, of};
      return holds;
    }
    case CollectiveKind::custom:
      break;
  }
  std::vector<Contribution> holds;
  for (auto const& wanted : program.expectations) {
    if (wanted.rank == rank && wanted.chunk == chunk) holds = wanted.holds;
  }
  std::sort(holds.begin(), holds.end());
  return holds;
}

// As ==, in fewer calls for compilers to evaluate.
constexpr bool isSame(std::vector<Contribution> const& a, std::vector<Contribution> const& b) {
  if (a.size() != b.size()) return false;
  Contribution const *const x = a.data(), *const y = b.data();
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (x[i].rank != y[i].rank || x[i].chunk != y[i].chunk) return false;
  }
  return true;
}

}  // namespace mscclpp::dsl
