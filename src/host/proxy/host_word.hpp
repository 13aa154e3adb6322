// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Words in memory that the host and all devices of a machine see; zero at first. Their memory has an owner.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/host/runtime.hpp"

namespace mscclpp {

class HostWord {
 public:
  explicit HostWord(Runtime& machine)
      : machine_(machine), word_(static_cast<std::uint64_t*>(machine.allocateHost(bytes))) {}
  ~HostWord() { machine_.releaseHost(word_); }
  HostWord(HostWord const&) = delete;
  HostWord& operator=(HostWord const&) = delete;
  std::uint64_t* get() const noexcept { return word_; }

 private:
  static constexpr std::size_t bytes = 128;
  Runtime& machine_;
  std::uint64_t* word_;
};

}  // namespace mscclpp
