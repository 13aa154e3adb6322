// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The clock of one task in a timed run (virtual_time.hpp).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace mscclpp::sim {

using Picoseconds = std::uint64_t;

struct TaskTime {
  Picoseconds now = 0;
  Picoseconds loaded = 0;    // when all values that it has loaded are there
  Picoseconds stored = 0;    // when all its stores have been answered
  std::uint64_t looked = 0;  // changes of memory when it last ran
  // While it waits: the words that the condition has read, and how often they had been written then.
  bool looking = false;
  std::vector<std::pair<std::uintptr_t, std::uint64_t>> looks;
  std::uintptr_t chunk = 0;  // of the latest plain access
  bool chunkWritten = false;
};

}  // namespace mscclpp::sim
