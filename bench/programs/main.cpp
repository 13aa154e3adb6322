// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// mscclpp-bench-programs: what a program costs beside the library's own algorithm, compiled and as a plan.
#include <cstdio>
#include <exception>

#include <CLI/CLI.hpp>

#include "programs_bench.hpp"

int main(int argc, char** argv) {
  programs_bench::Options options;
  CLI::App app{"Measures collectives written as programs, compiled and as plans, beside the library's algorithms."};
  app.add_option("--operations", options.operations, "Operations of a graph")->check(CLI::Range(1, 100000));
  app.add_option("--replays", options.replays, "Replays of each graph")->check(CLI::Range(1, 100000));
  app.add_option("--ranks", options.ranks, "Ranks; more than there are devices share them")
      ->check(CLI::IsMember({2, 4}));
  app.add_flag("--late", options.late, "Also compiled while this runs");
  app.add_option("--sizes", options.sizes, "Bytes of a rank's buffer, multiples of 256")
      ->check(CLI::Range(256ull, 1ull << 26));
  CLI11_PARSE(app, argc, argv);
  try {
    auto const result = programs_bench::measure(options);
    std::size_t wrong = 0;
    std::printf(
        "All-reduce, average of float32, %d ranks on %d devices, in place; "
        "us per operation in a graph of %d, median of %d.\n",
        result.ranks, result.devices, options.operations, options.replays);
    if (!result.note.empty()) std::printf("%s\n", result.note.c_str());
    std::printf(
        "\n| program | bytes per rank | blocks x threads | compiled | plan | compiled late | algorithm | "
        "compiled / algorithm | late / compiled | wrong |\n|---|---|---|---|---|---|---|---|---|---|\n");
    for (auto const& row : result.rows) {
      std::printf("| %s | %zu | %u x %u | %.2f | %.2f | %.2f | %.2f | %.3f | %.3f | %zu |\n", row.program.c_str(),
                  row.bytes, row.blocks, row.threads, row.compiled, row.plan, row.late, row.algorithm,
                  row.compiled / row.algorithm, row.late / row.compiled, row.wrong);
      wrong += row.wrong;
    }
    for (auto const& one : result.late) {
      std::printf(
          "\n%s: compiled or found in %.3f s, found loaded in %.1f us; a call takes %.2f us of the host, "
          "compiled ahead %.2f us\n",
          one.program.c_str(), one.compiling, one.again, one.call, one.aheadCall);
    }
    return wrong == 0 ? 0 : 1;
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
