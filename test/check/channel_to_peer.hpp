// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A port channel from a buffer of this rank, one of two, to the same of its peer.
#pragma once

#include <cstddef>

#include "mscclpp/host/port_channel.hpp"
#include "support/world.hpp"

namespace check_test {

using namespace mscclpp;

template <class T>
PortChannel channelToPeer(mscclpp_test::Rank const& rank, ProxyService& service, GpuBuffer<T> const& own) {
  auto const mine = rank.communicator.registerMemory(own.data(), own.bytes());
  auto const all = rank.communicator.exchangeMemory(mine);
  int const peer = 1 - rank.rank;
  auto const semaphore = service.buildAndAddSemaphore(rank.communicator.connect(peer));
  auto const target = service.addMemory(all[static_cast<std::size_t>(peer)]);
  return service.portChannel(semaphore, target, service.addMemory(mine));
}

}  // namespace check_test
