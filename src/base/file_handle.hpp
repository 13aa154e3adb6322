// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Owns a file descriptor.
#pragma once

#include <unistd.h>

#include <utility>

#include "base/fork_guard.hpp"

namespace mscclpp {

class FileHandle {
 public:
  FileHandle() = default;
  explicit FileHandle(int descriptor) noexcept : descriptor_(descriptor) {}
  // Of this process alone: no child has what `open` returns (fork_guard.hpp).
  template <class Open>
  static FileHandle own(Open&& open) {
    FileHandle handle(ForkGuard::keep(std::forward<Open>(open)));
    handle.own_ = true;
    return handle;
  }
  FileHandle(FileHandle&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)), own_(std::exchange(other.own_, false)) {}
  FileHandle& operator=(FileHandle&& other) noexcept {
    if (this != &other) {
      reset(std::exchange(other.descriptor_, -1));
      own_ = std::exchange(other.own_, false);
    }
    return *this;
  }
  ~FileHandle() { reset(); }

  int get() const noexcept { return descriptor_; }
  explicit operator bool() const noexcept { return descriptor_ >= 0; }
  int release() noexcept {
    if (std::exchange(own_, false) && descriptor_ >= 0) ForkGuard::release(descriptor_);
    return std::exchange(descriptor_, -1);
  }
  void reset(int descriptor = -1) noexcept {
    if (descriptor_ >= 0) {
      if (own_) {
        ForkGuard::close(descriptor_);
      } else {
        ::close(descriptor_);
      }
    }
    own_ = false;
    descriptor_ = descriptor;
  }

 private:
  int descriptor_ = -1;
  bool own_ = false;
};

}  // namespace mscclpp
