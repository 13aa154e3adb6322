// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/core/transports.hpp"

#include "base/format.hpp"
#include "host/transport/memory/memory_transport.hpp"
#include "host/transport/tcp/tcp_transport.hpp"
#include "host/transport/verbs/verbs_transport.hpp"

namespace mscclpp {

std::string missing(Transport transport) {
  switch (transport) {
    case Transport::memory:
      return {};
    case Transport::ib:
      return missingVerbs();
    case Transport::tcp:
      return {};
  }
  return "there is no such transport";
}

std::shared_ptr<TransportContext> makeTransport(Transport transport, Device device, TransportOptions const& options) {
  if (auto const why = missing(transport); !why.empty()) {
    fail(ErrorCode::unsupported, "the {} transport cannot be used: {}; choose another (MSCCLPP_TRANSPORT)",
         nameOf(transport), why);
  }
  switch (transport) {
    case Transport::ib:
      return makeVerbsTransport(VerbsOptions::fromEnvironment(device, options));
    case Transport::tcp:
      return makeTcpTransport(TcpOptions::fromEnvironment(options));
    case Transport::memory:
      break;
  }
  return makeMemoryTransport();
}

}  // namespace mscclpp
