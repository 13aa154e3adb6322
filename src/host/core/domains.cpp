// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/core/domains.hpp"

#include <algorithm>
#include <cstddef>

#include "mscclpp/base/config.hpp"

namespace mscclpp {

std::vector<int> domainsOf(std::span<RankPlace const> places) {
  auto const firstWith = [&](std::size_t rank, auto const& joined) {
    std::size_t first = 0;
    while (first < rank && !joined(first)) ++first;
    return first;
  };
  std::vector<std::size_t> hosts;
  std::vector<FabricClique> cliques;  // by the first rank of a host: that of all its ranks
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    auto const& own = places[rank];
    hosts.push_back(firstWith(
        rank, [&](std::size_t other) { return places[other].host == own.host && places[other].node == own.node; }));
    cliques.push_back(own.clique);
    if (auto& common = cliques[hosts[rank]]; common != own.clique) common = {};
  }
  auto const joined = [&](std::size_t one, std::size_t other) {
    auto const& clique = cliques[hosts[one]];
    return hosts[one] == hosts[other] || (clique && clique == cliques[hosts[other]]);
  };
  std::vector<int> domains;
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    std::ptrdiff_t members = 0;
    for (std::size_t other = 0; other < places.size(); ++other) members += joined(rank, other) ? 1 : 0;
    auto const first =
        members > maxTeamSize ? hosts[rank] : firstWith(rank, [&](std::size_t other) { return joined(rank, other); });
    domains.push_back(static_cast<int>(first));
  }
  return domains;
}

}  // namespace mscclpp
