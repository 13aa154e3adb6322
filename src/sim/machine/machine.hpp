// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The simulated machine of this process: devices, streams, and who drives the scheduler.
//
// Either a deterministic run owns the machine (run.cpp), or host threads take turns: whoever waits for a stream drives
// the scheduler until its own work is done, the others sleep and one of them takes over; while there is work that no
// one waits for, a thread of the machine's own drives (driver.cpp). Stream queues, kernels and the scheduler belong to
// the thread that drives; everything else submits through an inbox.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "mscclpp/sim/finding.hpp"
#include "mscclpp/sim/runtime.hpp"
#include "sim/machine/kernel.hpp"
#include "sim/machine/stack_pool.hpp"
#include "sim/memory/heap.hpp"
#include "sim/memory/multicasts.hpp"
#include "sim/schedule/scheduler.hpp"

namespace mscclpp::sim {

struct CopyWork {
  void* dst;
  void const* src;
  std::size_t bytes;
};

// Threads that wait for the same, or host code.
struct WaitingGroup {
  int device = 0;
  bool host = false;
  std::string kernel;
  std::vector<unsigned> blocks;   // empty: of the host, or blocks that have not begun
  std::vector<unsigned> threads;  // alike in each of the blocks
  std::string what;               // "waits for ..."
  Task* first = nullptr;          // one of them
  layout::WaitKind kind = layout::WaitKind::none;
  bool missesBlocks = false;  // some of its kernel's blocks have not begun
};

std::string threadsOf(WaitingGroup const& group);  // "blocks 0-3 threads 0-31"
std::string toString(WaitingGroup const& group);   // all but its device

struct KernelFailure {
  int device = 0;
  std::string kernel;
  bool byThread = false;
  unsigned block = 0;
  unsigned thread = 0;
  std::string text;
  std::vector<std::uintptr_t> calls;  // code addresses, innermost first
};

struct Stream;

// A point in one stream that another waits for.
struct StreamMark {
  bool reached = false;
  Clock clock;               // what it makes known
  Picoseconds time = 0;      // of a timed run: when it was reached
  Stream* waiter = nullptr;  // that stands at it
};

struct Work {
  std::shared_ptr<Kernel> kernel;  // or, when null, a copy, or a mark
  CopyWork copy{};
  Clock clock{};  // what the submitting host code knew
  std::shared_ptr<StreamMark> mark{};
  bool waits = false;  // for the mark, which it sets otherwise
  Picoseconds submitTime = 0;
};

struct Stream {
  int device = 0;
  std::deque<Work> queue;  // the driver's
  std::atomic<std::uint64_t> submitted{0};
  std::atomic<std::uint64_t> completed{0};
  std::string failure;     // guarded by the machine's mutex
  Clock clock;             // what the end of all completed work makes known
  Picoseconds time = 0;    // of a timed run: when that work ended
  Agent* agent = nullptr;  // that copies
  bool ofHost = false;     // runs a thread of the host, and is nobody's to wait for
  bool idle() const { return completed.load(std::memory_order_acquire) == submitted.load(std::memory_order_acquire); }
};

class Checker;
struct CheckerOptions;
class HostTask;

class Machine {
 public:
  Machine();
  ~Machine();
  static Machine& instance();

  // ---- options and devices
  void install(MachineOptions const& options);
  MachineOptions options();
  int deviceCount();
  void checkDevice(int device, char const* operation);
  Heap& heap() { return heap_; }
  Multicasts& multicasts() { return multicasts_; }
  // Whether `device` may use these bytes; the driver's.
  bool reachable(int device, std::uintptr_t address, std::size_t bytes);
  bool checksAddresses() const { return checkAddresses_; }
  bool linesArriveWhole() const { return linesArriveWhole_; }
  // Memory that a block's threads share, with a page's room to spare.
  std::byte* takeShared();
  void returnShared(std::byte* base);
  void* allocate(int device, std::size_t bytes);
  void release(void* base) noexcept;

  // ---- checked runs
  Checker* checker() { return checking_ ? checker_.get() : nullptr; }
  // Before the run's host code begins.
  void beginChecks(CheckerOptions const& options);
  std::vector<Finding> endChecks();
  bool followsMemory(std::uintptr_t begin, std::uintptr_t end);
  int ownerOf(std::uintptr_t address);  // device; negative: host memory, a block's shared memory, or nobody's
  std::string placeOf(std::uintptr_t address);
  // Host code reads or writes device memory itself.
  void hostAccess(void const* address, std::size_t bytes, bool write);

  // ---- timed runs
  void beginTiming(TimingModel const& model);  // before the run's host code begins
  VirtualTime* time() { return scheduler_.time(); }

  // ---- streams
  Stream* createStream(int device);
  void destroyStream(void* stream) noexcept;
  std::vector<void*> streamsOf(int device);
  Stream& checkStream(void* stream, char const* operation);
  void submit(Stream& stream, Work work);
  void orderAfter(Stream& stream, Stream& earlier);
  void synchronize(void* stream, std::chrono::nanoseconds limit);
  bool idle(void* stream);

  // ---- the driver's
  Scheduler& scheduler() { return scheduler_; }
  void reach(StreamMark& mark, Clock const& clock);
  void drop(Stream& stream);
  void advance(Stream& stream);  // starts what may start, drops what has ended
  void queueBlocks(Kernel& kernel);
  void dropBlocks(Kernel& kernel);
  void freeBlock(Kernel& kernel);
  void discard(Stream& stream);  // ends what runs, drops the rest
  // Who waits for what, one line each; the ranks' host code too in a deterministic run.
  std::string waiters();
  std::vector<WaitingGroup> waitingGroups();
  bool somebodyWaits();
  std::string takeFailures();  // of kernels that nobody has been told of
  // Carries out the bulk copies that were left for later, when nobody can go on without them; false if there were none.
  bool finishLateCopies();
  // Nobody can go on: lets time pass until the first limit of a wait ends. False where no wait has one.
  bool expireWait();

  // ---- deterministic runs
  bool deterministic() const { return deterministic_.load(std::memory_order_acquire); }
  void beginRun(int ranks, std::uint64_t seed, double preemption);
  void endRun() noexcept;
  std::vector<std::unique_ptr<HostTask>>& hostTasks() { return hostTasks_; }
  StackPool& threadStacks() { return *stacks_; }
  StackPool& hostThreadStacks() { return *hostThreadStacks_; }
  void discardAll();
  unsigned numberKernel(int device);
  void noteKernelFailure(Kernel& kernel);
  std::vector<KernelFailure> const& kernelFailures() const { return kernelFailures_; }  // of this run
  // Called where a thread begins to wait for all blocks of its grid.
  bool fitsTogether(LaunchShape const& shape) const;  // the blocks of a cluster
  void checkResident(Kernel const& kernel);
  std::size_t streamCount();
  void noteHostTaskEnded() { ++hostTasksEnded_; }
  std::size_t hostTasksEnded() const { return hostTasksEnded_; }

 private:
  struct Device {
    unsigned freeThreads = 0;
    unsigned launches = 0;                    // in this deterministic run
    std::deque<Kernel*> waiting;              // kernels with blocks that have not begun
    std::array<Heap::Window, 256> windows{};  // where the last accesses went, by address
    std::uint64_t heapGeneration = 0;
  };

  void acquireStream(Stream& stream);  // the running host code knows of its work's end
  void applyOptions();                 // under the mutex
  void requireOwner(char const* operation) const;
  void startBlocks(Device& device);
  void completeOne(Stream& stream) {
    stream.completed.fetch_add(1, std::memory_order_release);
    pending_.fetch_sub(1, std::memory_order_release);
  }
  void drainInbox();
  // Drives until `done`; false when the deadline passes first. The lock is held on entry and return, not meanwhile.
  bool driveUntil(std::unique_lock<std::mutex>& lock, std::function<bool()> const& done,
                  std::chrono::steady_clock::time_point deadline);
  bool driveBatch(std::unique_lock<std::mutex>& lock);  // false when nobody could go on
  void awaitQuiet(std::unique_lock<std::mutex>& lock);  // nobody drives until the lock is given up
  // Runs `act` while nobody drives, without the lock.
  void whileQuiet(std::unique_lock<std::mutex>& lock, std::function<void()> const& act);
  void throwFailure(Stream& stream);
  void startHelper();  // under the lock
  void helperMain();
  void stopHelper();
  void beforeFork();
  void afterFork(bool inChild);

  MachineOptions options_;
  bool applied_ = false;
  bool checkAddresses_ = true;
  bool linesArriveWhole_ = true;
  std::vector<Device> devices_;
  Heap heap_;
  Multicasts multicasts_;
  std::unique_ptr<StackPool> stacks_;
  std::unique_ptr<StackPool> hostThreadStacks_;
  std::unique_ptr<VirtualTime> time_;
  Scheduler scheduler_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool driving_ = false;
  unsigned quietRequests_ = 0;  // threads that need the machine to stand still
  unsigned waiters_ = 0;        // threads in driveUntil
  bool helperRuns_ = false;
  bool helperStops_ = false;
  std::atomic<std::int64_t> pending_{0};  // work submitted and not completed, of all streams
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<std::pair<Stream*, Work>> inbox_;
  std::atomic<bool> mail_{false};
  std::atomic<bool> deterministic_{false};
  std::thread::id runThread_;
  std::vector<std::unique_ptr<HostTask>> hostTasks_;
  std::size_t hostTasksEnded_ = 0;
  std::vector<KernelFailure> kernelFailures_;
  std::unique_ptr<Checker> checker_;
  bool checking_ = false;
  std::set<std::byte*> shared_;  // of blocks that run or have run
  std::vector<std::byte*> freeShared_;
  std::uint64_t completions_ = 0;  // streams that became idle; the driver's
};

// ---- host code of one rank in a deterministic run -------------------------------------------------------------------

class HostTask final : public Task {
 public:
  HostTask(int rank, StackPool& stacks, std::function<void()> main);
  int rank() const { return rank_; }
  TaskKey key() const override;
  std::exception_ptr const& failure() const { return failure_; }
  void ended() override;
  void failedToStart(char const* why) override;

 private:
  void body() noexcept override;
  StackPool& stacks() override { return stacks_; }
  int rank_;
  StackPool& stacks_;
  std::function<void()> main_;
  std::exception_ptr failure_;
};

// The rank that is running; null elsewhere.
HostTask* currentHostTask() noexcept;
// Lets the other tasks run until `ready`; throws Unwind when the run ends first, or returns false where it must not
// throw because an exception is already on its way.
// Also false once the limit has passed, which happens only where waits expire (RunOptions).
bool hostTaskWait(HostTask& task, char const* what, std::function<bool()> const& ready,
                  std::chrono::nanoseconds limit = {});

// The GPU thread that is running; throws invalidUsage elsewhere, naming the operation.
GpuThread& currentGpuThread(char const* operation);
// The running thread's kernel fails, and says so of this thread.
[[noreturn]] void failKernel(GpuThread& self, std::string const& why);

}  // namespace mscclpp::sim
