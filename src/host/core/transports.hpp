// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All the transports there are, by name.
#pragma once

#include <memory>
#include <string>

#include "host/transport/transport.hpp"

namespace mscclpp {

// Why `transport` cannot be used on this machine or in this build; empty: it can. Cheap to repeat.
std::string missing(Transport transport);
// Throws unsupported with that reason.
std::shared_ptr<TransportContext> makeTransport(Transport transport, Device device, TransportOptions const& options);

}  // namespace mscclpp
