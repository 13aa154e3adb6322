// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "sim/task/task.hpp"

#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include <cxxabi.h>
#include <execinfo.h>
#include <boost/context/preallocated.hpp>

namespace mscclpp::sim {
namespace {

thread_local Task* current = nullptr;

}  // namespace

thread_local constinit Agent* runningAgent = nullptr;
thread_local constinit bool machineWorks = false;

[[gnu::noinline]] Task* currentTask() noexcept { return current; }

std::vector<std::uintptr_t> callsHere() {
  std::array<void*, 64> frames;
  int const count = ::backtrace(frames.data(), static_cast<int>(frames.size()));
  std::vector<std::uintptr_t> calls;
  for (int i = 0; i < count; ++i)
    calls.push_back(reinterpret_cast<std::uintptr_t>(frames[static_cast<std::size_t>(i)]));
  return calls;
}

void Task::start() {
  auto stack = stacks().allocate();
  own_.bottom = static_cast<char*>(stack.sp) - stack.size;
  own_.bytes = stack.size;
  own_.create();
  fiber_ = boost::context::fiber(std::allocator_arg, boost::context::preallocated(stack.sp, stack.size, stack),
                                 StackAllocator{&stacks()}, [this](boost::context::fiber&& caller) {
                                   arrive(own_, callers_);
                                   caller_ = std::move(caller);
                                   body();
                                   state = TaskState::done;
                                   leave(own_, callers_, true);
                                   return std::move(caller_);
                                 });
}

void Task::resume() {
  if (!fiber_) start();
  // The C++ runtime keeps the exceptions being handled and in flight in a per-thread record of this layout.
  ExceptionState driver;
  auto* globals = abi::__cxa_get_globals();
  std::memcpy(static_cast<void*>(&driver), globals, sizeof driver);
  std::memcpy(globals, &exceptions_, sizeof exceptions_);
  current = this;
  runningAgent = agent;
  callers_.adoptCurrent();
  SanitizedStack here;
  leave(here, own_);
  fiber_ = std::move(fiber_).resume();
  SanitizedStack left;
  arrive(here, left);
  current = nullptr;
  runningAgent = nullptr;
  std::memcpy(static_cast<void*>(&exceptions_), globals, sizeof exceptions_);
  std::memcpy(globals, &driver, sizeof driver);
  if (state != TaskState::done) return;
  // An abandoned one: to unwind its stack would throw through frames that expect no exception.
  if (fiber_) static_cast<void>(new boost::context::fiber(std::move(fiber_)));
  own_.destroy();
}

void Task::suspend() {
  for (;;) {
    leave(own_, callers_);
    caller_ = std::move(caller_).resume();
    arrive(own_, callers_);
    if (tellCalls_ == nullptr) return;
    *tellCalls_ = callsHere();
  }
}

void Task::abandon() {
  state = TaskState::done;
  for (;;) suspend();
}

std::vector<std::uintptr_t> Task::calls() {
  std::vector<std::uintptr_t> result;
  if (!fiber_) return result;  // has not begun
  tellCalls_ = &result;
  resume();
  tellCalls_ = nullptr;
  return result;
}

}  // namespace mscclpp::sim
