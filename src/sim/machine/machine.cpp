// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "sim/machine/machine.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <span>
#include <utility>

#include <execinfo.h>
#include <fmt/format.h>

#include "mscclpp/host/error.hpp"
#include "mscclpp/host/wait.hpp"
#include "sim/machine/host_task.hpp"
#include "sim/machine/host_words.hpp"
#include "sim/machine/kernel.hpp"
#include "sim/machine/observer.hpp"
#include "sim/machine/rank_run.hpp"
#include "sim/machine/team_rules.hpp"
#include "sim/machine/waiting.hpp"

namespace mscclpp::sim {
namespace {

constexpr int defaultDevices = 8;
constexpr int maxDevices = 1024;
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

// The ranks of an observed run are ordered by the messages of their bootstrap.
HostOrder const hostOrder{[]() -> std::shared_ptr<void const> {
                            auto* const task = currentHostTask();
                            if (task == nullptr || task->agent == nullptr) return nullptr;
                            return std::make_shared<Clock>(Machine::instance().observer()->release(*task->agent));
                          },
                          [](void const* released) {
                            auto* const task = currentHostTask();
                            if (task == nullptr || task->agent == nullptr) return;
                            Machine::instance().observer()->acquire(*task->agent, *static_cast<Clock const*>(released));
                          }};

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
  devices_.install(options_);
  linesArriveWhole_ = options_.linesArriveWhole;
  stacks_ = std::make_unique<StackPool>(options_.threadStackBytes * stackFactor, options_.stackGuards);
  hostThreadStacks_ = std::make_unique<StackPool>(hostThreadStackBytes * stackFactor);
  scheduler_.restart(options_.seed, options_.preemption);
  applied_ = true;
}

void Machine::install(MachineOptions const& options) {
  checkOptions(options);
  auto lock = driver_.lock();
  if (!deterministic()) driver_.awaitQuiet(lock);
  if (deterministic() || !streams_.empty() || !heap_.empty()) {
    throw Error(ErrorCode::invalidUsage,
                "sim::install: the simulated machine is in use; release its memory and streams first");
  }
  options_ = options;
  applied_ = false;
  applyOptions();
}

MachineOptions Machine::options() {
  auto const lock = driver_.lock();
  applyOptions();
  return options_;
}

int Machine::deviceCount() {
  auto const lock = driver_.lock();
  applyOptions();
  return devices_.count();
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

Stream* Machine::createStream(int device, bool ofHost) {
  checkDevice(device, "createStream");
  requireOwner("createStream");
  auto const lock = driver_.lock();
  streams_.push_back(std::make_unique<Stream>(*this, device, ofHost, ++lastStream_));
  return streams_.back().get();
}

std::vector<void*> Machine::streamsOf(int device) {
  auto const lock = driver_.lock();
  std::vector<void*> result;
  for (auto const& stream : streams_) {
    if (stream->device() == device && !stream->ofHost()) result.push_back(stream.get());
  }
  return result;
}

Stream& Machine::checkStream(void* stream, char const* operation) {
  requireOwner(operation);
  auto const lock = driver_.lock();
  auto const it = std::ranges::find_if(streams_, [&](auto const& s) { return s.get() == stream; });
  if (it == streams_.end()) {
    throw Error(ErrorCode::invalidUsage,
                fmt::format("{}: {} is no stream of the simulated machine; make one with Runtime::createStream",
                            operation, stream));
  }
  return **it;
}

void Machine::submit(Stream& stream, decltype(Work::what) what) {
  stream.noteSubmitted();
  driver_.noteSubmitted();
  Work work{.what = std::move(what)};
  if (!deterministic()) return driver_.post(stream, std::move(work));
  auto* const task = currentHostTask();
  if (task != nullptr) work.submitTime = task->time.now;
  if (task != nullptr && task->agent != nullptr) work.clock = observer_->release(*task->agent);
  stream.push(std::move(work));
  if (task != nullptr && task->cancelled) return stream.discard();
  stream.advance();
  if (task != nullptr) scheduler_.yieldReady(*task);  // a launch takes no fixed time
}

void Machine::launch(Stream& stream, KernelWork kernel) {
  if (auto* const capture = stream.capture()) return capture->add(stream, std::move(kernel));
  auto const made =
      std::make_shared<Kernel>(*this, stream, kernel.shape, std::move(kernel.name), std::move(kernel.perThread));
  if (auto* const faults = scheduler_.faults()) {
    if (faults->fails({stream.device(), made->number()}, made->name(), made->shape().blocks)) {
      throw Error(ErrorCode::deviceError,
                  fmt::format("launch of kernel \"{}\" on simulated device {} failed, by a fault of the schedule",
                              made->name(), stream.device()));
    }
  }
  submit(stream, made);
}

void Machine::copy(Stream& stream, CopyWork const& copy) {
  if (auto* const capture = stream.capture()) return capture->add(stream, copy);
  submit(stream, copy);
}

void Machine::orderAfter(Stream& stream, Stream& earlier) {
  if (stream.capture() != nullptr || earlier.capture() != nullptr) return captureOrder(stream, earlier);
  auto const mark = std::make_shared<StreamMark>();
  submit(earlier, ReachMark{mark});
  submit(stream, AwaitMark{mark});
}

// A stream that was not captured joins the capture of the one that it is put behind.
void Machine::captureOrder(Stream& stream, Stream& earlier) {
  auto* const capture = earlier.capture();
  if (capture == nullptr || (stream.capture() != nullptr && stream.capture() != capture) ||
      stream.device() != capture->streams[0]->device()) {
    throw Error(ErrorCode::invalidUsage,
                fmt::format("orderAfter: a stream of simulated device {} behind one of device {}, {}; put streams in "
                            "order before the capture, or have one behind the captured stream take part",
                            stream.device(), earlier.device(),
                            capture == nullptr ? "where the first is captured and the second is not"
                                               : "which are not of one capture"));
  }
  if (stream.capture() == nullptr) {
    capture->streams.push_back(&stream);
    stream.takePart(capture);
  }
  capture->add(stream, AfterStream{capture->indexOf(earlier)});
}

void Machine::beginCapture(Stream& stream) {
  requireNoCapture(stream, "Graph");
  auto const lock = driver_.lock();
  captures_.push_back(std::make_unique<Capture>(Capture{++lastCapture_, {&stream}}));
  stream.takePart(captures_.back().get());
  captureCount_ = captures_.size();
}

Capture Machine::endCapture(Stream& stream) {
  auto const lock = driver_.lock();
  auto const it = std::ranges::find_if(captures_, [&](auto const& each) { return each.get() == stream.capture(); });
  for (auto* const each : (*it)->streams) {
    if (each != nullptr) each->takePart(nullptr);
  }
  auto ended = std::move(**it);
  captures_.erase(it);
  captureCount_ = captures_.size();
  return ended;
}

bool Machine::captures(int device) {
  auto const lock = driver_.lock();
  return std::ranges::any_of(captures_, [&](auto const& each) { return each->streams[0]->device() == device; });
}

void Machine::requireNoCapture(Stream const& stream, char const* operation) {
  if (stream.capture() == nullptr) return;
  throw Error(ErrorCode::invalidUsage, fmt::format("{}: the stream of simulated device {} is being captured into a "
                                                   "graph; end that capture first",
                                                   operation, stream.device()));
}

void Machine::throwFailure(Stream& stream) {
  if (auto const failure = stream.takeFailure(); !failure.empty()) throw Error(ErrorCode::deviceError, failure);
}

void Machine::synchronize(void* handle, std::chrono::nanoseconds limit) {
  Stream& stream = checkStream(handle, "synchronize");
  requireNoCapture(stream, "synchronize");
  if (deterministic()) {
    auto* task = currentHostTask();
    if (task != nullptr) hostTaskWait(*task, "synchronize of a stream", [&] { return stream.idle(); });
    acquireStream(stream);
    return throwFailure(stream);
  }
  auto const now = std::chrono::steady_clock::now();
  auto const deadline = limit > std::chrono::hours(24 * 365) ? now + std::chrono::hours(24 * 365) : now + limit;
  auto lock = driver_.lock();
  if (!driver_.driveUntil(
          lock, [&] { return stream.idle(); }, deadline)) {
    std::string who;
    driver_.whileQuiet(lock, [&] { who = waiters(*this); });
    throw Error(
        ErrorCode::timeout,
        fmt::format("simulated device {}: the work of a stream has not ended within {:.3f} s; in this process:\n"
                    "{}Check that every rank launches the same collectives with the same shapes",
                    stream.device(), std::chrono::duration<double>(limit).count(), who));
  }
  lock.unlock();
  throwFailure(stream);
}

bool Machine::idle(void* handle) {
  Stream& stream = checkStream(handle, "idle");
  requireNoCapture(stream, "idle");
  if (deterministic()) {
    auto* task = currentHostTask();
    if (task != nullptr && !stream.idle()) {
      if (task->cancelled && std::uncaught_exceptions() == 0) throw Unwind{};
      scheduler_.yieldPoll(*task, 0);
    }
    if (stream.idle()) acquireStream(stream);
    return stream.idle();
  }
  auto lock = driver_.lock();
  if (!stream.idle()) driver_.driveIfNobodyDoes(lock);
  return stream.idle();
}

void Machine::destroyStream(void* handle) noexcept {
  using namespace std::chrono_literals;
  auto lock = driver_.lock();
  auto const it = std::ranges::find_if(streams_, [&](auto const& s) { return s.get() == handle; });
  if (it == streams_.end()) return;
  Stream& stream = **it;
  if (auto* const capture = stream.capture()) std::ranges::replace(capture->streams, &stream, nullptr);
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
      if (!stream.idle()) stream.discard();
      while (!stream.idle()) scheduler_.yieldPoll(*task, 0);
    }
    acquireStream(stream);
    lock.lock();
  } else if (!stream.idle()) {
    if (wait) driver_.driveUntil(lock, isIdle, std::chrono::steady_clock::now() + 5s);
    if (!stream.idle()) {
      driver_.whileQuiet(lock, [&] {
        driver_.drainInbox();
        stream.discard();
      });
      if (!driver_.driveUntil(lock, isIdle, std::chrono::steady_clock::now() + 60s))
        return;  // kept, rather than used freed
    }
  }
  if (!deterministic())
    driver_.awaitQuiet(lock);  // the driver may still be looking at the stream that it has just completed
  std::erase_if(streams_, [&](auto const& s) { return s.get() == handle; });
}

std::size_t Machine::streamCount() {
  auto const lock = driver_.lock();
  return streams_.size();
}

// ---- memory and checks
// ----------------------------------------------------------------------------------------------

StackPool& Machine::stacksOf(Kernel const& kernel) { return kernel.isHost() ? *hostThreadStacks_ : *stacks_; }

std::byte* Machine::takeShared() {
  auto* const base = blockMemory_.take();
  if (observer_ != nullptr) observer_->forget(reinterpret_cast<std::uintptr_t>(base), BlockMemory::mapped);
  return base;
}

void* Machine::allocate(int device, std::size_t bytes) {
  void* const base = heap_.allocate(device, bytes, options().memoryBytes);
  if (observer_ != nullptr) observer_->memoryChanged();
  return base;
}

void Machine::release(void* base) noexcept {
  forgetTeams(base, heap_.bytesAt(base));
  if (observer_ != nullptr) {
    auto* const task = currentHostTask();
    auto const address = reinterpret_cast<std::uintptr_t>(base);
    // What follows from a rank's failure is no finding of its own.
    if (std::uncaught_exceptions() != 0) {
      observer_->forget(address, heap_.bytesAt(base));
      if (task != nullptr) task->hasFreedByException = true;
    } else {
      observer_->freeing(task == nullptr ? nullptr : task->agent, address, heap_.bytesAt(base));
    }
  }
  // A rank that ends because of a fault does not take its memory from kernels of others.
  if (std::uncaught_exceptions() != 0 && scheduler_.faults() != nullptr && scheduler_.faults()->struck()) {
    abandoned_.push_back(base);
    return;
  }
  heap_.release(base, mayStillUse());
}

// A rank that fails gives its memory back while kernels still use it: of others, or its own, if its wait has timed out.
bool Machine::mayStillUse() const noexcept { return deterministic() || driver_.working(); }

bool Machine::followsMemory(std::uintptr_t begin, std::uintptr_t end) {
  return heap_.touches(begin, end) || blockMemory_.touches(begin, end);
}

std::string Machine::placeOf(std::uintptr_t address) {
  if (auto const offset = blockMemory_.offsetOf(address)) {
    return fmt::format("offset {} of the block's shared memory", *offset);
  }
  return heap_.placeOf(address);
}

void Machine::hostAccess(void const* address, std::size_t bytes, bool write) {
  auto* const task = currentHostTask();
  if (task == nullptr || task->agent == nullptr) return;
  // The library's own code is not instrumented, so the calls that led here are read off the stack. Copies are rare.
  std::array<void*, 64> frames;
  auto const depth = static_cast<std::size_t>(::backtrace(frames.data(), static_cast<int>(frames.size())));
  observer_->noteHost(*task->agent, unorderedAccess(address, bytes, write), std::span(frames).first(depth).subspan(1));
}

void Machine::acquireStream(Stream& stream) {
  auto* const task = currentHostTask();
  if (task == nullptr) return;
  task->time.now = std::max(task->time.now, stream.time());
  if (task->agent != nullptr) observer_->acquire(*task->agent, stream.clock());
}

void Machine::observe(Observer* observer) {
  observer_ = observer;
  if (observer == nullptr) {
    for (auto const& stream : streams_) stream->forgetOrder();
  }
}

// ---- deterministic runs
// ----------------------------------------------------------------------------------------------

void Machine::beginRun(RankRun& run, RankRunOptions const& options) {
  auto lock = driver_.lock();
  applyOptions();
  if (!deterministic()) driver_.awaitQuiet(lock);  // a driver may still be leaving
  bool const busy = driver_.hasPosts() || std::ranges::any_of(streams_, [](auto const& s) { return !s->idle(); });
  if (deterministic() || busy) {
    throw Error(ErrorCode::invalidUsage, deterministic() ? "sim::run: another run of this process is in progress"
                                                         : "sim::run: streams of this process still have work; "
                                                           "synchronize them first");
  }
  if (options.ranks < 1 || options.ranks > maxDevices) {
    throw Error(ErrorCode::invalidUsage,
                fmt::format("sim::run: {} ranks, the range is 1 to {}", options.ranks, maxDevices));
  }
  devices_.beginRun(options.ranks);
  scheduler_.restart(options.seed, options.preemption);
  setThreadHostOrder(&hostOrder);
  setThreadHostWords(&hostWords);
  runThread_ = std::this_thread::get_id();
  run_ = &run;
  deterministic_.store(true, std::memory_order_release);
  if (options.timing != nullptr) {
    time_ = std::make_unique<VirtualTime>(*options.timing, heap_, devices_.count(), options_.devicesPerNode);
    scheduler_.keepTime(time_.get());
    traced_.emplace();
  }
}

void Machine::endRun() noexcept {
  auto const lock = driver_.lock();
  for (void* const base : std::exchange(abandoned_, {})) heap_.release(base, true);
  heap_.unmapReleased();
  setThreadHostOrder(nullptr);
  setThreadHostWords(nullptr);
  scheduler_.restart(options_.seed, options_.preemption);
  traced_.reset();
  time_.reset();
  for (auto const& stream : streams_) stream->forgetTime();
  run_ = nullptr;
  deterministic_.store(false, std::memory_order_release);
}

}  // namespace mscclpp::sim
