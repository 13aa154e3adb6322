// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How the calls of one process group run: on which engine, in which stream, and who completes them.
//
// Collectives and groups have one stream; single messages with different ranks, and of both directions, go side by
// side. CUDA: a call with async_op=False goes into the caller's current stream. Others go into a stream of the runner,
// behind what is in the caller's. CPU: a thread of the runner copies what has arrived to the caller's tensors, then
// completes the Work. From any threads.
#pragma once

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/extension.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "call_work.hpp"
#include "engines.hpp"
#include "event_pool.hpp"
#include "groups.hpp"
#include "sender_news.hpp"
#include "tensor_call.hpp"

namespace mscclpp::torch {

// False in children that fork() makes of the process that made it: they have none of its threads, and what those had
// locked stays locked.
class OwnProcess {
 public:
  OwnProcess() {
    [[maybe_unused]] static int const watched = ::pthread_atfork(nullptr, nullptr, [] { ++forks; });
  }
  explicit operator bool() const { return made_ == forks; }

 private:
  static inline std::atomic<int> forks = 0;

  int made_ = forks;
};

class Runner {
 public:
  // `title`: by which profilers show its calls.
  Runner(c10::intrusive_ptr<c10d::Store> const& store, int rank, int size, std::chrono::milliseconds timeout,
         bool hasGpus, std::string title)
      : rank_(rank),
        size_(size),
        title_(std::move(title)),
        engines_(std::make_unique<Engines>(store, rank, size, timeout, hasGpus)),
        news_(store, rank) {}
  // Completes what is there, for which its thread may have to run Python.
  ~Runner() {
    if (!here_) {
      // What has threads is left lying there.
      if (thread_.joinable()) thread_.detach();
      (void)queued_.release();
      new auto(std::tuple(std::move(engines_), std::move(pending_)));
      return;
    }
    std::optional<pybind11::gil_scoped_release> released;
    if (PyGILState_Check() != 0) released.emplace();
    {
      std::lock_guard const lock(queueMutex_);
      ending_ = true;
    }
    queued_->notify_all();
    if (thread_.joinable()) thread_.join();
  }
  Runner(Runner const&) = delete;
  Runner& operator=(Runner const&) = delete;

  Engines const& engines() const { return *engines_; }
  std::string const& title() const { return title_; }
  std::uint64_t calls() const { return sequence_; }

  // A call to put together, for start().
  TensorCall call(c10d::OpType kind) const {
    TORCH_CHECK(here_, backendName, ": rank ", rank_,
                ": this process was forked from the one that made the group; make a group of its own, or start it by "
                "spawn");
    TORCH_CHECK(!hasEnded_, backendName, ": rank ", rank_, ": the group has been shut down; make another");
    return {kind, size_, allocate_};
  }

  c10::intrusive_ptr<c10d::Work> start(TensorCall made, at::Device device, bool async) {
    std::lock_guard const lock(callMutex_);
    engines_->require(device);
    if (device.is_cpu() && !made.calls.empty()) {
      if (made.kind == c10d::OpType::SEND) news_.sends(made.calls.front().root);
      if (made.kind == c10d::OpType::RECV) news_.receives(made.calls.front().root);
    }
    if (coalesced_) {
      if (!coalescedWork_) coalescedWork_ = newWork(*coalesced_, device, engines_->all(device));
      coalesced_->append(made);
      return coalescedWork_;
    }
    auto const end = endOf(made);
    auto const work = newWork(made, device, end.first < 0 ? engines_->all(device) : engines_->with(end.first, device));
    run(std::move(made), work, async);
    return work;
  }
  // Of whichever rank that sends here and is not received from by name: of the CPU, where the thread asks who that is.
  c10::intrusive_ptr<c10d::Work> startFromAny(TensorCall made, at::Tensor data, at::Device device) {
    std::lock_guard const lock(callMutex_);
    engines_->require(device);
    TORCH_CHECK_VALUE(device.is_cpu() && !coalesced_, backendName,
                      ": tensors of CUDA, and those of batches, are received from a rank that is named; give recv() "
                      "its src");
    auto const work = newWork(made, device, nullptr);
    work->setResults(made.results);
    std::lock_guard const queueLock(queueMutex_);
    unnamed_.push_back({work, std::move(made), std::move(data), Clock::now() + engines_->timeout()});
    wake();
    return work;
  }
  // For torch.ops.mscclpp, by the group's name. Collective at the first call.
  void offer(std::string const& name, bool forCuda) {
    std::lock_guard const lock(callMutex_);
    auto const device = forCuda ? engines_->gpu("a tensor of CUDA") : at::Device(at::kCPU);
    Groups::add(name, engines_->all(device)->engine);
  }
  void withdraw() {
    engines_->forEach([](Engine& engine) { Groups::remove(engine); });
  }
  // Collective: all later calls with tensors of CUDA are on that device.
  void meetOn(at::Device device) {
    std::lock_guard const lock(callMutex_);
    (void)engines_->all(device);
  }
  // Calls between the two are one: their messages go on together.
  void startCoalescing() {
    std::lock_guard const lock(callMutex_);
    TORCH_CHECK(!coalesced_, backendName, ": startCoalescing inside of another");
    coalesced_.emplace(call(c10d::OpType::COALESCED));
  }
  c10::intrusive_ptr<c10d::Work> endCoalescing() {
    std::lock_guard const lock(callMutex_);
    TORCH_CHECK(coalesced_, backendName, ": endCoalescing without a start");
    auto made = std::move(*coalesced_);
    auto const work = std::exchange(coalescedWork_, nullptr);
    coalesced_.reset();
    if (work) run(std::move(made), work, true);
    return work;
  }

  // Collective, of memory of the group's GPU.
  void addWindow(std::uintptr_t base, std::size_t bytes) {
    std::lock_guard const lock(callMutex_);
    auto const meeting = engines_->all(engines_->gpu("memory of pools"));
    guarded(*meeting, [&] { meeting->engine->addWindow(reinterpret_cast<void*>(base), bytes); });
  }
  // A barrier of ranks that have not met.
  c10::intrusive_ptr<c10d::Work> done(c10d::OpType kind) {
    auto work = c10::make_intrusive<CallWork>(rank_, kind, at::kCPU, ++sequence_, nullptr);
    work->complete(nullptr);
    return work;
  }

  void setTimeout(std::chrono::milliseconds timeout) { engines_->setTimeout(timeout); }
  std::chrono::milliseconds timeout() const { return engines_->timeout(); }
  std::optional<Error> fault() {
    std::optional<Error> first;
    engines_->forEach([&](Engine& engine) {
      if (!first) first = engine.fault();
    });
    return first;
  }
  // Collective, unless something has gone wrong. Later calls are refused.
  void end() {
    if (!here_ || hasEnded_.exchange(true)) return;
    std::optional<pybind11::gil_scoped_release> released;
    if (PyGILState_Check() != 0) released.emplace();
    engines_->forEach([](Engine& engine) {
      if (!engine.fault()) engine.leave();
    });
  }
  void abort() {
    engines_->forEach([](Engine& engine) { engine.abort(); });
  }

 private:
  // A single message's other rank, and whether it goes there; of all else -1.
  using End = std::pair<int, bool>;
  using Clock = std::chrono::steady_clock;
  struct Pending {
    c10::intrusive_ptr<CallWork> work;
    TensorCall call;
    void* mark;
  };
  // What is received from any rank.
  struct Unnamed {
    c10::intrusive_ptr<CallWork> work;
    TensorCall call;
    at::Tensor data;
    Clock::time_point end;
  };

  c10::intrusive_ptr<CallWork> newWork(TensorCall const& made, at::Device device, std::shared_ptr<Meeting> meeting) {
    if (!made.isProfiled) {
      return c10::make_intrusive<CallWork>(rank_, made.kind, device, ++sequence_, std::move(meeting));
    }
    auto const title = title_ + ":" + titleOf(made.kind);
    return c10::make_intrusive<CallWork>(rank_, made.kind, device, ++sequence_, std::move(meeting), title.c_str(),
                                         made.shown);
  }

  // Errors of the library as those of torch.distributed.
  template <class F>
  static void guarded(Meeting const& meeting, F&& body) {
    try {
      static_cast<F&&>(body)();
    } catch (c10::Error const&) {
      throw;
    } catch (Error const& error) {
      TORCH_CHECK_WITH(DistBackendError, false, backendName, ": ", meeting.about(), nameOf(error.code()),
                       " in a call: ", error.what());
    } catch (std::exception const& error) {
      TORCH_CHECK_WITH(DistBackendError, false, backendName, ": ", meeting.about(), error.what());
    }
  }

  static End endOf(TensorCall const& made) {
    bool const sends = made.kind == c10d::OpType::SEND;
    bool const single = (sends || made.kind == c10d::OpType::RECV) && !made.calls.empty();
    return {single ? made.calls.front().root : -1, single && sends};
  }

  // The calls, with the ranks' numbers of the meeting.
  static std::span<Call> callsOf(TensorCall& made, Meeting const& meeting, int rank) {
    for (auto& call : made.calls) {
      if (!meeting.pair.empty()) call.root = call.root > rank ? 1 : 0;
    }
    return made.calls;
  }

  void run(TensorCall made, c10::intrusive_ptr<CallWork> const& work, bool async) {
    if (made.kind == c10d::OpType::RECV && !made.calls.empty()) work->setSource(made.calls.front().root);
    work->setResults(std::move(made.results));
    if (work->device().is_cuda()) {
      runOnCuda(std::move(made), work, async);
    } else {
      runOnCpu(std::move(made), work);
    }
  }

  void runOnCuda(TensorCall made, c10::intrusive_ptr<CallWork> const& work, bool async) {
    auto const device = work->device();
    c10::impl::VirtualGuardImpl const machine(device.type());
    auto const current = machine.getStream(device);
    auto const stream = async ? ownStream(machine, device, endOf(made)) : current;
    if (async) {
      auto begin = events_->borrow();
      begin->record(current);
      begin->block(stream);
      // Their memory is not given to others before that stream is through.
      for (auto const& tensor : made.kept) machine.recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
      for (auto const& [to, from] : made.copies) machine.recordDataPtrOnStream(to.storage().data_ptr(), stream);
    }
    auto const& meeting = *work->meeting();
    guarded(meeting, [&] { meeting.engine->start(callsOf(made, meeting, rank_), stream.native_handle()); });
    if (!made.copies.empty()) {
      c10::StreamGuard const guard(stream);
      Quiet const quiet;
      for (auto const& [to, from] : made.copies) to.copy_(from, true);
    }
    work->isIn(stream, async ? events_.get() : nullptr);
  }
  c10::Stream ownStream(c10::impl::VirtualGuardImpl const& machine, at::Device device, End end) {
    auto found = cudaStreams_.find(end);
    if (found == cudaStreams_.end()) {
      found = cudaStreams_.emplace(end, machine.getStreamFromGlobalPool(device, /*isHighPriority=*/true)).first;
    }
    return found->second;
  }

  void runOnCpu(TensorCall made, c10::intrusive_ptr<CallWork> const& work) {
    auto const& meeting = *work->meeting();
    auto& engine = *meeting.engine;
    auto& stream = cpuStreams_[endOf(made)];
    if (stream == nullptr) stream = engine.makeStream();
    void* mark = nullptr;
    guarded(meeting, [&] {
      engine.start(callsOf(made, meeting, rank_), stream);
      mark = engine.mark(stream);
    });
    std::lock_guard const lock(queueMutex_);
    pending_.push_back({work, std::move(made), mark});
    wake();
  }
  // Under the queue's lock.
  void wake() {
    if (!thread_.joinable()) thread_ = std::thread([this] { completeAll(); });
    queued_->notify_all();
  }
  // In whichever order they get done.
  void completeAll() {
    std::unique_lock lock(queueMutex_);
    for (;;) {
      queued_->wait(lock, [&] { return ending_ || !pending_.empty() || !unnamed_.empty(); });
      if (pending_.empty() && (ending_ || unnamed_.empty())) return;
      auto const next = std::find_if(pending_.begin(), pending_.end(), [](auto const& one) { return isDone(one); });
      if (next != pending_.end()) {
        auto const done = std::move(*next);
        pending_.erase(next);
        lock.unlock();
        complete(done);
        lock.lock();
        continue;
      }
      bool const asks = !unnamed_.empty();
      lock.unlock();
      if (asks) nameOne();
      std::this_thread::sleep_for(std::chrono::microseconds(asks ? 200 : 20));
      lock.lock();
    }
  }
  // Starts the first of what is received from any rank, if there is one that sends.
  void nameOne() {
    std::lock_guard const lock(callMutex_);
    std::optional<int> from;
    std::exception_ptr failure;
    try {
      from = news_.next();
    } catch (...) {
      failure = std::current_exception();
    }
    std::unique_lock queueLock(queueMutex_);
    auto& first = unnamed_.front();
    if (!from && !failure && Clock::now() < first.end) return;
    auto named = std::move(first);
    unnamed_.erase(unnamed_.begin());
    queueLock.unlock();
    try {
      if (failure) std::rethrow_exception(failure);
      TORCH_CHECK_WITH(DistBackendError, from, backendName, ": rank ", rank_, ": no rank has sent anything after ",
                       timeout().count(), " ms");
      named.work->setSource(*from);
      named.work->setMeeting(engines_->with(*from, at::kCPU));
      named.call.message(nccl::Work::recv, named.data, *from);
      runOnCpu(std::move(named.call), named.work);
    } catch (...) {
      named.work->complete(std::current_exception());
    }
  }
  static Engine& engineOf(Pending const& one) { return *one.work->meeting()->engine; }
  void complete(Pending const& done) {
    std::exception_ptr failure;
    try {
      guarded(*done.work->meeting(), [&] { engineOf(done).wait(done.mark); });
      Quiet const quiet;
      for (auto const& [to, from] : done.call.copies) {
        // Whoever frees it in the meantime, as by resize_(0), does not want it.
        auto const bytes =
            at::detail::computeStorageNbytes(to.sizes(), to.strides(), to.itemsize(), to.storage_offset());
        TORCH_CHECK_VALUE(to.storage().nbytes() >= bytes, backendName, ": rank ", rank_, ": the memory of a tensor of ",
                          bytes, " bytes was resized to ", to.storage().nbytes(), " before the call was done");
        to.copy_(from);
      }
    } catch (...) {
      failure = std::current_exception();
    }
    engineOf(done).unmark(done.mark);
    done.work->complete(failure);
  }
  // Also where its kernel has failed, which waiting for it tells.
  static bool isDone(Pending const& one) noexcept {
    try {
      return engineOf(one).idle(one.mark);
    } catch (std::exception const&) {
      return true;
    }
  }

  int rank_;
  int size_;
  std::string title_;
  OwnProcess here_;
  std::unique_ptr<Engines> engines_;
  TensorCall::Allocate allocate_ = [](std::size_t bytes) { return Engine::allocate(Engine::simulatedDevice(), bytes); };

  std::mutex callMutex_;
  std::uint64_t sequence_ = 0;
  std::map<End, c10::Stream> cudaStreams_;  // for calls beside the caller's work
  std::map<End, void*> cpuStreams_;
  std::shared_ptr<EventPool> events_ = std::make_shared<EventPool>(c10::DeviceType::CUDA);
  std::optional<TensorCall> coalesced_;
  c10::intrusive_ptr<CallWork> coalescedWork_;
  SenderNews news_;
  std::atomic<bool> hasEnded_ = false;

  std::mutex queueMutex_;
  std::unique_ptr<std::condition_variable> queued_ = std::make_unique<std::condition_variable>();
  std::vector<Pending> pending_;
  std::vector<Unnamed> unnamed_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace mscclpp::torch
