// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// mscclpp-bench-experts: dispatch and combine, each behind itself and both in turn, beside a copy of as many bytes. On
// the simulated machine its times mean nothing; it shows that everything runs.
#include <cstdio>
#include <exception>

#include "experts/options.hpp"

int main(int argc, char** argv) {
  experts_bench::Options options;
  CLI::App app{"Measures layers of experts: tokens there and back."};
  experts_bench::addOptions(app, options);
  std::vector<std::uint32_t> tokens{128};
  app.add_option("--tokens", tokens, "Tokens of a rank; a table for each number")
      ->check(CLI::Range(1u, 1u << 16))
      ->delimiter(',');
  app.add_option("--operations", options.operations, "Operations of a graph")->check(CLI::Range(1, 10000));
  app.add_option("--replays", options.replays, "Replays of each graph")->check(CLI::Range(1, 100000));
  CLI11_PARSE(app, argc, argv);
  if (auto const text = experts_bench::mismatch(options); !text.empty()) {
    std::fprintf(stderr, "%s\n", text.c_str());
    return 2;
  }
  try {
    std::size_t wrong = 0;
    for (auto const number : tokens) {
      options.tokens = number;
      auto const result = experts_bench::measure(options);
      std::printf(
          "%u tokens of %u bfloat16 a rank to %u of %u experts, %d ranks on %d devices; us per operation in a graph of "
          "%d, median and p99 of %d.\n",
          number, options.hidden, options.topK, options.experts, result.ranks, result.devices, options.operations,
          options.replays);
      if (!result.note.empty()) std::printf("%s\n", result.note.c_str());
      std::printf("\n");
      wrong += experts_bench::print(result.rows);
      std::printf("\n");
      std::fflush(stdout);  // whoever ends a run that takes too long has what there is
    }
    return wrong == 0 ? 0 : 1;
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
