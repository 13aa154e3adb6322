// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a machine offers a proxy: copies by its engines that nobody waits for, and threads of the host. Made by
// Runtime::createCopyEngine and Runtime::startThread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mscclpp {

// Copies between memory that its device maps. One thread at a time uses it; nothing blocks. Copies may be carried out
// late and in any order; a signal is carried out once everything posted before it is visible.
class CopyEngine {
 public:
  virtual ~CopyEngine() = default;
  // Posts a copy. posted() counts copies and signals, those that are done included.
  virtual void copy(void* dst, void const* src, std::size_t bytes) = 0;
  // The word, in memory of a device, becomes `value`.
  virtual void signal(std::uint64_t* word, std::uint64_t value) = 0;
  virtual std::uint64_t posted() const noexcept = 0;
  // One step. Returns how many posts, from the first on, are done and visible. Throws deviceError.
  virtual std::uint64_t progress() = 0;
};

// What a machine throws through a thread of its own that shall end. No error: who catches everything throws it on.
struct HostThreadEnds {};

// A thread of the host that works beside everything else. It must have been told to end before this is destroyed.
class HostThread {
 public:
  virtual ~HostThread() = default;  // waits for its end
};

}  // namespace mscclpp
