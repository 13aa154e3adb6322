// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What kernels mark when they give up a wait.
#include <algorithm>
#include <atomic>

#include "base/format.hpp"
#include "host/core/communicator_impl.hpp"

namespace mscclpp {
namespace {

// Kernels that run meanwhile have nothing to do with entries that come or go.
class BrokenMarks {
 public:
  BrokenMarks(std::shared_ptr<CommunicatorImpl> communicator, std::vector<std::uint64_t*> const& marks)
      : communicator_(std::move(communicator)) {
    auto& watch = *communicator_->watch;
    std::lock_guard const lock(communicator_->marksMutex);
    auto const room = std::count(std::begin(watch.marks), std::end(watch.marks), nullptr);
    if (static_cast<std::size_t>(room) < marks.size()) {
      fail(
          ErrorCode::systemError,
          "rank {}: the teams, programs and rings of messages of one communicator have {} ranks in all; at most {} are "
          "possible. Destroy some, or make another communicator (shrink)",
          communicator_->rank(), layout::maxBrokenMarks - room + marks.size(), layout::maxBrokenMarks);
    }
    auto* entry = watch.marks;
    for (auto* const mark : marks) {
      entry = std::find(entry, std::end(watch.marks), nullptr);
      std::atomic_ref(*entry).store(mark, std::memory_order_release);
      entries_.push_back(entry);
    }
    auto const used = static_cast<std::uint32_t>(entry - watch.marks) + 1;
    if (!marks.empty() && used > watch.marksUsed) {
      std::atomic_ref(watch.marksUsed).store(used, std::memory_order_release);
    }
  }
  ~BrokenMarks() {
    std::lock_guard const lock(communicator_->marksMutex);
    for (auto* const entry : entries_) std::atomic_ref(*entry).store(nullptr, std::memory_order_relaxed);
  }
  BrokenMarks(BrokenMarks const&) = delete;
  BrokenMarks& operator=(BrokenMarks const&) = delete;

 private:
  std::shared_ptr<CommunicatorImpl> communicator_;  // whose watch this is
  std::vector<std::uint64_t**> entries_;
};

}  // namespace

std::shared_ptr<void> Communicator::markWhenBroken(std::vector<std::uint64_t*> const& marks) const {
  return std::make_shared<BrokenMarks>(impl_, marks);
}

}  // namespace mscclpp
