// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Transport::memory: the machine's copy engines between memory that is mapped here.
#pragma once

#include <memory>

#include "host/transport/transport.hpp"

namespace mscclpp {

std::shared_ptr<TransportContext> makeMemoryTransport();

}  // namespace mscclpp
