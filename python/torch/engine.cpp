// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "engine.hpp"

#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "mscclpp/host/bootstrap/tcp_bootstrap.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/launcher.hpp"
#include "mscclpp/host/log.hpp"
#include "mscclpp/host/stream.hpp"
#include "nccl/comm.hpp"
#include "nccl/patience.hpp"
#include "nccl/result.hpp"

namespace mscclpp::torch {
namespace {

// What NCCL's rules refuse, as an error of this library.
template <class F>
auto translated(F&& body) {
  try {
    return static_cast<F&&>(body)();
  } catch (nccl::Refusal const& refusal) {
    throw Error(refusal.code() == ncclRemoteError ? ErrorCode::remoteError : ErrorCode::invalidUsage, refusal.what());
  }
}

class CommEngine final : public Engine {
 public:
  CommEngine(std::unique_ptr<Communicator> communicator) : comm_(std::move(communicator)) {}

  Device device() const override { return comm_.device(); }
  int rank() const override { return comm_.rank(); }
  int size() const override { return comm_.size(); }

  void start(std::span<Call> calls, void* stream) override {
    for (auto& call : calls) call.stream = stream;
    translated([&] {
      for (auto const& call : calls) comm_.check(call);
      comm_.start(calls);
    });
  }

  void run(Algorithm const& algorithm, CollectiveCall const& call, void* stream) override {
    translated([&] { comm_.execute(algorithm, call, stream); });
  }

  void* makeStream() override {
    std::lock_guard const lock(mutex_);
    return streams_.emplace_back(device()).native();
  }

  void* mark(void* stream) override {
    std::unique_lock lock(mutex_);
    if (marks_.empty()) marks_.push_back(streams_.emplace_back(device()).native());
    auto* const mark = marks_.back();
    marks_.pop_back();
    lock.unlock();
    Stream::borrow(device(), mark).runAfter(Stream::borrow(device(), stream));
    return mark;
  }
  void unmark(void* mark) override {
    std::lock_guard const lock(mutex_);
    marks_.push_back(mark);
  }

  void wait(void* stream) override {
    comm_.communicator().synchronize(Stream::borrow(device(), stream), std::chrono::hours(24 * 365));
  }
  bool idle(void* stream) override { return Stream::borrow(device(), stream).idle(); }

  std::optional<Error> fault() override {
    if (comm_.asyncError() == ncclSuccess) return std::nullopt;
    if (auto fault = comm_.communicator().fault()) return fault;
    std::string const said = nccl::lastError();
    return Error(ErrorCode::aborted, said.empty() ? "the communicator has failed or was aborted" : said);
  }
  void setTimeLimit(std::chrono::nanoseconds limit) override { comm_.communicator().setTimeLimit(limit); }
  void abort() noexcept override { comm_.abort(); }
  void leave() noexcept override {
    comm_.finishWork();
    comm_.meetLast();
  }

  void addWindow(void* base, std::size_t bytes) override {
    translated([&] { (void)comm_.addWindow(base, bytes, true); });
  }

 private:
  std::mutex mutex_;
  std::vector<Stream> streams_;
  std::vector<void*> marks_;  // of these, that are free
  nccl::Comm comm_;           // goes before its streams
};

}  // namespace

std::string Engine::createId() { return TcpBootstrap::createUniqueId().toString(); }

std::shared_ptr<Engine> Engine::join(int rank, int size, std::string const& id, Device device,
                                     std::chrono::nanoseconds timeout) {
  auto bootstrap = std::make_shared<TcpBootstrap>(rank, size);
  bootstrap->initialize(UniqueId::fromString(id), timeout);
  auto communicator = std::make_unique<Communicator>(std::move(bootstrap), device);
  return translated([&] {
    auto engine = std::make_shared<CommEngine>(std::move(communicator));
    if (nccl::patience("MSCCLPP_KERNEL_TIMEOUT")) engine->setTimeLimit(timeout);
    return engine;
  });
}

std::shared_ptr<Engine> Engine::of(Communicator const& communicator) {
  std::vector<int> all(static_cast<std::size_t>(communicator.size()));
  std::iota(all.begin(), all.end(), 0);
  return translated([&] { return std::make_shared<CommEngine>(communicator.shrink(all)); });
}

Device Engine::simulatedDevice() {
  auto const count = Device::count(DeviceKind::sim);
  if (count == 0) throw Error(ErrorCode::unsupported, "this build has no simulated machine, which CPU tensors need");
  return {DeviceKind::sim, launchFromEnvironment().localRank % count};
}

std::shared_ptr<void> Engine::allocate(Device device, std::size_t bytes) {
  auto memory = std::make_shared<DeviceMemory>(device, bytes, MemoryKind::shareable);
  auto* const data = memory->data();
  return {std::move(memory), data};
}

}  // namespace mscclpp::torch

void* mscclppTorchAllocate(std::size_t bytes, int device, void* /*stream*/) {
  using namespace mscclpp;
  try {
    return runtime(DeviceKind::cuda).allocate(device, bytes, MemoryKind::shareable);
  } catch (std::exception const& error) {
    log(LogLevel::info, "no memory for PyTorch's pool: {}", error.what());
    return nullptr;
  }
}

void mscclppTorchRelease(void* data, std::size_t /*bytes*/, int /*device*/, void* /*stream*/) {
  using namespace mscclpp;
  try {
    runtime(DeviceKind::cuda).release(data);
  } catch (std::exception const& error) {
    log(LogLevel::warn, "memory of PyTorch's pool is not given back: {}", error.what());
  }
}
