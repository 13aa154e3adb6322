// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a product by TileProduct takes, beside cuBLAS's, on one GPU.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace product_bench {

struct Options {
  std::uint32_t rows = 4096;
  std::uint32_t columns = 8192;
  std::uint32_t inner = 2048;
  int calls = 20;    // between two events
  int samples = 15;  // of which the median counts
};

struct Line {
  std::string form;
  double microseconds = 0;
  double teraflops = 0;
  std::uint64_t wrong = 0;  // elements further from cuBLAS's than two roundings to bfloat16
};

// cuBLAS first. Throws Error.
std::vector<Line> measure(Options const& options);

}  // namespace product_bench
