// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The memory that the threads of a block share: one mapping for each block that runs, used again once it has ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

namespace mscclpp::sim {

class BlockMemory {
 public:
  static constexpr std::size_t bytes = 227 * 1024;
  static constexpr std::size_t mapped = bytes + 4096;  // with a page's room to spare

  std::byte* take();
  void giveBack(std::byte* base) { free_.push_back(base); }

  // Of blocks that run or have run.
  bool touches(std::uintptr_t begin, std::uintptr_t end) const;
  std::optional<std::size_t> offsetOf(std::uintptr_t address) const;

 private:
  std::set<std::byte*> all_;
  std::vector<std::byte*> free_;
};

}  // namespace mscclpp::sim
