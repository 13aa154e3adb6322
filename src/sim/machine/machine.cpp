// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "sim/machine/machine.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iterator>
#include <utility>

#include <execinfo.h>
#include <fmt/format.h>

#include "mscclpp/host/error.hpp"
#include "mscclpp/host/wait.hpp"
#include "sim/checker/checker.hpp"
#include "sim/machine/host_words.hpp"

namespace mscclpp::sim {
namespace {

constexpr int defaultDevices = 8;
constexpr int maxDevices = 1024;
constexpr unsigned threadsPerMultiprocessor = 2048;
constexpr std::size_t smallestStack = 16 * 1024;
constexpr std::size_t hostThreadStackBytes = std::size_t{256} << 10;  // handlers of proxies are ordinary host code

int fromEnvironment(char const* name, int fallback) {
  char const* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return fallback;
  int devices = 0;
  char const* end = text + std::strlen(text);
  auto const [rest, error] = std::from_chars(text, end, devices);
  if (error != std::errc{} || rest != end || devices < 1 || devices > maxDevices) {
    throw Error(ErrorCode::invalidUsage,
                fmt::format("{} is \"{}\"; it must be a number from 1 to {}", name, text, maxDevices));
  }
  return devices;
}

void checkOptions(MachineOptions const& o) {
  auto refuse = [](std::string const& why) { throw Error(ErrorCode::invalidUsage, "MachineOptions::" + why); };
  if (o.devices < 0 || o.devices > maxDevices)
    refuse(fmt::format("devices is {}, the range is 0 to {}", o.devices, maxDevices));
  if (o.devicesPerNode < 0) refuse(fmt::format("devicesPerNode is {}, it must be 0 (all) or more", o.devicesPerNode));
  if (o.memoryBytes == 0) refuse("memoryBytes is 0; a device needs memory");
  if (o.multiprocessors < 1) refuse(fmt::format("multiprocessors is {}, it must be at least 1", o.multiprocessors));
  if (o.threadStackBytes < smallestStack) {
    refuse(fmt::format("threadStackBytes is {}, it must be at least {}", o.threadStackBytes, smallestStack));
  }
  if (!(o.preemption >= 0 && o.preemption <= 1))
    refuse(fmt::format("preemption is {}, the range is 0 to 1", o.preemption));
}

// The ranks of a checked run are ordered by the messages of their bootstrap.
HostOrder const hostOrder{[]() -> std::shared_ptr<void const> {
                            auto* const task = currentHostTask();
                            if (task == nullptr || task->agent == nullptr) return nullptr;
                            return std::make_shared<Clock>(Machine::instance().checker()->release(*task->agent));
                          },
                          [](void const* released) {
                            auto* const task = currentHostTask();
                            if (task == nullptr || task->agent == nullptr) return;
                            Machine::instance().checker()->acquire(*task->agent, *static_cast<Clock const*>(released));
                          }};

unsigned roomOf(unsigned threads) { return (threads + lanesPerWarp - 1) / lanesPerWarp * lanesPerWarp; }
unsigned room(Kernel const& kernel) { return kernel.isHost() ? 0 : roomOf(kernel.shape().threads); }

}  // namespace

Machine::Machine() = default;
Machine::~Machine() = default;

Machine& Machine::instance() {
  static auto* machine = new Machine;  // never destroyed: static objects of the program may still free memory
  return *machine;
}

// ---- options and devices
// ---------------------------------------------------------------------------------------------

void Machine::applyOptions() {
  if (applied_) return;
  if (options_.devices == 0) options_.devices = fromEnvironment("MSCCLPP_SIM_DEVICES", defaultDevices);
  if (options_.devicesPerNode == 0) options_.devicesPerNode = fromEnvironment("MSCCLPP_SIM_DEVICES_PER_NODE", 0);
  devices_.assign(static_cast<std::size_t>(options_.devices), Device{});
  for (auto& device : devices_) {
    device.freeThreads = static_cast<unsigned>(options_.multiprocessors) * threadsPerMultiprocessor;
  }
  checkAddresses_ = options_.checkAddresses;
  linesArriveWhole_ = options_.linesArriveWhole;
  stacks_ = std::make_unique<StackPool>(options_.threadStackBytes * stackFactor, options_.stackGuards);
  hostThreadStacks_ = std::make_unique<StackPool>(hostThreadStackBytes * stackFactor);
  scheduler_.restart(options_.seed, options_.preemption);
  applied_ = true;
}

void Machine::install(MachineOptions const& options) {
  checkOptions(options);
  std::unique_lock lock(mutex_);
  if (!deterministic()) awaitQuiet(lock);
  if (deterministic() || !streams_.empty() || !heap_.empty()) {
    throw Error(ErrorCode::invalidUsage,
                "sim::install: the simulated machine is in use; release its memory and streams first");
  }
  options_ = options;
  applied_ = false;
  applyOptions();
}

MachineOptions Machine::options() {
  std::unique_lock const lock(mutex_);
  applyOptions();
  return options_;
}

int Machine::deviceCount() {
  std::unique_lock const lock(mutex_);
  applyOptions();
  return static_cast<int>(devices_.size());
}

void Machine::checkDevice(int device, char const* operation) {
  int const count = deviceCount();
  if (device < 0 || device >= count) {
    throw Error(ErrorCode::invalidUsage,
                fmt::format("{}: there is no simulated device {}; this process has {} (0 to {}), see "
                            "MSCCLPP_SIM_DEVICES",
                            operation, device, count, count - 1));
  }
}

bool Machine::reachable(int device, std::uintptr_t address, std::size_t bytes) {
  auto& d = devices_[static_cast<std::size_t>(device)];
  if (auto const generation = heap_.generation(); d.heapGeneration != generation) {
    d.windows = {};
    d.heapGeneration = generation;
  }
  auto& window = d.windows[(address >> 16) % d.windows.size()];
  if (address < window.begin || address >= window.end) {
    window = heap_.windowOf(device, address);
    if (window.end == 0) return false;
  }
  return bytes <= window.end - address;
}

// ---- what the driver does
// --------------------------------------------------------------------------------------------

void Machine::queueBlocks(Kernel& kernel) {
  auto& device = devices_[static_cast<std::size_t>(kernel.stream().device)];
  device.waiting.push_back(&kernel);
  startBlocks(device);
}

void Machine::dropBlocks(Kernel& kernel) {
  std::erase(devices_[static_cast<std::size_t>(kernel.stream().device)].waiting, &kernel);
}

void Machine::startBlocks(Device& device) {
  while (!device.waiting.empty()) {
    Kernel& kernel = *device.waiting.front();
    // The blocks of a cluster run together or not at all.
    auto const together = kernel.shape().clusterBlocks;
    if (device.freeThreads < together * room(kernel)) return;
    device.freeThreads -= together * room(kernel);
    for (unsigned i = 0; i < together; ++i) kernel.startBlock();
    if (kernel.allBlocksStarted()) device.waiting.pop_front();
  }
}

void Machine::freeBlock(Kernel& kernel) {
  auto& device = devices_[static_cast<std::size_t>(kernel.stream().device)];
  device.freeThreads += room(kernel);
  startBlocks(device);
}

void Machine::reach(StreamMark& mark, Clock const& clock) {
  mark.reached = true;
  mark.clock = clock;
  if (mark.waiter != nullptr) advance(*std::exchange(mark.waiter, nullptr));
}

// Drops what has not begun. Whoever waits for a mark among it waits no more.
void Machine::drop(Stream& stream) {
  std::vector<std::shared_ptr<StreamMark>> marks;
  std::erase_if(stream.queue, [&](Work const& work) {
    bool const drop = work.kernel == nullptr || !work.kernel->started();
    if (drop && work.mark != nullptr && !work.waits) marks.push_back(work.mark);
    if (drop) completeOne(stream);
    return drop;
  });
  for (auto const& work : stream.queue) work.kernel->cancel();
  for (auto const& mark : marks) reach(*mark, stream.clock);
}

void Machine::advance(Stream& stream) {
  auto& queue = stream.queue;
  while (!queue.empty()) {
    if (queue.front().mark != nullptr) {
      auto const work = queue.front();
      if (work.waits && !work.mark->reached) {
        work.mark->waiter = &stream;
        return;
      }
      queue.pop_front();
      stream.clock.join(work.clock);
      if (work.waits) {
        stream.clock.join(work.mark->clock);
        stream.time = std::max(stream.time, work.mark->time);
      } else {
        work.mark->time = stream.time;
        reach(*work.mark, stream.clock);
      }
      completeOne(stream);
      scheduler_.noteProgress();
      continue;
    }
    if (queue.front().kernel == nullptr) {
      auto const copy = queue.front().copy;
      if (auto* const active = checker()) {
        if (stream.agent == nullptr) stream.agent = &active->addStream(stream.device);
        active->acquire(*stream.agent, stream.clock);
        active->acquire(*stream.agent, queue.front().clock);
        active->plain(*stream.agent, reinterpret_cast<std::uintptr_t>(copy.src), copy.bytes, false, 0);
        active->plain(*stream.agent, reinterpret_cast<std::uintptr_t>(copy.dst), copy.bytes, true, 0);
        stream.clock.join(active->release(*stream.agent));
      }
      if (auto* const time = scheduler_.time()) {
        stream.time = time->copy(stream.device, copy.dst, copy.bytes,
                                 std::max({stream.time, queue.front().submitTime, time->now()}));
      }
      {
        Unwatched const unwatched;  // who started the copy does not do it
        std::memmove(copy.dst, copy.src, copy.bytes);
      }
      queue.pop_front();
      completeOne(stream);
      scheduler_.noteProgress();
      continue;
    }
    auto const kernel = queue.front().kernel;
    if (!kernel->started()) kernel->start(nullptr);
    if (kernel->hasEnded()) {
      stream.clock.join(kernel->endClock());
      stream.time = std::max(stream.time, kernel->endTime());
      if (!kernel->failure().empty()) {
        {
          std::unique_lock const lock(mutex_);
          if (stream.failure.empty()) {
            stream.failure = fmt::format("kernel \"{}\" failed on simulated device {}: {}", kernel->name(),
                                         stream.device, kernel->failure());
          }
        }
        // What was to follow would work on wrong data.
        drop(stream);
      }
      queue.pop_front();
      completeOne(stream);
      scheduler_.noteStep();
      if (auto* const time = scheduler_.time()) time->wakeHosts();
      continue;
    }
    for (std::size_t i = 1; i < queue.size(); ++i) {
      auto const& before = queue[i - 1].kernel;
      auto const& next = queue[i].kernel;
      if (next == nullptr || !next->shape().overlapPrevious || !before->allowsNext()) break;
      if (!next->started()) next->start(before);
    }
    return;
  }
  ++completions_;
}

void Machine::discard(Stream& stream) {
  drop(stream);
  advance(stream);
}

void Machine::discardAll() {
  for (auto const& stream : streams_) discard(*stream);
}

bool Machine::finishLateCopies() {
  bool any = false;
  for (auto const& stream : streams_) {
    for (auto const& work : stream->queue) {
      if (work.kernel == nullptr) continue;
      for (auto const& [index, block] : work.kernel->blocks()) any |= block->finishLateCopies();
    }
  }
  if (any) scheduler_.noteProgress();
  return any;
}

bool Machine::expireWait() {
  Task* first = nullptr;
  std::uint64_t ends = 0;
  for (auto* const task : scheduler_.polling()) {
    std::uint64_t at = 0;
    if (!task->isGpuThread()) {
      at = task->hostWaitEnds;
    } else if (task->poll != nullptr && task->poll->watch != nullptr) {
      auto const limit = std::atomic_ref(task->poll->watch->limitNs).load(std::memory_order_relaxed);
      if (limit != 0) at = task->poll->startNs + limit;
    }
    if (at == 0 || (first != nullptr && at >= ends)) continue;
    first = task;
    ends = at;
  }
  if (first == nullptr) return false;
  scheduler_.passTime(ends);
  (first->isGpuThread() ? first->poll->expired : first->hostWaitExpired) = true;
  scheduler_.noteProgress();
  return true;
}

// ---- streams
// ---------------------------------------------------------------------------------------------------------

void Machine::requireOwner(char const* operation) const {
  if (deterministic() && std::this_thread::get_id() != runThread_) {
    throw Error(ErrorCode::invalidUsage,
                fmt::format("{}: a deterministic run (sim::run) owns the simulated machine; other host threads of this "
                            "process have to wait until it returns",
                            operation));
  }
}

Stream* Machine::createStream(int device) {
  checkDevice(device, "createStream");
  requireOwner("createStream");
  auto stream = std::make_unique<Stream>();
  stream->device = device;
  std::unique_lock const lock(mutex_);
  streams_.push_back(std::move(stream));
  return streams_.back().get();
}

std::vector<void*> Machine::streamsOf(int device) {
  std::unique_lock const lock(mutex_);
  std::vector<void*> result;
  for (auto const& stream : streams_) {
    if (stream->device == device && !stream->ofHost) result.push_back(stream.get());
  }
  return result;
}

Stream& Machine::checkStream(void* stream, char const* operation) {
  requireOwner(operation);
  std::unique_lock const lock(mutex_);
  auto const it = std::ranges::find_if(streams_, [&](auto const& s) { return s.get() == stream; });
  if (it == streams_.end()) {
    throw Error(ErrorCode::invalidUsage,
                fmt::format("{}: {} is no stream of the simulated machine; make one with Runtime::createStream",
                            operation, stream));
  }
  return **it;
}

void Machine::submit(Stream& stream, Work work) {
  stream.submitted.fetch_add(1, std::memory_order_acq_rel);
  pending_.fetch_add(1, std::memory_order_acq_rel);
  if (deterministic()) {
    auto* task = currentHostTask();
    if (task != nullptr) {
      work.submitTime = task->time.now;
      if (work.kernel != nullptr) work.kernel->submitTime = work.submitTime;
    }
    if (task != nullptr && task->agent != nullptr) {
      work.clock = checker()->release(*task->agent);
      if (work.kernel != nullptr) work.kernel->launchClock = work.clock;
    }
    stream.queue.push_back(std::move(work));
    if (task != nullptr && task->cancelled) return discard(stream);
    advance(stream);
    if (task != nullptr) scheduler_.yieldReady(*task);  // a launch takes no fixed time
    return;
  }
  std::unique_lock const lock(mutex_);
  inbox_.emplace_back(&stream, std::move(work));
  mail_.store(true, std::memory_order_release);
  startHelper();
  changed_.notify_all();
}

void Machine::orderAfter(Stream& stream, Stream& earlier) {
  auto const mark = std::make_shared<StreamMark>();
  submit(earlier, {nullptr, {}, {}, mark, false});
  submit(stream, {nullptr, {}, {}, mark, true});
}

void Machine::throwFailure(Stream& stream) {
  std::unique_lock const lock(mutex_);
  if (!stream.failure.empty()) throw Error(ErrorCode::deviceError, std::exchange(stream.failure, {}));
}

void Machine::synchronize(void* handle, std::chrono::nanoseconds limit) {
  Stream& stream = checkStream(handle, "synchronize");
  if (deterministic()) {
    auto* task = currentHostTask();
    if (task != nullptr) hostTaskWait(*task, "synchronize of a stream", [&] { return stream.idle(); });
    acquireStream(stream);
    return throwFailure(stream);
  }
  auto const now = std::chrono::steady_clock::now();
  auto const deadline = limit > std::chrono::hours(24 * 365) ? now + std::chrono::hours(24 * 365) : now + limit;
  std::unique_lock lock(mutex_);
  if (!driveUntil(
          lock, [&] { return stream.idle(); }, deadline)) {
    std::string who;
    whileQuiet(lock, [&] { who = waiters(); });
    throw Error(
        ErrorCode::timeout,
        fmt::format("simulated device {}: the work of a stream has not ended within {:.3f} s; in this process:\n"
                    "{}Check that every rank launches the same collectives with the same shapes",
                    stream.device, std::chrono::duration<double>(limit).count(), who));
  }
  lock.unlock();
  throwFailure(stream);
}

bool Machine::idle(void* handle) {
  Stream& stream = checkStream(handle, "idle");
  if (deterministic()) {
    auto* task = currentHostTask();
    if (task != nullptr && !stream.idle()) {
      if (task->cancelled && std::uncaught_exceptions() == 0) throw Unwind{};
      scheduler_.yieldPoll(*task, 0);
    }
    if (stream.idle()) acquireStream(stream);
    return stream.idle();
  }
  std::unique_lock lock(mutex_);
  if (!stream.idle() && !driving_ && quietRequests_ == 0) driveBatch(lock);
  return stream.idle();
}

void Machine::destroyStream(void* handle) noexcept {
  using namespace std::chrono_literals;
  std::unique_lock lock(mutex_);
  auto const it = std::ranges::find_if(streams_, [&](auto const& s) { return s.get() == handle; });
  if (it == streams_.end()) return;
  Stream& stream = **it;
  auto const isIdle = [&] { return stream.idle(); };
  bool const wait = std::uncaught_exceptions() == 0;  // otherwise the work may never end: its caller has failed
  if (deterministic()) {
    lock.unlock();
    if (auto* task = currentHostTask(); task != nullptr && !stream.idle()) {
      if (wait) {
        try {
          hostTaskWait(*task, "end of a stream that is destroyed", isIdle);
        } catch (Unwind const&) {  // the next wait of the task throws it again
        }
      }
      if (!stream.idle()) discard(stream);
      while (!stream.idle()) scheduler_.yieldPoll(*task, 0);
    }
    acquireStream(stream);
    lock.lock();
  } else if (!stream.idle()) {
    if (wait) driveUntil(lock, isIdle, std::chrono::steady_clock::now() + 5s);
    if (!stream.idle()) {
      whileQuiet(lock, [&] {
        drainInbox();
        discard(stream);
      });
      if (!driveUntil(lock, isIdle, std::chrono::steady_clock::now() + 60s)) return;  // kept, rather than used freed
    }
  }
  if (!deterministic()) awaitQuiet(lock);  // the driver may still be looking at the stream that it has just completed
  std::erase_if(streams_, [&](auto const& s) { return s.get() == handle; });
}

std::size_t Machine::streamCount() {
  std::unique_lock const lock(mutex_);
  return streams_.size();
}

// ---- memory and checks
// ----------------------------------------------------------------------------------------------

namespace {

constexpr std::size_t sharedMapping = maxBlockShared + 4096;

}  // namespace

std::byte* Machine::takeShared() {
  if (freeShared_.empty()) {
    void* const base =
        ::mmap(nullptr, sharedMapping, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) throwSystemError("cannot map the shared memory of a simulated block", errno);
    freeShared_.push_back(static_cast<std::byte*>(base));
    shared_.insert(freeShared_.back());
  }
  auto* const base = freeShared_.back();
  freeShared_.pop_back();
  if (checking_) checker_->forget(reinterpret_cast<std::uintptr_t>(base), sharedMapping);
  return base;
}

void Machine::returnShared(std::byte* base) { freeShared_.push_back(base); }

void* Machine::allocate(int device, std::size_t bytes) {
  void* const base = heap_.allocate(device, bytes, options().memoryBytes);
  if (checking_) checker_->memoryChanged();
  return base;
}

void Machine::release(void* base) noexcept {
  if (checking_) {
    auto* const task = currentHostTask();
    auto const address = reinterpret_cast<std::uintptr_t>(base);
    // What follows from a rank's failure is no finding of its own.
    if (std::uncaught_exceptions() != 0) {
      checker_->forget(address, heap_.bytesAt(base));
    } else {
      checker_->freeing(task == nullptr ? nullptr : task->agent, address, heap_.bytesAt(base));
    }
  }
  // A rank that fails gives its memory back while kernels of others still use it.
  heap_.release(base, deterministic());
}

bool Machine::followsMemory(std::uintptr_t begin, std::uintptr_t end) {
  if (heap_.touches(begin, end)) return true;
  auto const it = shared_.upper_bound(reinterpret_cast<std::byte*>(end - 1));
  return it != shared_.begin() && reinterpret_cast<std::uintptr_t>(*std::prev(it)) + sharedMapping > begin;
}

int Machine::ownerOf(std::uintptr_t address) { return heap_.ownerOf(address); }

std::string Machine::placeOf(std::uintptr_t address) {
  auto const it = shared_.upper_bound(reinterpret_cast<std::byte*>(address));
  if (it != shared_.begin()) {
    auto const base = reinterpret_cast<std::uintptr_t>(*std::prev(it));
    if (address < base + sharedMapping) return fmt::format("offset {} of the block's shared memory", address - base);
  }
  return heap_.placeOf(address);
}

void Machine::hostAccess(void const* address, std::size_t bytes, bool write) {
  auto* const task = currentHostTask();
  if (task == nullptr || task->agent == nullptr) return;
  // The library's own code is not instrumented, so the calls that led here are read off the stack. Copies are rare.
  auto& agent = *task->agent;
  auto const calls = agent.calls;
  std::array<void*, 64> frames;
  int const depth = ::backtrace(frames.data(), static_cast<int>(frames.size()));
  agent.calls = 0;
  for (int frame = depth - 1; frame > 1; --frame) checker_->enterCall(agent, frames[static_cast<std::size_t>(frame)]);
  checker_->plain(agent, reinterpret_cast<std::uintptr_t>(address), bytes, write, Checker::siteOf(agent, frames[1]));
  agent.calls = calls;
  if (!write) checker_->hostLooks(reinterpret_cast<std::uintptr_t>(address), bytes);
}

void Machine::acquireStream(Stream& stream) {
  auto* const task = currentHostTask();
  if (task == nullptr) return;
  task->time.now = std::max(task->time.now, stream.time);
  if (task->agent != nullptr) checker_->acquire(*task->agent, stream.clock);
}

void Machine::beginChecks(CheckerOptions const& options) {
  if (checker_ == nullptr) checker_ = std::make_unique<Checker>(*this);
  checker_->begin(options);
  checking_ = true;
}

std::vector<Finding> Machine::endChecks() {
  if (!checking_) return {};
  checking_ = false;
  for (auto const& stream : streams_) {
    stream->clock = {};
    stream->agent = nullptr;
  }
  return checker_->end();
}

// ---- deterministic runs
// ----------------------------------------------------------------------------------------------

void Machine::beginRun(int ranks, std::uint64_t seed, double preemption) {
  std::unique_lock lock(mutex_);
  applyOptions();
  if (!deterministic()) awaitQuiet(lock);  // a driver may still be leaving
  bool const busy = !inbox_.empty() || std::ranges::any_of(streams_, [](auto const& s) { return !s->idle(); });
  if (deterministic() || busy) {
    throw Error(ErrorCode::invalidUsage, deterministic() ? "sim::run: another run of this process is in progress"
                                                         : "sim::run: streams of this process still have work; "
                                                           "synchronize them first");
  }
  if (ranks < 1 || ranks > maxDevices) {
    throw Error(ErrorCode::invalidUsage, fmt::format("sim::run: {} ranks, the range is 1 to {}", ranks, maxDevices));
  }
  while (devices_.size() < static_cast<std::size_t>(ranks)) {
    Device device;
    device.freeThreads = static_cast<unsigned>(options_.multiprocessors) * threadsPerMultiprocessor;
    devices_.push_back(std::move(device));
  }
  for (auto& device : devices_) device.launches = 0;
  kernelFailures_.clear();
  scheduler_.restart(seed, preemption);
  setThreadHostOrder(&hostOrder);
  setThreadHostWords(&hostWords);
  runThread_ = std::this_thread::get_id();
  hostTasksEnded_ = 0;
  deterministic_.store(true, std::memory_order_release);
}

void Machine::beginTiming(TimingModel const& model) {
  time_ = std::make_unique<VirtualTime>(model, heap_, static_cast<int>(devices_.size()), options_.devicesPerNode);
  scheduler_.keepTime(time_.get());
}

unsigned Machine::numberKernel(int device) {
  return deterministic() ? devices_[static_cast<std::size_t>(device)].launches++ : 0;
}

void Machine::noteKernelFailure(Kernel& kernel) {
  if (!deterministic()) return;
  auto const* task = currentTask();
  bool const byThread = task != nullptr && task->isGpuThread();
  KernelFailure failure{kernel.stream().device, kernel.name(), byThread, 0, 0, kernel.failure(), {}};
  if (byThread) {
    auto const& context = static_cast<GpuThread const&>(*task).context;
    failure.block = context.block;
    failure.thread = context.thread;
    failure.calls = callsHere();
  }
  kernelFailures_.push_back(std::move(failure));
}

bool Machine::fitsTogether(LaunchShape const& shape) const {
  auto const threads = static_cast<std::uint64_t>(options_.multiprocessors) * threadsPerMultiprocessor;
  return std::uint64_t{shape.clusterBlocks} * roomOf(shape.threads) <= threads;
}

void Machine::checkResident(Kernel const& kernel) {
  auto const threads = static_cast<std::uint64_t>(options_.multiprocessors) * threadsPerMultiprocessor;
  if (std::uint64_t{kernel.shape().blocks} * room(kernel) > threads) scheduler_.cut(Cut::gridNotResident);
}

void Machine::endRun() noexcept {
  std::unique_lock const lock(mutex_);
  hostTasks_.clear();
  heap_.unmapReleased();
  setThreadHostOrder(nullptr);
  setThreadHostWords(nullptr);
  scheduler_.restart(options_.seed, options_.preemption);
  time_.reset();
  for (auto const& stream : streams_) stream->time = 0;
  deterministic_.store(false, std::memory_order_release);
}

}  // namespace mscclpp::sim
