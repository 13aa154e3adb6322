// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where rank 0 waits for the others: ports of unique ids that were made and not yet used, and listeners of addresses.
#pragma once

#include <string>
#include <vector>

#include "base/random.hpp"
#include "host/net/socket.hpp"
#include "mscclpp/host/bootstrap/unique_id.hpp"

namespace mscclpp {

// Keeps the port of an id until rank 0 takes it, in this process or in a child, to which it is passed by fork(), or
// listens there from elsewhere on this host. Of many that nobody takes, the oldest is given up.
void keepPort(UniqueId::Secret const& secret, FileHandle socket);
// Listens there. Empty where it is not here, or was taken.
FileHandle takePort(UniqueId::Secret const& secret);

// At the one of a name's addresses that is this host's. A name that stands for a loopback address here may stand for
// another elsewhere (127.0.1.1), and one that stands for none of this host may be forwarded to it: then at all
// addresses. `purpose` begins the error text.
FileHandle listenFor(std::string const& purpose, std::string const& host, std::vector<SocketAddress> const& addresses);

// What MSCCLPP_SECRET stands for; zero where it is empty.
Key128 secretOf(std::string const& text);

}  // namespace mscclpp
