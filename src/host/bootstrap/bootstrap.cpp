// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/bootstrap/bootstrap.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>

#include "base/format.hpp"
#include "host/bootstrap/bootstrap_access.hpp"

namespace mscclpp {
namespace {

// Tags a user may choose; above are those of message_sorter.cpp.
constexpr int highestTag = (1 << 24) - 1;

std::uint64_t hashOf(std::vector<int> const& ranks) {
  std::uint64_t hash = 14695981039346656037ull;
  for (int rank : ranks) hash = (hash ^ static_cast<std::uint64_t>(rank)) * 1099511628211ull;
  return hash;
}

std::vector<int> everyone(int ranks) {
  std::vector<int> result(static_cast<std::size_t>(ranks));
  std::iota(result.begin(), result.end(), 0);
  return result;
}

}  // namespace

void Bootstrap::checkPeer(std::string_view operation, int peer) const {
  if (peer < 0 || peer >= getNranks()) {
    fail(ErrorCode::invalidUsage, "rank {}: {} names rank {}, but ranks are 0 to {}", getRank(), operation, peer,
         getNranks() - 1);
  }
}

void Bootstrap::checkTag(std::string_view operation, int peer, int tag) const {
  checkPeer(operation, peer);
  if (tag < 0 || tag > highestTag) {
    fail(ErrorCode::invalidUsage, "rank {}: {} with rank {} uses tag {}, but tags are 0 to {}", getRank(), operation,
         peer, tag, highestTag);
  }
}

void Bootstrap::copyMessage(std::string_view operation, std::vector<std::byte> const& message, void* data,
                            std::size_t bytes, int peer, int tag) const {
  if (message.size() != bytes) {
    fail(ErrorCode::invalidUsage,
         "rank {}: {} from rank {} (tag {}) expects {} bytes, but rank {} sent {}; both ranks must make the same calls "
         "in the same order",
         getRank(), operation, peer, tag, bytes, peer, message.size());
  }
  if (bytes != 0) std::memcpy(data, message.data(), bytes);
}

// A value, since those that listen keep it.
std::shared_ptr<void> Bootstrap::listen(Died) { return {}; }  // NOLINT(performance-unnecessary-value-param)

void Bootstrap::declareLost(std::string const&) {}

void Bootstrap::send(void const* data, std::size_t bytes, int peer, int tag) {
  checkTag("send", peer, tag);
  sendMessage(data, bytes, peer, tag);
}

void Bootstrap::recv(void* data, std::size_t bytes, int peer, int tag) {
  checkTag("recv", peer, tag);
  copyMessage("recv", recvMessage(peer, tag), data, bytes, peer, tag);
}

void Bootstrap::send(std::vector<char> const& data, int peer, int tag) {
  checkTag("send", peer, tag);
  sendMessage(data.data(), data.size(), peer, tag);
}

void Bootstrap::recv(std::vector<char>& data, int peer, int tag) {
  checkTag("recv", peer, tag);
  std::vector<std::byte> const message = recvMessage(peer, tag);
  data.resize(message.size());
  if (!message.empty()) std::memcpy(data.data(), message.data(), message.size());
}

// After step k each rank holds the parts of the 2^(k+1) ranks from its own on; the last step takes what is missing.
void Bootstrap::allGather(void* all, std::size_t bytesPerRank) {
  int const rank = getRank();
  int const ranks = getNranks();
  auto* parts = static_cast<std::byte*>(all);
  std::vector<std::byte> shifted(bytesPerRank * static_cast<std::size_t>(ranks));
  auto const part = [&](int index) { return static_cast<std::size_t>(index) * bytesPerRank; };
  std::copy_n(parts + part(rank), bytesPerRank, shifted.data());
  MessageWait const wait{timeout(), everyone(ranks), true};
  for (int held = 1; held < ranks; held *= 2) {
    int const moved = std::min(held, ranks - held);
    sendTo({0, (rank - held + ranks) % ranks, BootstrapAccess::gather}, wait, shifted.data(), part(moved));
    int const from = (rank + held) % ranks;
    copyMessage("allGather", recvFrom({0, from, BootstrapAccess::gather}, wait), shifted.data() + part(held),
                part(moved), from, BootstrapAccess::gather);
  }
  for (int i = 0; i < ranks; ++i) {
    if (i != 0) std::copy_n(shifted.data() + part(i), bytesPerRank, parts + part((rank + i) % ranks));
  }
}

void Bootstrap::disseminate(std::string_view operation, std::vector<int> const& ranks, int tag, std::uint64_t token) {
  auto const size = ranks.size();
  auto const self = static_cast<std::size_t>(std::find(ranks.begin(), ranks.end(), getRank()) - ranks.begin());
  MessageWait const wait{timeout(), ranks, true};
  for (std::size_t distance = 1; distance < size; distance *= 2) {
    int const to = ranks[(self + distance) % size];
    int const from = ranks[(self + size - distance) % size];
    sendTo({0, to, tag}, wait, &token, sizeof token);
    std::uint64_t theirs = 0;
    copyMessage(operation, recvFrom({0, from, tag}, wait), &theirs, sizeof theirs, from, tag);
    if (theirs != token) {
      fail(ErrorCode::invalidUsage,
           "rank {}: {} over {}, but rank {} is in one over other ranks or another order; all members must name the "
           "same ranks in the same order",
           getRank(), operation, fmt::format("{}", ranks), from);
    }
  }
}

void Bootstrap::barrier() {
  auto const ranks = everyone(getNranks());
  disseminate("barrier", ranks, BootstrapAccess::barrierTag, ranks.size());
}

void Bootstrap::groupBarrier(std::vector<int> const& ranks) {
  for (int member : ranks) checkPeer("groupBarrier", member);
  if (std::set<int>(ranks.begin(), ranks.end()).size() != ranks.size()) {
    fail(ErrorCode::invalidUsage, "rank {}: groupBarrier over {} names a rank twice", getRank(),
         fmt::format("{}", ranks));
  }
  if (std::find(ranks.begin(), ranks.end(), getRank()) == ranks.end()) {
    fail(ErrorCode::invalidUsage, "rank {}: groupBarrier over {} does not hold the calling rank", getRank(),
         fmt::format("{}", ranks));
  }
  disseminate("groupBarrier", ranks, BootstrapAccess::group, hashOf(ranks));
}

}  // namespace mscclpp
