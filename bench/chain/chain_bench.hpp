// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Chains of collectives inside one kernel, each on what the one before it left. Single source: the measuring half is
// compiled for each machine.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace chain_bench {

struct Options {
  int ranks = 0;           // 0: one for each device, 8 at most
  unsigned rounds = 2000;  // collectives of a chain, an even number
  unsigned repeats = 5;    // kernels of each, of which the median counts
  std::vector<std::size_t> sizes{1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10};  // bytes of a rank's buffer
};

// The fastest launch of one algorithm.
struct Row {
  std::string collective;
  std::string algorithm;
  std::size_t bytes = 0;
  unsigned blocks = 0;
  unsigned threads = 0;
  double microseconds = 0;  // for each collective, of the slowest rank
  std::size_t wrong = 0;    // elements, over all launches
};

struct Result {
  int ranks = 0;
  std::vector<Row> rows;
};

// On this program's machine. Throws Error.
Result measure(Options const& options);

}  // namespace chain_bench
