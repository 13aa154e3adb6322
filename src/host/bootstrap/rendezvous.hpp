// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How processes of one host that know only a common word (their job's name) agree on a unique id: rank 0 makes it and
// hands it out over a unix socket whose name comes from the word and the user.
#pragma once

#include <chrono>
#include <string>

#include "mscclpp/host/bootstrap/unique_id.hpp"

namespace mscclpp {

// Rank 0: returns when every other rank has the id. Throws timeout naming those that did not ask.
void handOut(UniqueId const& id, std::string const& key, int ranks, std::chrono::nanoseconds limit);
// The others.
UniqueId fetchUniqueId(std::string const& key, int rank, int ranks, std::chrono::nanoseconds limit);

}  // namespace mscclpp
