// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Transport::tcp: any two hosts that reach each other over IPv4 or IPv6.
//
// Each rank listens once and opens its own sockets to every peer it connects to, so each direction has its own. What a
// peer writes is received into the registered memory by a thread of the context (tcp_service.hpp); what this rank posts
// is sent by whoever calls progress() (tcp_outbound.hpp). Memory that only the device can read or write goes through
// pinned host memory.
#pragma once

#include <memory>
#include <string>

#include "host/transport/transport.hpp"

namespace mscclpp {

struct TcpOptions {
  std::string interfaceName;  // to listen on; empty: the best one
  int lanes = 1;              // sockets that each peer shall open
  bool zeroCopy = true;       // where the kernel can
  bool stageAll = false;      // also memory that the host could use directly
  std::chrono::nanoseconds timeout{};

  bool stages(Device device) const noexcept { return stageAll || device.kind == DeviceKind::cuda; }

  static TcpOptions fromEnvironment(TransportOptions const& options);
};

std::shared_ptr<TransportContext> makeTcpTransport(TcpOptions const& options);

}  // namespace mscclpp
