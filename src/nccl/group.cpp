// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "nccl/group.hpp"

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "nccl/handle.hpp"
#include "nccl/machine.hpp"
#include "nccl/result.hpp"

namespace mscclpp::nccl {
namespace {

struct Started {
  std::shared_ptr<Comm> comm;
  std::vector<Operation> operations{};
  std::vector<OneSided> oneSided{};

  void start() const {
    if (!operations.empty()) comm->start(operations);
    if (!oneSided.empty()) comm->start(oneSided);
  }
};

struct Jobs {
  Handle const* communicator;
  bool blocking;
  std::vector<std::function<void()>> list;

  void run() const {
    KeepDevice const keep(communicator->device());
    for (auto const& job : list) job();
  }
};

// Apart from the rest, which has to be constructed in each thread, since every call looks at it.
constinit thread_local int depth = 0;

struct Group {
  ncclResult_t error = ncclSuccess;
  std::vector<Started> started;
  std::vector<Jobs> jobs;
};

thread_local Group group;

// Runs each on a thread of its own, but one alone on this; returns the first error, whose text becomes this thread's.
template <class Items, class Run>
void runBeside(Items const& items, Run&& run) {
  if (items.size() == 1) return run(items.front());
  std::vector<std::exception_ptr> errors(items.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < items.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        run(items[i]);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (auto const& error : errors) {
    if (error != nullptr) std::rethrow_exception(error);
  }
}

}  // namespace

bool inGroup() noexcept { return depth != 0; }

void spoilGroup(ncclResult_t code) noexcept {
  if (inGroup() && group.error == ncclSuccess) group.error = code;
}

void groupStart() { ++depth; }

ncclResult_t groupEnd() {
  if (depth == 0) refuse(ncclInvalidUsage, "no group is open: there was no ncclGroupStart for it");
  if (--depth != 0) return ncclSuccess;
  auto const ended = std::exchange(group, {});
  if (ended.error != ncclSuccess) return ended.error;
  if (ended.jobs.empty() && ended.started.empty()) return ncclSuccess;

  std::vector<Jobs> waited;
  bool inProgress = false;
  for (auto const& jobs : ended.jobs) {
    if (jobs.blocking) {
      waited.push_back(jobs);
    } else {
      inProgress = true;
      std::thread([jobs] { jobs.run(); }).detach();
    }
  }
  if (!waited.empty()) runBeside(waited, [](Jobs const& jobs) { jobs.run(); });
  bool const atOnce =
      std::ranges::all_of(ended.started, [](Started const& one) { return one.comm->startsAtOnce(one.operations); });
  if (atOnce) {
    for (auto const& one : ended.started) one.start();
  } else {
    runBeside(ended.started, [](Started const& one) { one.start(); });
  }
  return inProgress ? ncclInProgress : ncclSuccess;
}

ncclResult_t groupSimulateEnd(double& seconds) {
  if (depth == 0) refuse(ncclInvalidUsage, "no group is open: there was no ncclGroupStart for it");
  if (--depth != 0) return ncclSuccess;
  auto const ended = std::exchange(group, {});
  if (ended.error != ncclSuccess) return ended.error;
  if (!ended.jobs.empty()) refuse(ncclInvalidUsage, "communicators are not made in a group that is only simulated");
  for (auto const& one : ended.started) {
    if (!one.oneSided.empty()) refuse(ncclInvalidUsage, "the model of costs does not know puts and signals");
    // Communicators have devices of their own.
    seconds = std::max(seconds, one.comm->predictedTime(one.operations));
  }
  return ncclSuccess;
}

namespace {

Started& startedOf(std::shared_ptr<Comm> const& comm) {
  auto found = std::ranges::find(group.started, comm, &Started::comm);
  if (found == group.started.end()) found = group.started.insert(found, Started{comm});
  return *found;
}

}  // namespace

void enqueue(std::shared_ptr<Comm> const& comm, Operation const& operation) {
  comm->check(operation);
  if (!inGroup()) return comm->start({&operation, 1});
  startedOf(comm).operations.push_back(operation);
}

void enqueue(std::shared_ptr<Comm> const& comm, std::span<OneSided const> operations) {
  for (auto const& operation : operations) comm->check(operation);
  if (!inGroup()) return comm->start(operations);
  auto& noted = startedOf(comm).oneSided;
  noted.insert(noted.end(), operations.begin(), operations.end());
}

ncclResult_t enqueueJob(Handle const* communicator, bool blocking, std::function<void()> job) {
  groupStart();
  auto found = std::ranges::find(group.jobs, communicator, &Jobs::communicator);
  if (found == group.jobs.end()) found = group.jobs.insert(found, Jobs{communicator, blocking, {}});
  found->list.push_back(std::move(job));
  return groupEnd();
}

}  // namespace mscclpp::nccl
