// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What an all-reduce costs with the residual, the norm and the quantisation that follow it in a transformer, in its
// kernel and behind it. Single source: the measuring half is compiled for each machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace rows_bench {

struct Options {
  int ranks = 0;  // 0: one for each device, 8 at most
  std::uint32_t tokens = 1;
  std::uint32_t hidden = 8192;
  std::vector<unsigned> blocks{};  // the most of a fused kernel; 0 of them: several are tried
  int operations = 20;             // of a graph
  int replays = 50;
};

// Of one form, by the launch that was fastest.
struct Line {
  std::string form;
  unsigned blocks = 0;
  double microseconds = 0;  // median of the slowest rank's
  double p99 = 0;
  double over = 0;        // microseconds more than the all-reduce by itself
  double faster = 0;      // how many times, than the all-reduce and a kernel behind it that makes the same; 0: no such
  std::size_t wrong = 0;  // elements, of all ranks and launches
};

// The faster one stays, with all that was wrong.
inline void keepFaster(Line& best, Line line) {
  line.wrong += best.wrong;
  if (best.form.empty() || line.microseconds < best.microseconds) {
    best = line;
  } else {
    best.wrong = line.wrong;
  }
}

// The all-reduce is the first of them, and the pairs come next, that of bfloat16 ahead.
inline void compare(std::vector<Line>& lines) {
  for (auto& line : lines) {
    line.over = line.microseconds - lines[0].microseconds;
    if (!line.form.starts_with("fused")) continue;
    line.faster = lines[line.form.ends_with("FP8") ? 2 : 1].microseconds / line.microseconds;
  }
}

struct Result {
  int ranks = 0;
  int devices = 0;
  std::string note;
  std::vector<Line> lines;
};

// On this program's machine. Throws Error.
Result measure(Options const& options);

}  // namespace rows_bench
