// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What it takes to bring tokens to their experts and home. Single source: the measuring half is compiled for each
// machine, and once more for timed runs of the simulated one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "mscclpp/layout/experts_handle.hpp"

namespace experts_bench {

// Which experts tokens have, from a seeded generator; always topK different ones.
enum class Crowd : std::uint8_t {
  uniform,  // each with the same chance
  skewed,   // the i-th with a chance in proportion to 1 / (i + 8), as routers without balancing learn it
  hot,      // the first is every token's, the others as uniform
};

using mscclpp::layout::ExpertTransport;

struct Options {
  int ranks = 0;  // 0: one for each device, 8 at most
  std::uint32_t tokens = 128;
  std::uint32_t hidden = 7168;
  std::uint32_t topK = 8;
  std::uint32_t experts = 256;
  std::vector<Crowd> crowds{Crowd::uniform, Crowd::skewed, Crowd::hot};
  std::vector<ExpertTransport> transports{ExpertTransport::memory, ExpertTransport::packets};
  std::vector<unsigned> blocks{};  // 0 of them: several are tried
  unsigned threads = 512;
  int operations = 20;  // of a graph
  int replays = 50;
};

// Of one phase, by the launch that was fastest.
struct Row {
  std::string phase;  // dispatch, combine, both; copy: as many bytes by a copy of this device's memory
  std::string wire;   // type of rows on their way
  ExpertTransport transport = ExpertTransport::memory;
  Crowd crowd = Crowd::uniform;
  unsigned blocks = 0;
  double microseconds = 0;  // median of the slowest rank's
  double p99 = 0;
  std::size_t rows = 0;   // that leave a rank for another, of the rank with most
  std::size_t bytes = 0;  // and their bytes
  std::size_t wrong = 0;  // elements, of all ranks
};

struct Result {
  int ranks = 0;
  int devices = 0;
  std::string note;
  std::vector<Row> rows;
};

// On this program's machine. Throws Error.
Result measure(Options const& options);

}  // namespace experts_bench
