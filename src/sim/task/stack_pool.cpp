// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "sim/task/stack_pool.hpp"

#include <sys/mman.h>

#include <fstream>
#include <new>

#include <fmt/format.h>

#include "mscclpp/host/error.hpp"
#include "sim/task/sanitizer.hpp"

namespace mscclpp::sim {
namespace {

constexpr std::size_t slabStacks = 256;

// So many stacks leave the rest of the process, its heap above all, mappings to work with.
std::size_t mostStacks() {
  constexpr std::size_t mappingsOfOthers = 4096;
  constexpr std::size_t usual = 65530;
  std::size_t mappings = usual;
  std::ifstream("/proc/sys/vm/max_map_count") >> mappings;
  return mappings > 2 * mappingsOfOthers ? (mappings - mappingsOfOthers) / 2 : mappings / 4;
}

}  // namespace

StackPool::~StackPool() {
  if (guarded_) {
    for (auto& stack : free_) source_.deallocate(stack);
  }
  for (auto* const slab : slabs_) ::munmap(slab, slabStacks * bytes_);
}

StackPool::Stack StackPool::allocate() {
  if (!free_.empty()) {
    auto stack = free_.back();
    free_.pop_back();
    return stack;
  }
  try {
    free_.reserve(total_ + 1);
    auto stack = guarded_ ? takeGuarded() : takeBare();
    ++total_;
    return stack;
  } catch (std::bad_alloc const&) {
    throw Error(ErrorCode::systemError,
                fmt::format("no memory for the stack of simulated thread number {}: launch fewer threads, lower "
                            "MachineOptions::threadStackBytes, {}",
                            total_ + 1,
                            guarded_ ? "take the stacks' guard pages away (MachineOptions::stackGuards), or raise the "
                                       "system's vm.max_map_count (a stack with one takes two mappings)"
                                     : "or give the process more memory"));
  }
}

StackPool::Stack StackPool::takeGuarded() {
  static std::size_t const most = mostStacks();
  if (total_ >= most) throw std::bad_alloc();
  return source_.allocate();
}

// Neighbouring slabs are one mapping to the system.
StackPool::Stack StackPool::takeBare() {
  if (leftInSlab_ == 0) {
    slabs_.reserve(slabs_.size() + 1);
    void* const slab = ::mmap(nullptr, slabStacks * bytes_, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (slab == MAP_FAILED) throw std::bad_alloc();
    slabs_.push_back(static_cast<char*>(slab));
    leftInSlab_ = slabStacks;
  }
  Stack stack;
  stack.size = bytes_;
  stack.sp = slabs_.back() + leftInSlab_-- * bytes_;
  return stack;
}

void StackPool::deallocate(Stack& stack) noexcept {
  forgetStack(static_cast<char*>(stack.sp) - stack.size, stack.size);
  free_.push_back(stack);
}

}  // namespace mscclpp::sim
