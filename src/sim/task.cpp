// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "task.hpp"

#include <cstring>
#include <memory>
#include <utility>

#include <cxxabi.h>
#include <boost/context/preallocated.hpp>

namespace mscclpp::sim {
namespace {

thread_local Task* current = nullptr;

}  // namespace

[[gnu::noinline]] Task* currentTask() noexcept { return current; }

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
  callers_.adoptCurrent();
  SanitizedStack here;
  leave(here, own_);
  fiber_ = std::move(fiber_).resume();
  SanitizedStack left;
  arrive(here, left);
  current = nullptr;
  std::memcpy(static_cast<void*>(&exceptions_), globals, sizeof exceptions_);
  std::memcpy(globals, &driver, sizeof driver);
  if (state == TaskState::done) own_.destroy();
}

void Task::suspend() {
  leave(own_, callers_);
  caller_ = std::move(caller_).resume();
  arrive(own_, callers_);
}

}  // namespace mscclpp::sim
