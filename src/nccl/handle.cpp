// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "nccl/handle.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <thread>
#include <utility>

#include "nccl/result.hpp"

namespace mscclpp::nccl {
namespace {

std::atomic<pid_t> processNow{0};

// Without a system call, which took 0.2 us of each call of the interface.
pid_t thisProcess() {
  static bool const told = [] {
    processNow = ::getpid();
    return ::pthread_atfork(nullptr, nullptr, [] { processNow = ::getpid(); }) == 0;
  }();
  return told ? processNow.load(std::memory_order_relaxed) : ::getpid();
}

constexpr std::uint64_t handleMagic = 0x6d7363636c2b2b31;  // no pointer, and unlikely as data

// Communicators that are on their way out. The process ends behind those that are waited for, or after a while.
class Leaving {
 public:
  static Leaving& instance() {
    // Not destroyed: threads may still run when it would be.
    static auto* const leaving = new Leaving;
    static struct AtExit {
      ~AtExit() { leaving->waitForAll(); }
    } const atExit;
    return *leaving;
  }

  void add(std::shared_ptr<Comm> comm, bool waits) {
    auto const key = comm->key();
    auto const here = comm->ranksHere();
    std::unique_lock lock(mutex_);
    bool const isLast = ++begun_[key] == here;
    if (isLast) begun_.erase(key);
    if (waits) ++awaited_[key];
    std::thread([this, key, waits, comm = std::move(comm)]() mutable {
      comm->finishWork();
      comm->meetLast();
      comm.reset();
      if (!waits) return;
      std::lock_guard const held(mutex_);
      if (--awaited_[key] == 0) awaited_.erase(key);
      changed_.notify_all();
    }).detach();
    if (isLast && waits) changed_.wait_for(lock, limit, [&] { return !awaited_.contains(key); });
  }

 private:
  static constexpr std::chrono::seconds limit{5};

  void waitForAll() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, limit, [this] { return awaited_.empty(); });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  // By communicator, of this process: ranks that have begun to leave, of those that have not all; and those that are
  // waited for, which aborted ones are not, since the others may never come.
  std::map<std::uint64_t, int> begun_;
  std::map<std::uint64_t, int> awaited_;
};

}  // namespace

Handle::Handle(Device device) : magic_(handleMagic), process_(thisProcess()), device_(device) {}

Handle& Handle::of(ncclComm* communicator) {
  if (communicator == nullptr) refuse(ncclInvalidArgument, "the communicator is a null pointer");
  std::uint64_t magic = 0;
  std::memcpy(&magic, communicator, sizeof magic);
  if (magic != handleMagic) {
    refuse(ncclInvalidArgument, "{} is no communicator of this library", fmt::ptr(communicator));
  }
  auto& handle = *reinterpret_cast<Handle*>(communicator);
  if (handle.process_ != thisProcess()) {
    refuse(ncclInvalidUsage, "a communicator of process {}, which process {} has from fork(); make one of its own",
           handle.process_, thisProcess());
  }
  return handle;
}

std::shared_ptr<Comm> Handle::comm() const {
  std::lock_guard const lock(mutex_);
  if (gone_) refuse(ncclInvalidArgument, "the communicator has been destroyed or aborted");
  if (comm_ == nullptr) {
    if (making_ == ncclInProgress) {
      refuse(ncclInvalidUsage,
             "the communicator is still being made; ask ncclCommGetAsyncError until it is not "
             "ncclInProgress");
    }
    refuse(making_, "the communicator could not be made; abort it");
  }
  return comm_;
}

ncclResult_t Handle::making() const {
  std::lock_guard const lock(mutex_);
  if (gone_) refuse(ncclInvalidArgument, "the communicator has been destroyed or aborted");
  return making_;
}

void Handle::made(std::shared_ptr<Comm> comm) {
  {
    std::lock_guard const lock(mutex_);
    making_ = ncclSuccess;
    if (!gone_) {
      comm_ = std::move(comm);
      return;
    }
  }
  // It was given up meanwhile.
  comm->abort();
}

void Handle::failed(ncclResult_t code, std::string words) {
  std::lock_guard const lock(mutex_);
  if (comm_ == nullptr) making_ = code;
  if (words_.empty()) words_ = std::move(words);
}

char const* Handle::words() const {
  std::lock_guard const lock(mutex_);
  return words_.c_str();
}

std::shared_ptr<Comm> Handle::take() {
  std::lock_guard const lock(mutex_);
  if (gone_) refuse(ncclInvalidArgument, "the communicator has been destroyed or aborted already");
  gone_ = true;
  return std::exchange(comm_, nullptr);
}

void retire(std::shared_ptr<Comm> comm, bool waits) {
  if (comm != nullptr) Leaving::instance().add(std::move(comm), waits);
}

}  // namespace mscclpp::nccl
