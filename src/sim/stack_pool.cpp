// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "stack_pool.hpp"

#include <new>

#include <fmt/format.h>

#include "mscclpp/host/error.hpp"
#include "sanitizer.hpp"

namespace mscclpp::sim {

StackPool::~StackPool() {
  for (auto& stack : free_) source_.deallocate(stack);
}

StackPool::Stack StackPool::allocate() {
  if (!free_.empty()) {
    auto stack = free_.back();
    free_.pop_back();
    return stack;
  }
  try {
    free_.reserve(total_ + 1);
    auto stack = source_.allocate();
    ++total_;
    return stack;
  } catch (std::bad_alloc const&) {
    throw Error(ErrorCode::systemError,
                fmt::format("no memory for the stack of simulated thread number {}: launch fewer threads, lower "
                            "MachineOptions::threadStackBytes, or raise the system's vm.max_map_count (a stack takes "
                            "two mappings)",
                            total_ + 1));
  }
}

void StackPool::deallocate(Stack& stack) noexcept {
  forgetStack(static_cast<char*>(stack.sp) - stack.size, stack.size);
  free_.push_back(stack);
}

}  // namespace mscclpp::sim
