// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The same all-reduce several times: as a program that is compiled, as the plan of that program, interpreted and, where
// it is asked for, compiled while this runs, and by the library's algorithm of the same schedule and transport. Single
// source: the measuring half is compiled for each machine.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace programs_bench {

struct Options {
  int operations = 100;  // of a graph, each on what the one before it left
  int replays = 20;
  bool late = false;  // also compiled while this runs
  int ranks = 0;      // 2 or 4; 0: 4 on as many devices or more, else 2
  std::vector<std::size_t> sizes{1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20};  // bytes per rank
};

// Medians over the replays, of the slowest rank, in microseconds for each operation.
struct Row {
  std::string program;
  std::size_t bytes = 0;
  unsigned blocks = 0;
  unsigned threads = 0;
  double compiled = 0;
  double plan = 0;
  double late = 0;
  double algorithm = 0;
  std::size_t wrong = 0;  // elements, of all of them
};

// What a plan takes that is compiled while this runs.
struct Late {
  std::string program;
  double compiling = 0;            // seconds, or what finding it takes where it was kept
  double again = 0;                // microseconds, for a kernel of the same that is loaded
  double call = 0, aheadCall = 0;  // microseconds of the host for a call, and for one that was compiled ahead
};

struct Result {
  int ranks = 0;
  int devices = 0;
  std::string note;  // about the times; may be empty
  std::vector<Row> rows;
  std::vector<Late> late;  // of rank 0
};

// On this program's machine. More ranks than devices share them. Throws Error.
Result measure(Options const& options);

}  // namespace programs_bench
