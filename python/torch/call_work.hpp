// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a call of the backend returns.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engines.hpp"
#include "event_pool.hpp"
#include "tensor_call.hpp"

namespace mscclpp::torch {

// As profilers show a call, behind the backend's name.
inline char const* titleOf(c10d::OpType kind) {
  switch (kind) {
    case c10d::OpType::BROADCAST:
      return "broadcast";
    case c10d::OpType::ALLREDUCE:
    case c10d::OpType::ALLREDUCE_COALESCED:
      return "all_reduce";
    case c10d::OpType::REDUCE:
      return "reduce";
    case c10d::OpType::ALLGATHER:
    case c10d::OpType::ALLGATHER_COALESCED:
      return "all_gather";
    case c10d::OpType::_ALLGATHER_BASE:
      return "all_gather_into_tensor";
    case c10d::OpType::GATHER:
      return "gather";
    case c10d::OpType::SCATTER:
      return "scatter";
    case c10d::OpType::REDUCE_SCATTER:
      return "reduce_scatter";
    case c10d::OpType::_REDUCE_SCATTER_BASE:
      return "reduce_scatter_tensor";
    case c10d::OpType::ALLTOALL_BASE:
    case c10d::OpType::ALLTOALL:
      return "all_to_all";
    case c10d::OpType::SEND:
      return "send";
    case c10d::OpType::RECV:
      return "recv";
    case c10d::OpType::RECVANYSOURCE:
      return "recvAnySource";
    case c10d::OpType::BARRIER:
      return "barrier";
    default:
      return "coalesced";
  }
}

class CallWork final : public c10d::Work {
 public:
  // `title`: null where no profiler looks.
  CallWork(int rank, c10d::OpType kind, at::Device device, std::uint64_t sequence, std::shared_ptr<Meeting> meeting,
           char const* title = nullptr, std::optional<Tensors> const& shown = std::nullopt)
      : Work(rank, kind, title, shown), device_(device), sequence_(sequence), meeting_(std::move(meeting)) {}

  bool isCompleted() override {
    if (end_) return (*end_)->query();
    std::lock_guard const lock(mutex_);
    return completed_;
  }
  bool isSuccess() const override {
    std::lock_guard const lock(mutex_);
    return exception_ == nullptr;
  }
  // CUDA: orders the caller's stream behind it, and with a time limit, or after a barrier, waits for it. CPU: waits for
  // it. Throws what has gone wrong as far as is known.
  bool wait(std::chrono::milliseconds timeout) override {
    if (isCuda()) {
      requireNoFault();
      synchronize();
      if (end_ && opType_ == c10d::OpType::BARRIER && timeout == kNoTimeout) (*end_)->synchronize();
      if (end_ && timeout != kNoTimeout) await(timeout);
      return true;
    }
    std::unique_lock lock(mutex_);
    auto const done = [&] { return completed_; };
    if (timeout == kNoTimeout) {
      cv_.wait(lock, done);
    } else {
      requireDone(cv_.wait_for(lock, timeout, done), timeout);
    }
    if (exception_) std::rethrow_exception(exception_);
    return true;
  }
  void synchronize() override {
    if (!isCuda()) {
      (void)wait(kNoTimeout);
    } else if (end_) {
      (*end_)->block(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
    }
  }
  void blockCurrentStream() override { synchronize(); }
  void abort() override { TORCH_CHECK(false, backendName, ": abort the process group, not one call of it"); }
  Tensors result() override { return {results_.begin(), results_.end()}; }
  int sourceRank() const override {
    TORCH_CHECK(source_ >= 0, backendName, ": only what is received has a source, once there is one");
    return source_;
  }
  std::uint64_t getSequencenumber() const override { return sequence_; }

  // Made when it is first asked for, which few do.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    std::unique_lock lock(mutex_);
    if (future_) return future_;
    std::vector<at::Device> devices;
    if (isCuda()) devices.push_back(device_);
    auto const type = c10::ListType::create(c10::TensorType::get());
    auto const future = future_ = c10::make_intrusive<c10::ivalue::Future>(type, devices);
    bool const done = completed_ || isCuda();
    auto const failure = exception_;
    lock.unlock();
    if (!done) return future;
    // Whoever uses its value on another stream waits for that of the call.
    std::optional<c10::StreamGuard> guard;
    if (stream_) guard.emplace(*stream_);
    fulfil(*future, failure);
    return future;
  }

  // ---- for whoever runs it

  at::Device device() const { return device_; }
  std::shared_ptr<Meeting> const& meeting() const { return meeting_; }
  void setMeeting(std::shared_ptr<Meeting> meeting) { meeting_ = std::move(meeting); }
  using Results = decltype(TensorCall::results);
  void setResults(Results results) { results_ = std::move(results); }
  void setSource(int rank) { source_ = rank; }
  // CUDA: the call is in this stream. `events`: it is one of the runner, behind which wait() has the caller's.
  void isIn(c10::Stream const& stream, EventPool* events) {
    stream_ = stream;
    if (events != nullptr) {
      end_.emplace(events->borrow());
      (*end_)->record(stream);
    }
    tellProfiler();
  }
  // CPU: it is done, or has failed.
  void complete(std::exception_ptr failure) {
    std::unique_lock lock(mutex_);
    completed_ = true;
    exception_ = failure;
    tellProfiler();
    auto const future = future_;
    lock.unlock();
    cv_.notify_all();
    if (future) fulfil(*future, failure);
  }

 private:
  bool isCuda() const { return device_.is_cuda(); }
  void tellProfiler() {
    if (recordFunctionEndCallback_) std::exchange(recordFunctionEndCallback_, nullptr)();
  }
  void requireNoFault() {
    if (auto const fault = meeting_->engine->fault()) {
      TORCH_CHECK_WITH(DistBackendError, false, backendName, ": rank ", rank_, ": ", meeting_->about(), fault->what());
    }
  }
  void requireDone(bool done, std::chrono::milliseconds timeout) const {
    TORCH_CHECK_WITH(DistBackendError, done, backendName, ": rank ", rank_, ": ", c10d::opTypeToString(opType_),
                     " was not done after ", timeout.count(), " ms");
  }
  void await(std::chrono::milliseconds timeout) {
    auto const deadline = std::chrono::steady_clock::now() + timeout;
    while (!(*end_)->query()) {
      requireDone(std::chrono::steady_clock::now() < deadline, timeout);
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    requireNoFault();
  }
  void fulfil(c10::ivalue::Future& future, std::exception_ptr const& failure) {
    if (failure) {
      future.setError(failure);
    } else {
      future.markCompleted(at::IValue(result()));
    }
  }

  at::Device device_;
  std::uint64_t sequence_;
  std::shared_ptr<Meeting> meeting_;
  Results results_;
  std::atomic<int> source_{-1};
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::optional<c10::Stream> stream_;       // of CUDA
  std::optional<EventPool::Borrowed> end_;  // of CUDA, where the call had a stream of its own
};

}  // namespace mscclpp::torch
