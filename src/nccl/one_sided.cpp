// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "nccl/one_sided.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/format.hpp"
#include "nccl/kernels/kernels.hpp"
#include "nccl/result.hpp"

namespace mscclpp::nccl {
namespace {

constexpr std::size_t signalsOfRank = static_cast<std::size_t>(Signals::indices) * Signals::contexts;

std::size_t placeOf(int rank, Signals::Which const& which) {
  return static_cast<std::size_t>(rank) * signalsOfRank +
         static_cast<std::size_t>(which.context * Signals::indices + which.index);
}

}  // namespace

RemoteMemory::RemoteMemory(Communicator const& communicator, void* base, std::size_t bytes, bool alone)
    : communicator_(communicator), bytes_(bytes), mapped_(static_cast<std::size_t>(communicator.size())) {
  std::vector<std::byte> mine;
  try {
    own_ = communicator.registerMemory(base, bytes);
    mine = own_.serialize(!alone);
  } catch (Error const& error) {
    why_ = error.what();
  }
  auto const ranks = static_cast<std::size_t>(communicator.size());
  auto const rank = static_cast<std::size_t>(communicator.rank());
  auto const setup = communicator.setup();
  std::vector<std::uint64_t> sizes(ranks);
  sizes[rank] = mine.size();
  setup->allGather(sizes.data(), sizeof sizes[0]);
  auto const stride = std::max<std::size_t>(*std::ranges::max_element(sizes), 1);
  std::vector<std::byte> all(stride * ranks);
  std::ranges::copy(mine, all.begin() + static_cast<std::ptrdiff_t>(stride * rank));
  setup->allGather(all.data(), stride);
  for (std::size_t other = 0; other < ranks; ++other) {
    auto const first = all.begin() + static_cast<std::ptrdiff_t>(stride * other);
    records_.emplace_back(first, first + static_cast<std::ptrdiff_t>(sizes[other]));
  }
  mapped_[rank] = own_;
}

std::byte* RemoteMemory::of(int rank) {
  auto const at = static_cast<std::size_t>(rank);
  std::lock_guard const lock(mutex_);
  if (records_[at].empty()) {
    fail(ErrorCode::unsupported, "rank {}: the memory of rank {} cannot be mapped by others{}{}; take ncclMemAlloc's",
         communicator_.rank(), rank, why_.empty() ? "" : ": ", why_);
  }
  if (!mapped_[at]) mapped_[at] = RegisteredMemory::deserialize(records_[at], communicator_.device());
  return mapped_[at].data();
}

namespace {

struct Named {
  std::mutex mutex;
  std::map<void const*, std::shared_ptr<RemoteMemory>> windows;

  // Never destroyed: communicators may end when the process does.
  static Named& instance() {
    static auto* const named = new Named;
    return *named;
  }
};

}  // namespace

void nameWindow(void const* handle, std::shared_ptr<RemoteMemory> memory) {
  auto& named = Named::instance();
  std::lock_guard const lock(named.mutex);
  named.windows[handle] = std::move(memory);
}

void forgetWindow(void const* handle) noexcept {
  auto& named = Named::instance();
  std::lock_guard const lock(named.mutex);
  named.windows.erase(handle);
}

std::shared_ptr<RemoteMemory> windowMemory(void const* handle) {
  auto& named = Named::instance();
  std::lock_guard const lock(named.mutex);
  auto const found = named.windows.find(handle);
  if (found == named.windows.end()) {
    refuse(ncclInvalidArgument,
           "{} is no window that was registered with NCCL_WIN_COLL_SYMMETRIC, by ranks of one host", fmt::ptr(handle));
  }
  return found->second;
}

Signals::Signals(Communicator const& communicator, bool alone)
    : communicator_(communicator),
      memory_(communicator.device(),
              2 * static_cast<std::size_t>(communicator.size()) * signalsOfRank * sizeof(std::uint64_t)),
      remote_(communicator, memory_.data(), memory_.bytes(), alone) {}

void Signals::check(Which const& which) const {
  if (which.peer < 0 || which.peer >= communicator_.size()) {
    refuse(ncclInvalidArgument, "rank {}: peer {}; there are ranks 0 to {}", communicator_.rank(), which.peer,
           communicator_.size() - 1);
  }
  if (which.index < 0 || which.index >= indices || which.context < 0 || which.context >= contexts) {
    refuse(ncclInvalidArgument, "rank {}: signal {} of context {}; there are 0 to {} of contexts 0 to {}",
           communicator_.rank(), which.index, which.context, indices - 1, contexts - 1);
  }
}

void Signals::signal(Stream const& stream, Which const& to) {
  auto* const words = reinterpret_cast<std::uint64_t*>(remote_.of(to.peer));
  nccl::signal(stream, words + placeOf(communicator_.rank(), to));
}

void Signals::wait(Stream const& stream, Which const& from, std::uint64_t count) {
  auto* const arrived = static_cast<std::uint64_t*>(memory_.data());
  auto const place = placeOf(from.peer, from);
  auto* const awaited = arrived + static_cast<std::size_t>(communicator_.size()) * signalsOfRank + place;
  waitForSignals(stream, {arrived + place, awaited, count, communicator_.watch(), from.peer,
                          static_cast<std::uint32_t>(from.context * indices + from.index)});
}

}  // namespace mscclpp::nccl
