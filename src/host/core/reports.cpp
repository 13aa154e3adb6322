// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What ends waits of kernels, and what a communicator tells of it.
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <string>

#include "base/format.hpp"
#include "host/core/communicator_impl.hpp"
#include "mscclpp/host/trace.hpp"
#include "mscclpp/host/wait.hpp"
#include "mscclpp/host/wait_report.hpp"

namespace mscclpp {
namespace {

// How long after its consequences a death may become known.
constexpr std::chrono::nanoseconds newsTime = std::chrono::milliseconds(300);

}  // namespace

void CommunicatorImpl::reportFault(ErrorCode code, std::string const& text) {
  constexpr std::size_t enough = 2000;  // of a job that ends everywhere
  {
    std::lock_guard const lock(faultMutex);
    if (!fault) {
      fault.emplace(code, text);
    } else if (std::string const before = fault->what(); before.size() < enough) {
      fault.emplace(fault->code(), before + "\n" + text);
    }
  }
  log(LogLevel::info, "{}", text);
  storeShared(&watch->abort, 1u);
}

std::optional<Error> Communicator::fault() const {
  std::lock_guard const lock(impl_->faultMutex);
  return impl_->fault;
}

void Communicator::checkReports() const {
  layout::Watch& watch = *impl_->watch;
  std::string const text = explain(watch);
  auto const first = text.empty() ? layout::WaitKind::none : watch.reports[0].kind;
  bool const broken = first == layout::WaitKind::misuse &&
                      watch.reports[0].channel == static_cast<std::uint64_t>(layout::Misuse::astray);
  // Another rank's doing, which may be that of one that has died: its news is on the way here, too.
  if ((broken || first == layout::WaitKind::abandoned) && impl_->deaths != nullptr) {
    hostWait([this] { return Communicator::fault().has_value(); }, newsTime);
  }
  for (auto& report : watch.reports) report = {};
  storeShared(&watch.reportCount, 0u);  // which kernels count on from
  bool const raised = std::atomic_ref(watch.abort).load(std::memory_order_relaxed) != 0;
  std::optional<Error> fault;
  {
    std::lock_guard const lock(impl_->faultMutex);
    fault = impl_->fault;
    // Neither a rank that has died nor a proxy that has failed comes back, so kernels may not wait for it again.
    if (!impl_->aborted && !fault) std::atomic_ref(watch.abort).store(0, std::memory_order_relaxed);
  }
  if (raised || !text.empty() || fault) ++impl_->failures;
  if (fault) throw Error(fault->code(), text.empty() ? fault->what() : fmt::format("{}\n{}", fault->what(), text));
  if (impl_->aborted) {
    fail(ErrorCode::aborted, "rank {}: abort() has ended the waits of this rank's kernels{}{}", rank(),
         text.empty() ? "" : "\n", text);
  }
  if (!text.empty()) {
    throw Error(broken                                 ? ErrorCode::aborted
                : first == layout::WaitKind::misuse    ? ErrorCode::invalidUsage
                : first == layout::WaitKind::abandoned ? ErrorCode::remoteError
                                                       : ErrorCode::timeout,
                text);
  }
  if (raised) {
    fail(ErrorCode::timeout, "rank {}: a kernel gave up waiting, but its report is not complete: is it still running?",
         rank());
  }
}

void Communicator::abort() const noexcept {
  impl_->aborted = true;
  std::atomic_ref(impl_->watch->abort).store(1, std::memory_order_relaxed);
}

void Communicator::synchronize(Stream const& stream, std::optional<std::chrono::nanoseconds> limit) const {
  auto const begin = Trace::on() ? Trace::now() : 0;
  try {
    stream.synchronize(limit);
    if (begin != 0 && Trace::on()) Trace::span(rank(), Trace::hostTrack, "wait: synchronize", begin, {});
  } catch (Error const& error) {
    // What ended the waits, and what the kernels say, are nearer to the cause than what the stream does.
    std::string text = explain(*impl_->watch);
    if (auto const cause = fault()) text = text.empty() ? cause->what() : fmt::format("{}\n{}", cause->what(), text);
    if (text.empty()) throw;
    throw Error(error.code(), fmt::format("rank {}: {}\n{}", rank(), error.what(), text));
  }
  checkReports();
}

}  // namespace mscclpp
