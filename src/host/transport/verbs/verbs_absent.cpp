// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// In place of verbs_*.cpp where the headers of rdma-core were missing.
#include "base/format.hpp"
#include "host/transport/verbs/verbs_transport.hpp"

namespace mscclpp {

VerbsOptions VerbsOptions::fromEnvironment(Device, TransportOptions const&) { return {}; }

std::string missingVerbs() {
  return "this build has no InfiniBand: rdma-core's headers (libibverbs-dev) were missing when it was configured";
}

std::shared_ptr<TransportContext> makeVerbsTransport(VerbsOptions const&) {
  fail(ErrorCode::unsupported, "{}", missingVerbs());
}

}  // namespace mscclpp
