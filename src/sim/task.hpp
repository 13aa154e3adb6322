// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A fiber that the scheduler runs: a simulated GPU thread, or the host code of one rank.
//
// A task may be resumed by another host thread than the last time; it keeps its exceptions in flight with it.
#pragma once

#include <cstdint>

#include <boost/context/fiber.hpp>

#include "mscclpp/sim/poll.hpp"
#include "sanitizer.hpp"
#include "stack_pool.hpp"

namespace mscclpp::sim {

// Thrown inside of a task that has to end. Not a std::exception, so that handlers for errors let it pass.
struct Unwind {};

enum class TaskState : std::uint8_t { fresh, ready, running, polling, parked, done };

enum class ParkReason : std::uint8_t { none, blockBarrier, namedBarrier, warp, previousKernel };

class Task {
 public:
  explicit Task(bool isGpuThread) : isGpuThread_(isGpuThread) {}
  bool isGpuThread() const { return isGpuThread_; }
  virtual ~Task() = default;
  Task(Task const&) = delete;
  Task& operator=(Task const&) = delete;

  // From the scheduler's side: runs the task until it suspends itself or ends. Throws if it needs a stack and gets
  // none.
  void resume();
  // From inside: back to the scheduler.
  void suspend();

  // The scheduler's notes.
  TaskState state = TaskState::fresh;
  bool cancelled = false;            // throw Unwind at the next wait
  std::uint32_t cancelledSteps = 0;  // memory steps since then
  std::uint64_t id = 0;
  std::uint64_t evaluatedAt = 0;  // while polling: progress when the condition was last looked at
  // For the report: what the task waits for.
  PollState const* poll = nullptr;
  ParkReason parkedOn = ParkReason::none;
  unsigned parkedNumber = 0;  // named barrier's number, or the warp operation's mask
  char const* hostWait = nullptr;

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
  boost::context::fiber fiber_;
  boost::context::fiber caller_;
  ExceptionState exceptions_;
  SanitizedStack own_;
  SanitizedStack callers_;
};

// The task that this host thread is running; null outside. Never inlined: a task may come back on another host thread,
// so the address of the thread-local variable must not be kept across a suspension.
Task* currentTask() noexcept;

}  // namespace mscclpp::sim
