// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which ranks map each other's memory: those of a domain, which is a host, or several that NVLink joins. The one rule.
//
// A host is what can hand over file descriptors (host/net/host_identity.hpp), or one of the nodes into which a machine
// divides itself (Runtime::nodeOf). Descriptors, IPC handles, multicast memory, what tells of deaths early and what
// proxies choose by themselves stay within a host, whatever the domain.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/fabric_memory.hpp"

namespace mscclpp {

// Where a rank is.
struct RankPlace {
  std::uint64_t host;  // hostIdentity()
  std::int32_t node;   // Runtime::nodeOf
  FabricClique clique;
};

// The first rank of each rank's domain. Hosts are one domain where all their ranks are of one clique, so that two ranks
// of a host reach the same ranks, and where these are maxTeamSize at most.
std::vector<int> domainsOf(std::span<RankPlace const> places);

}  // namespace mscclpp
