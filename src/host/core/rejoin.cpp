// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How all ranks go on after a failure that all have outlived.
//
// The ranks agree that all of them are there, as in survivors(). The number of that agreement, which ranks that return
// from it have in common, names a group of all ranks: what is set up over it meets no message that was sent before.
#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <numeric>
#include <span>

#include "base/format.hpp"
#include "base/keyed_hash.hpp"
#include "host/bootstrap/bootstrap_access.hpp"
#include "host/bootstrap/group_bootstrap.hpp"
#include "host/core/communicator_impl.hpp"

namespace mscclpp {

std::vector<std::vector<std::byte>> Communicator::rejoin(std::vector<std::byte> const& mine) const {
  std::vector<int> all(static_cast<std::size_t>(size()));
  std::iota(all.begin(), all.end(), 0);
  // Others may be in a wait of their own, in a kernel and then on the host; that one ends first.
  constexpr int attempts = 2;  // of one and a half limits
  CommunicatorImpl::Agreed agreed;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    agreed = impl_->agree(true);
    if (agreed.left == all || !agreed.gone.empty()) break;
  }
  if (agreed.left != all) {
    if (agreed.gone.empty() && agreed.failure) throw *agreed.failure;
    auto missing = agreed.gone;
    if (missing.empty()) {
      std::set_difference(all.begin(), all.end(), agreed.left.begin(), agreed.left.end(), std::back_inserter(missing));
    }
    fail(ErrorCode::remoteError,
         "rank {}: rejoin: ranks {} {}; go on with a communicator of those that are left (survivors(), shrink())",
         rank(), fmt::format("{}", missing), agreed.gone.empty() ? "do not answer" : "have ended");
  }
  int perNode = 0;
  for (int const peer : all) perNode += impl_->sameHost(peer) ? 1 : 0;
  Key128 key{};
  auto const parts = std::array{impl_->id, agreed.number};
  static_assert(sizeof parts == sizeof key);
  std::memcpy(key.data(), parts.data(), sizeof key);
  auto const context = std::max<std::uint64_t>(keyedHash(key, std::as_bytes(std::span("rejoin"))), 1);
  auto const group = std::make_shared<GroupBootstrap>(impl_->bootstrap, all, perNode, context);
  std::vector<std::vector<std::byte>> result(all.size());
  for (int const peer : all) {
    if (peer != rank()) BootstrapAccess::send(*group, mine, peer, BootstrapAccess::gather);
  }
  for (int const peer : all) {
    result[static_cast<std::size_t>(peer)] =
        peer == rank() ? mine : BootstrapAccess::recv(*group, peer, BootstrapAccess::gather);
  }
  std::lock_guard const lock(impl_->setupMutex);
  impl_->renewed = group;
  return result;
}

}  // namespace mscclpp
