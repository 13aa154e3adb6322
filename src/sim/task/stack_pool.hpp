// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Stacks of fibers, each with a guard page unless there are to be more than the system has mappings for, kept for
// reuse. Pages cost memory only once touched.
#pragma once

#include <cstddef>
#include <vector>

#include <boost/context/protected_fixedsize_stack.hpp>
#include <boost/context/stack_context.hpp>

namespace mscclpp::sim {

class StackPool {
 public:
  using Stack = boost::context::stack_context;

  // Without guard pages a stack that is overrun is the next one's end.
  explicit StackPool(std::size_t bytes, bool guarded = true) : source_(bytes), bytes_(bytes), guarded_(guarded) {}
  ~StackPool();
  StackPool(StackPool const&) = delete;
  StackPool& operator=(StackPool const&) = delete;

  Stack allocate();  // throws Error(systemError) when the system has no more mappings
  void deallocate(Stack& stack) noexcept;

 private:
  Stack takeGuarded();
  Stack takeBare();

  boost::context::protected_fixedsize_stack source_;
  std::size_t bytes_;
  bool guarded_;
  std::vector<char*> slabs_;
  std::size_t leftInSlab_ = 0;  // stacks of the last one
  std::vector<Stack> free_;
  std::size_t total_ = 0;
};

// What Boost.Context calls a stack allocator: a copyable handle.
struct StackAllocator {
  StackPool* pool;
  StackPool::Stack allocate() { return pool->allocate(); }
  void deallocate(StackPool::Stack& stack) noexcept { pool->deallocate(stack); }
};

}  // namespace mscclpp::sim
