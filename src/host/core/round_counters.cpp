// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What kernels lead astray when they give up a wait.
#include <algorithm>
#include <atomic>

#include "base/format.hpp"
#include "host/core/communicator_impl.hpp"

namespace mscclpp {
namespace {

// Kernels that run meanwhile have nothing to do with entries that come or go.
class CounterEntries {
 public:
  CounterEntries(std::shared_ptr<CommunicatorImpl> communicator, std::vector<layout::RoundCounters> const& counters)
      : communicator_(std::move(communicator)) {
    auto& watch = *communicator_->watch;
    std::lock_guard const lock(communicator_->countersMutex);
    auto const isFree = [](layout::RoundCounters const& entry) { return entry.first == nullptr; };
    auto const room = std::count_if(std::begin(watch.counters), std::end(watch.counters), isFree);
    if (static_cast<std::size_t>(room) < counters.size()) {
      fail(
          ErrorCode::systemError,
          "rank {}: the teams, programs and rings of messages of one communicator have {} ranks in all; at most {} are "
          "possible. Destroy some, or make another communicator (shrink)",
          communicator_->rank(), layout::maxCounters - room + counters.size(), layout::maxCounters);
    }
    auto* entry = watch.counters;
    for (auto const& one : counters) {
      entry = std::find_if(entry, std::end(watch.counters), isFree);
      entry->count = one.count;
      entry->place = one.place;
      std::atomic_ref(entry->first).store(one.first, std::memory_order_release);
      entries_.push_back(entry);
    }
    auto const used = static_cast<std::uint32_t>(entry - watch.counters) + 1;
    if (!counters.empty() && used > watch.countersUsed) {
      std::atomic_ref(watch.countersUsed).store(used, std::memory_order_release);
    }
  }
  ~CounterEntries() {
    std::lock_guard const lock(communicator_->countersMutex);
    for (auto* const entry : entries_) std::atomic_ref(entry->first).store(nullptr, std::memory_order_relaxed);
  }
  CounterEntries(CounterEntries const&) = delete;
  CounterEntries& operator=(CounterEntries const&) = delete;

 private:
  std::shared_ptr<CommunicatorImpl> communicator_;  // whose watch this is
  std::vector<layout::RoundCounters*> entries_;
};

}  // namespace

std::shared_ptr<void> Communicator::leadAstray(std::vector<layout::RoundCounters> const& counters) const {
  return std::make_shared<CounterEntries>(impl_, counters);
}

}  // namespace mscclpp
