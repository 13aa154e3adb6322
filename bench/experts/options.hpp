// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The options of the programs that measure layers of experts, and their table.
#pragma once

#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "experts/experts_bench.hpp"

namespace experts_bench {

inline std::map<std::string, Crowd> const& crowds() {
  static std::map<std::string, Crowd> const all{
      {"uniform", Crowd::uniform}, {"skewed", Crowd::skewed}, {"hot", Crowd::hot}};
  return all;
}

inline std::map<std::string, ExpertTransport> const& transports() {
  static std::map<std::string, ExpertTransport> const all{{"memory", ExpertTransport::memory},
                                                          {"packets", ExpertTransport::packets}};
  return all;
}

inline void addOptions(CLI::App& app, Options& options) {
  app.add_option("--ranks", options.ranks, "Ranks; 0: one for each device")->check(CLI::Range(0, 72));
  app.add_option("--hidden", options.hidden, "Elements of a token")->check(CLI::Range(1u, 1u << 16));
  app.add_option("--topk", options.topK, "Experts of a token")->check(CLI::Range(1u, 16u));
  app.add_option("--experts", options.experts, "Experts of all ranks")->check(CLI::Range(1u, 512u));
  app.add_option("--routing", options.crowds, "uniform, skewed, hot")
      ->transform(CLI::CheckedTransformer(crowds()))
      ->delimiter(',');
  app.add_option("--transport", options.transports, "memory, packets; packets are left out where there are none")
      ->transform(CLI::CheckedTransformer(transports()))
      ->delimiter(',');
  app.add_option("--blocks", options.blocks, "Blocks of a kernel; the fastest of several counts")
      ->check(CLI::Range(1u, 1024u))
      ->delimiter(',');
  app.add_option("--threads", options.threads, "Threads of a block")->check(CLI::Range(32u, 512u));
}

// The text that the user is told where options do not go together; empty where they do.
inline std::string mismatch(Options const& options) {
  if (options.topK > options.experts) return "--topk is more than --experts: a token's experts are different ones";
  if (options.threads % 32 != 0) return "--threads is no multiple of 32";
  return {};
}

template <class T>
std::string nameIn(std::map<std::string, T> const& names, T wanted) {
  for (auto const& [name, value] : names) {
    if (value == wanted) return name;
  }
  return "?";
}

// Returns how much is wrong.
inline std::size_t print(std::vector<Row> const& rows) {
  std::size_t wrong = 0;
  std::printf("| phase | rows travel as | by | routing | blocks | rows out | MB out | us | p99 | GB/s | wrong |\n");
  std::printf("|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (auto const& row : rows) {
    std::printf("| %s | %s | %s | %s | %u | %zu | %.2f | %.2f | %.2f | %.1f | %zu |\n", row.phase.c_str(),
                row.wire.c_str(), nameIn(transports(), row.transport).c_str(), nameIn(crowds(), row.crowd).c_str(),
                row.blocks, row.rows, static_cast<double>(row.bytes) * 1e-6, row.microseconds, row.p99,
                static_cast<double>(row.bytes) * 1e-3 / row.microseconds, row.wrong);
    wrong += row.wrong;
  }
  return wrong;
}

}  // namespace experts_bench
