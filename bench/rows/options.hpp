// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The options of the programs that measure an all-reduce with its norm, and their table.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "rows/rows_bench.hpp"

namespace rows_bench {

inline void addOptions(CLI::App& app, Options& options, std::vector<std::uint32_t>& tokens) {
  app.add_option("--ranks", options.ranks, "Ranks; 0: one for each device")->check(CLI::Range(0, 72));
  app.add_option("--tokens", tokens, "Rows of the all-reduce; each number in turn")
      ->check(CLI::Range(1u, 1u << 16))
      ->delimiter(',');
  // As many as 8 blocks of 256 threads hold, each a payload of LL128.
  app.add_option("--hidden", options.hidden, "Elements of a row")->check(CLI::Range(1u, 15360u));
  app.add_option("--blocks", options.blocks, "The most blocks of a fused kernel; the fastest of several counts")
      ->check(CLI::Range(1u, 1024u))
      ->delimiter(',');
}

inline void printHeading() {
  std::printf(
      "| tokens | KiB | form | blocks | us | p99 | us over the all-reduce | times faster than the pair | "
      "wrong |\n");
  std::printf("|---|---|---|---|---|---|---|---|---|\n");
}

// Returns how much is wrong.
inline std::size_t print(Options const& options, std::vector<Line> const& lines) {
  std::size_t wrong = 0;
  for (auto const& line : lines) {
    std::printf("| %u | %.0f | %s | %u | %.2f | %.2f | ", options.tokens, options.tokens * options.hidden / 512.0,
                line.form.c_str(), line.blocks, line.microseconds, line.p99);
    line.form.starts_with("all-reduce by") ? std::printf("| ") : std::printf("%.2f | ", line.over);
    line.faster == 0 ? std::printf("| ") : std::printf("%.2f | ", line.faster);
    std::printf("%zu |\n", line.wrong);
    wrong += line.wrong;
  }
  return wrong;
}

}  // namespace rows_bench
