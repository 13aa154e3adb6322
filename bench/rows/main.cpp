// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// mscclpp-bench-rows: an all-reduce with residual, norm and quantisation in its kernel, beside the library's all-reduce
// by itself and with a kernel for them behind it ("the pair"). On the simulated machine its times mean nothing; it
// shows that everything runs.
#include <cstdio>
#include <exception>

#include "rows/options.hpp"

int main(int argc, char** argv) {
  rows_bench::Options options;
  std::vector<std::uint32_t> tokens{1, 2, 4, 8, 16, 32, 64, 128};
  CLI::App app{"Measures an all-reduce with what follows it on whole rows."};
  rows_bench::addOptions(app, options, tokens);
  app.add_option("--operations", options.operations, "Operations of a graph")->check(CLI::Range(1, 10000));
  app.add_option("--replays", options.replays, "Replays of each graph")->check(CLI::Range(1, 100000));
  CLI11_PARSE(app, argc, argv);
  try {
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      options.tokens = tokens[i];
      auto const result = rows_bench::measure(options);
      if (i == 0) {
        std::printf(
            "Rows of %u bfloat16, %d ranks on %d devices; us per operation in a graph of %d, median and p99 of %d.\n",
            options.hidden, result.ranks, result.devices, options.operations, options.replays);
        if (!result.note.empty()) std::printf("%s\n", result.note.c_str());
        std::printf("\n");
        rows_bench::printHeading();
      }
      wrong += rows_bench::print(options, result.lines);
    }
    return wrong == 0 ? 0 : 1;
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
