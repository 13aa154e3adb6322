// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a rank joins rank 0 over TCP: it finds rank 0, says where it listens itself, and receives the table of all.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "host/net/handshake.hpp"

namespace mscclpp {

// What rank 0 sends to each rank that joined, followed by one TableEntry per rank, or by `textBytes` of explanation.
struct TableHeader {
  std::uint64_t magic;
  std::uint32_t complete;
  std::uint32_t textBytes;
  Key128 session;
};
struct TableEntry {
  WireAddress listener;
  std::uint32_t reserved;
  std::uint64_t hostIdentity;
};

struct Joined {
  FileHandle socket;    // to rank 0
  FileHandle listener;  // of this rank
  FileHandle door;      // of its DeathWatch
  Key128 session{};
  std::vector<TableEntry> table;  // by rank
};

// Rank 0 is at one of `addresses`. Listens on the named interface, or on the way to rank 0. Throws where it is not
// there within the limit, refuses this rank, or the others do not come.
Joined joinRankZero(int rank, int ranks, std::vector<SocketAddress> const& addresses, std::string const& interfaceName,
                    Key128 const& secret, Deadline const& deadline);

}  // namespace mscclpp
