// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a call of the backend returns.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "engine.hpp"
#include "operation.hpp"

namespace mscclpp::torch {

class CallWork final : public c10d::Work {
 public:
  CallWork(int rank, c10d::OpType kind, at::Device device, std::uint64_t sequence, std::shared_ptr<Engine> engine)
      : Work(rank, kind), device_(device), sequence_(sequence), engine_(std::move(engine)) {}

  bool isCompleted() override {
    if (end_) return end_->query();
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
      if (end_ && opType_ == c10d::OpType::BARRIER && timeout == kNoTimeout) end_->synchronize();
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
      end_->block(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
    }
  }
  void blockCurrentStream() override { synchronize(); }
  void abort() override { TORCH_CHECK(false, backendName, ": abort the process group, not one call of it"); }
  Tensors result() override { return results_; }
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
  void setResults(Tensors results) { results_ = std::move(results); }
  // CUDA: the call is in this stream: `own`: of the runner, behind which wait() has the caller's.
  void isIn(c10::Stream const& stream, bool own) {
    stream_ = stream;
    if (!own) return;
    end_.emplace(device_.type());
    end_->record(stream);
  }
  // CPU: it is done, or has failed.
  void complete(std::exception_ptr failure) {
    std::unique_lock lock(mutex_);
    completed_ = true;
    exception_ = failure;
    auto const future = future_;
    lock.unlock();
    cv_.notify_all();
    if (future) fulfil(*future, failure);
  }

 private:
  bool isCuda() const { return device_.is_cuda(); }
  void requireNoFault() {
    if (auto const why = engine_->fault(); !why.empty()) {
      TORCH_CHECK_WITH(DistBackendError, false, backendName, ": rank ", rank_, ": ", why);
    }
  }
  void requireDone(bool done, std::chrono::milliseconds timeout) const {
    TORCH_CHECK_WITH(DistBackendError, done, backendName, ": rank ", rank_, ": ", c10d::opTypeToString(opType_),
                     " was not done after ", timeout.count(), " ms");
  }
  void await(std::chrono::milliseconds timeout) {
    auto const deadline = std::chrono::steady_clock::now() + timeout;
    while (!end_->query()) {
      requireDone(std::chrono::steady_clock::now() < deadline, timeout);
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    requireNoFault();
  }
  void fulfil(c10::ivalue::Future& future, std::exception_ptr const& failure) {
    if (failure) {
      future.setError(failure);
    } else {
      future.markCompleted(at::IValue(results_));
    }
  }

  at::Device device_;
  std::uint64_t sequence_;
  std::shared_ptr<Engine> engine_;
  Tensors results_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::optional<c10::Stream> stream_;  // of CUDA
  std::optional<c10::Event> end_;      // of CUDA, where the call had a stream of its own
};

}  // namespace mscclpp::torch
