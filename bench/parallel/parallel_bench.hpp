// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The products of a tensor-parallel layer with the collective that goes with each, in one kernel by TileProduct and one
// behind the other: all-gather ahead of a product, reduce-scatter behind it. Matrices are bfloat16.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace parallel_bench {

enum class Way : std::uint8_t { gatherProduct, productScatter };

// A product of all ranks' rows: `columns` and `inner` are those of one rank, whose weights have so many rows and
// columns.
struct Shape {
  std::string layer;
  Way way{};
  std::uint32_t rows = 0, columns = 0, inner = 0;
};

// The four products of a layer of two models' sizes, for five counts of rows: 40 shapes.
std::vector<Shape> shapesOf(int ranks, std::vector<std::uint32_t> const& rows);

struct Options {
  int ranks = 0;  // 0: one for each device, 8 at most
  std::vector<std::uint32_t> rows{512, 1024, 2048, 4096, 8192};
  std::string layers;  // those in whose name it is found
  bool beside = true;  // NCCL
  int operations = 5;  // of a graph
  int replays = 30;
};

// A way to do it, by the launch that was fastest.
struct Line {
  std::string arm;
  double microseconds = 0;  // median of the slowest rank's
  double p99 = 0;
  std::size_t wrong = 0;  // of the elements that were looked at, of all ranks and launches
};

struct ShapeResult {
  Shape shape;
  double product = 0;     // by itself, by cuBLAS: microseconds
  double collective = 0;  // by itself, by this library
  std::vector<Line> arms;
};

struct Result {
  int ranks = 0;
  int devices = 0;
  std::string note;
  std::vector<ShapeResult> shapes;
};

// Throws Error.
Result measure(Options const& options);

}  // namespace parallel_bench
