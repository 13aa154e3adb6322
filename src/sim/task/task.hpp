// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A fiber that the scheduler runs: a simulated GPU thread, or the host code of one rank.
//
// A task may be resumed by another host thread than the last time; it keeps its exceptions in flight with it.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include <boost/context/fiber.hpp>

#include "mscclpp/host/copy_engine.hpp"
#include "mscclpp/sim/backend/poll.hpp"
#include "sim/memory/access.hpp"
#include "sim/task/sanitizer.hpp"
#include "sim/task/stack_pool.hpp"
#include "sim/task/task_time.hpp"

namespace mscclpp::sim {

struct Agent;

// Thrown inside of a task that has to end. Not a std::exception, so that handlers for errors let it pass.
struct Unwind : HostThreadEnds {};

enum class TaskState : std::uint8_t { fresh, ready, running, polling, parked, done };

enum class ParkReason : std::uint8_t { none, blockBarrier, namedBarrier, clusterBarrier, warp, previousKernel };

// Names a task alike in every schedule of a program; 0 names nobody.
using TaskKey = std::uint64_t;

// Which words a task has read since it last did anything else: what the condition of a wait that was just found false
// can depend on.
class Looks {
 public:
  struct Look {
    std::uintptr_t address;  // of the 8 bytes
    std::uint64_t progress;  // the scheduler's, at that moment
  };
  void clear() { count_ = 0; }
  void add(std::uintptr_t address, std::uint64_t progress) {
    if (count_ < looks_.size()) looks_[count_] = {address & ~std::uintptr_t{7}, progress};
    if (count_ <= looks_.size()) ++count_;
  }
  void forgetWhich() { count_ = looks_.size() + 1; }
  bool known() const { return count_ != 0 && count_ <= looks_.size(); }
  Look const* begin() const { return looks_.data(); }
  Look const* end() const { return looks_.data() + count_; }

 private:
  std::array<Look, 8> looks_;
  std::size_t count_ = 0;  // one more than there is room for: any word
};

class Task {
 public:
  explicit Task(bool isGpuThread) : isGpuThread_(isGpuThread) {}
  bool isGpuThread() const { return isGpuThread_; }
  virtual ~Task() = default;
  virtual TaskKey key() const = 0;
  Task(Task const&) = delete;
  Task& operator=(Task const&) = delete;

  // From the scheduler's side: runs the task until it suspends itself or ends. Throws if it needs a stack and gets
  // none.
  void resume();
  // From inside: back to the scheduler.
  void suspend();
  // From inside: ends the task where it stands. No destructor of its frames runs, and its stack is lost.
  [[noreturn]] void abandon();
  // From the scheduler's side, of a task that has suspended itself: the code addresses of its calls, innermost first.
  std::vector<std::uintptr_t> calls();

  // As the checker knows it; null where the run is not checked.
  Agent* agent = nullptr;

  // The scheduler's notes.
  TaskState state = TaskState::fresh;
  bool cancelled = false;            // throw Unwind at the next wait
  std::uint32_t cancelledSteps = 0;  // memory steps since then
  std::uint64_t id = 0;
  std::uint64_t evaluatedAt = 0;  // while polling: progress when the condition was last looked at
  // Of runs with a director (director.hpp).
  std::uint32_t points = 0;        // decisions that came up in it
  bool atAccess = false;           // interrupted; `pending` comes next
  std::uint64_t awaitedAt = 0;     // Scheduler::warpParks_ when it last looked since lanes of its warp waited for it
  bool lookIsOld = false;          // a word of its latest look has been written since
  TaskKey name = 0;                // key()
  std::uint64_t priority = 0;      // the director's
  std::uintptr_t sawOldAt = 0;     // word of which its latest look has seen an old value
  std::uintptr_t readsNewest = 0;  // word of which its next look sees the newest
  Access pending;                  // its latest access, or the next one
  Looks looks;
  TaskTime time;  // of a timed run
  // For the report: what the task waits for.
  PollState* poll = nullptr;
  ParkReason parkedOn = ParkReason::none;
  unsigned parkedNumber = 0;  // named barrier's number, or the warp operation's mask
  unsigned came = 0;          // threads to the barrier that it has passed last
  unsigned clusterArrivals = 0;
  char const* hostWait = nullptr;
  std::uint64_t hostWaitEnds = 0;  // virtual time at which the wait's limit ends; 0: no limit
  bool hostWaitExpired = false;

  // Called by the scheduler, on its own stack, once the task has ended.
  virtual void ended() {}
  // The task could not be started; it counts as ended afterwards.
  virtual void failedToStart(char const* why) = 0;

 protected:
  virtual void body() noexcept = 0;
  virtual StackPool& stacks() = 0;

 private:
  void start();

  struct ExceptionState {
    void* caught = nullptr;
    unsigned uncaught = 0;
  };

  bool const isGpuThread_;
  std::vector<std::uintptr_t>* tellCalls_ = nullptr;  // where to, when resumed just for that
  boost::context::fiber fiber_;
  boost::context::fiber caller_;
  ExceptionState exceptions_;
  SanitizedStack own_;
  SanitizedStack callers_;
};

// The task that this host thread is running; null outside. Never inlined: a task may come back on another host thread,
// so the address of the thread-local variable must not be kept across a suspension.
Task* currentTask() noexcept;

// The code addresses of the running function's callers, innermost first.
std::vector<std::uintptr_t> callsHere();

// The running task's agent; null outside and in runs that are not checked. Not to be kept across a suspension.
extern thread_local constinit Agent* runningAgent;

// Whether this host thread does the machine's work in place of the running task's.
extern thread_local constinit bool machineWorks;

// While it lives, what this host thread reads and writes is the machine's doing, not the running task's.
class Unwatched {
 public:
  Unwatched() = default;
  ~Unwatched() {
    runningAgent = agent_;
    machineWorks = before_;
  }
  Unwatched(Unwatched const&) = delete;
  Unwatched& operator=(Unwatched const&) = delete;

 private:
  Agent* agent_ = std::exchange(runningAgent, nullptr);
  bool before_ = std::exchange(machineWorks, true);
};

}  // namespace mscclpp::sim
