// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Transport::ib: InfiniBand and RoCE through libibverbs, by reliable connections (RC queue pairs).
//
// A write is one or more RDMA writes. A signal is an atomic add of 1 to the peer's word; where the peer's device has no
// atomics, or by setting, a small record with immediate data, which the peer's progress() turns into a store. Both come
// after all earlier writes of their queue pair, which is all that reliable connections promise. With several devices
// large writes are cut up among them; then each other device confirms by a read of what it wrote last, before the
// signal goes out on the first.
//
// Built without rdma-core's headers, there is nothing but the sentence that says so.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "host/transport/transport.hpp"

namespace mscclpp {

struct VerbsOptions {
  std::string devices;          // as MSCCLPP_IB_HCA; empty: the nearest to the GPU
  int rails = 1;                // devices that one connection uses, where `devices` does not say
  std::optional<int> gidIndex;  // empty: chosen
  bool atomics = true;          // where the device has them
  std::string nearBusId;
  int place = 0;  // of equally near devices
  std::chrono::nanoseconds timeout{};

  static VerbsOptions fromEnvironment(Device device, TransportOptions const& options);
};

// Why there is no device to use; empty: there is one. Cheap to repeat.
std::string missingVerbs();
// Throws unsupported where there is none.
std::shared_ptr<TransportContext> makeVerbsTransport(VerbsOptions const& options);

}  // namespace mscclpp
