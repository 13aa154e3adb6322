// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "nccl/ids.hpp"

#include <array>
#include <cstring>

#include "mscclpp/host/bootstrap/local_bootstrap.hpp"
#include "mscclpp/host/bootstrap/tcp_bootstrap.hpp"
#include "nccl/patience.hpp"

namespace mscclpp::nccl {

ncclUniqueId freshId() {
  ncclUniqueId id{};
  auto const bytes = TcpBootstrap::createUniqueId().toBytes();
  static_assert(sizeof bytes == sizeof id.internal);
  std::memcpy(id.internal, bytes.data(), sizeof bytes);
  return id;
}

std::shared_ptr<Bootstrap> meetBy(ncclUniqueId const& id, int rank, int ranks) {
  if (ranks == 1) return LocalBootstrap::create(1).front();
  std::array<std::byte, uniqueIdBytes> bytes;
  std::memcpy(bytes.data(), id.internal, sizeof bytes);
  auto tcp = std::make_shared<TcpBootstrap>(rank, ranks);
  tcp->initialize(UniqueId::fromBytes(bytes), patience("MSCCLPP_TIMEOUT"));
  return tcp;
}

}  // namespace mscclpp::nccl
