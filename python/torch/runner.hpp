// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How the calls of one process group run: on which engine, in which stream, and who completes them.
//
// Collectives and groups have one stream; single messages with different ranks, and of both directions, go side by
// side. CUDA: a call with async_op=False goes into the caller's current stream. Others go into a stream of the runner,
// behind what is in the caller's. CPU: a thread of the runner copies what has arrived to the caller's tensors, then
// completes the Work. From any threads.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/extension.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "call_work.hpp"
#include "engine.hpp"
#include "operation.hpp"

namespace mscclpp::torch {

class Runner {
 public:
  // Collective. `cudaDevice`: -1: there is none, and tensors are of the CPU.
  Runner(c10::intrusive_ptr<c10d::Store> store, int rank, int size, std::chrono::milliseconds timeout, int cudaDevice)
      : store_(std::move(store)), rank_(rank), size_(size), timeout_(timeout), cudaDevice_(cudaDevice) {
    if (cudaDevice >= 0) {
      cuda_ = meet("cuda", {DeviceKind::cuda, cudaDevice});
    } else {
      cpu_ = meet("cpu", Engine::simulatedDevice());
    }
  }
  // Completes what is there, for which its thread may have to run Python.
  ~Runner() {
    std::optional<pybind11::gil_scoped_release> released;
    if (PyGILState_Check() != 0) released.emplace();
    {
      std::lock_guard const lock(queueMutex_);
      ending_ = true;
    }
    queued_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  Runner(Runner const&) = delete;
  Runner& operator=(Runner const&) = delete;

  int cudaDevice() const { return cudaDevice_; }
  std::uint64_t calls() const { return sequence_; }

  Operation operation(c10d::OpType kind) const { return {kind, size_, allocate_}; }

  c10::intrusive_ptr<c10d::Work> start(Operation made, at::Device device, bool async) {
    std::lock_guard const lock(callMutex_);
    require(device);
    if (coalesced_) {
      if (!coalescedWork_) coalescedWork_ = newWork(c10d::OpType::COALESCED, device);
      coalesced_->append(made);
      return coalescedWork_;
    }
    auto const work = newWork(made.kind, device);
    run(std::move(made), work, async);
    return work;
  }
  // Calls between the two are one: their messages go on together.
  void startCoalescing() {
    std::lock_guard const lock(callMutex_);
    TORCH_CHECK(!coalesced_, backendName, ": startCoalescing inside of another");
    coalesced_.emplace(operation(c10d::OpType::COALESCED));
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

  void setTimeout(std::chrono::milliseconds timeout) {
    timeout_ = timeout;
    forEachEngine([&](Engine& engine) { engine.setTimeLimit(timeout); });
  }
  bool hasFailed() {
    bool failed = false;
    forEachEngine([&](Engine& engine) { failed = failed || !engine.fault().empty(); });
    return failed;
  }
  void abort() {
    forEachEngine([](Engine& engine) { engine.abort(); });
  }

 private:
  // A single message's other rank, and whether it goes there; of all else -1.
  using End = std::pair<int, bool>;
  struct Pending {
    c10::intrusive_ptr<CallWork> work;
    Operation operation;
    void* mark;
  };

  template <class F>
  void forEachEngine(F&& body) {
    for (auto const& engine : {cuda_, cpu_}) {
      if (engine) body(*engine);
    }
  }

  std::shared_ptr<Engine> meet(std::string const& name, Device device) {
    auto const key = std::string(backendName) + "/" + name;
    if (rank_ == 0) store_->set(key, Engine::createId());
    auto const id = store_->get(key);
    return Engine::join(rank_, size_, std::string(id.begin(), id.end()), device, timeout_);
  }

  Engine& cpuEngine() {
    // Where there are GPUs, tensors of the CPU come late, if at all.
    if (!cpu_) cpu_ = meet("cpu", Engine::simulatedDevice());
    return *cpu_;
  }
  void require(at::Device device) {
    TORCH_CHECK_VALUE(device.is_cuda() || device.is_cpu(), backendName, ": a tensor on ", device,
                      "; tensors of CUDA and of the CPU can be used");
    if (!device.is_cuda()) return;
    constexpr char const* way = "; call torch.cuda.set_device() before init_process_group(), or give it device_id";
    TORCH_CHECK_VALUE(cuda_, backendName, ": rank ", rank_, ": a tensor on ", device,
                      " in a group that was made without a GPU", way);
    TORCH_CHECK_VALUE(device.index() == cudaDevice_, backendName, ": rank ", rank_, ": a tensor on ", device,
                      " in a group on cuda:", cudaDevice_, way);
  }

  c10::intrusive_ptr<CallWork> newWork(c10d::OpType kind, at::Device device) {
    return c10::make_intrusive<CallWork>(rank_, kind, device, ++sequence_, device.is_cuda() ? cuda_ : nullptr);
  }

  // Errors of the library as those of torch.distributed.
  template <class F>
  static void guarded(F&& body) {
    try {
      static_cast<F&&>(body)();
    } catch (c10::Error const&) {
      throw;
    } catch (std::exception const& error) {
      TORCH_CHECK_WITH(DistBackendError, false, backendName, ": ", error.what());
    }
  }

  static End endOf(Operation const& made) {
    bool const sends = made.kind == c10d::OpType::SEND;
    bool const single = (sends || made.kind == c10d::OpType::RECV) && !made.calls.empty();
    return {single ? made.calls.front().root : -1, single && sends};
  }

  void run(Operation made, c10::intrusive_ptr<CallWork> const& work, bool async) {
    work->setResults(std::move(made.results));
    if (work->device().is_cuda()) {
      runOnCuda(std::move(made), work, async);
    } else {
      runOnCpu(std::move(made), work);
    }
  }

  void runOnCuda(Operation made, c10::intrusive_ptr<CallWork> const& work, bool async) {
    auto const device = work->device();
    c10::impl::VirtualGuardImpl const machine(device.type());
    auto const current = machine.getStream(device);
    auto const stream = async ? ownStream(machine, device, endOf(made)) : current;
    if (async) {
      c10::Event begin(device.type());
      begin.record(current);
      begin.block(stream);
      // Their memory is not given to others before that stream is through.
      for (auto const& tensor : made.kept) machine.recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
      for (auto const& [to, from] : made.copies) machine.recordDataPtrOnStream(to.storage().data_ptr(), stream);
    }
    guarded([&] { cuda_->start(made.calls, stream.native_handle()); });
    c10::StreamGuard const guard(stream);
    for (auto const& [to, from] : made.copies) to.copy_(from, true);
    work->isIn(stream, async);
  }
  c10::Stream ownStream(c10::impl::VirtualGuardImpl const& machine, at::Device device, End end) {
    auto found = cudaStreams_.find(end);
    if (found == cudaStreams_.end()) {
      found = cudaStreams_.emplace(end, machine.getStreamFromGlobalPool(device, /*isHighPriority=*/true)).first;
    }
    return found->second;
  }

  void runOnCpu(Operation made, c10::intrusive_ptr<CallWork> const& work) {
    auto& engine = cpuEngine();
    auto& stream = cpuStreams_[endOf(made)];
    if (stream == nullptr) stream = engine.makeStream();
    void* mark = nullptr;
    guarded([&] {
      engine.start(made.calls, stream);
      mark = engine.mark(stream);
    });
    std::lock_guard const lock(queueMutex_);
    pending_.push_back({work, std::move(made), mark});
    if (!thread_.joinable()) thread_ = std::thread([this] { completeAll(); });
    queued_.notify_all();
  }
  // In whichever order they get done.
  void completeAll() {
    std::unique_lock lock(queueMutex_);
    for (;;) {
      queued_.wait(lock, [&] { return ending_ || !pending_.empty(); });
      if (pending_.empty()) return;
      auto const next =
          std::find_if(pending_.begin(), pending_.end(), [&](auto const& one) { return isDone(one.mark); });
      if (next == pending_.end()) {
        lock.unlock();
        std::this_thread::sleep_for(std::chrono::microseconds(20));
        lock.lock();
        continue;
      }
      auto const done = std::move(*next);
      pending_.erase(next);
      lock.unlock();
      complete(done);
      lock.lock();
    }
  }
  void complete(Pending const& done) {
    std::exception_ptr failure;
    try {
      guarded([&] { cpu_->wait(done.mark); });
      at::NoGradGuard const quiet;
      for (auto const& [to, from] : done.operation.copies) to.copy_(from);
    } catch (...) {
      failure = std::current_exception();
    }
    cpu_->unmark(done.mark);
    done.work->complete(failure);
  }
  // Also where its kernel has failed, which waiting for it tells.
  bool isDone(void* mark) noexcept {
    try {
      return cpu_->idle(mark);
    } catch (std::exception const&) {
      return true;
    }
  }

  c10::intrusive_ptr<c10d::Store> store_;
  int rank_;
  int size_;
  std::chrono::milliseconds timeout_;
  int cudaDevice_;
  std::shared_ptr<Engine> cuda_, cpu_;
  Operation::Allocate allocate_ = [this](std::size_t bytes) { return cpuEngine().allocate(bytes); };

  std::mutex callMutex_;
  std::uint64_t sequence_ = 0;
  std::map<End, c10::Stream> cudaStreams_;  // for calls beside the caller's work
  std::map<End, void*> cpuStreams_;
  std::optional<Operation> coalesced_;
  c10::intrusive_ptr<CallWork> coalescedWork_;

  std::mutex queueMutex_;
  std::condition_variable queued_;
  std::vector<Pending> pending_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace mscclpp::torch
