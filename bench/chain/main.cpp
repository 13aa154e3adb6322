// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// mscclpp-bench-chain: what a collective costs inside a kernel, with no launch between it and the next. On the
// simulated machine its times mean nothing; it shows that everything runs.
#include <cstdio>
#include <exception>

#include <CLI/CLI.hpp>

#include "chain_bench.hpp"

int main(int argc, char** argv) {
  chain_bench::Options options;
  CLI::App app{"Measures chains of collectives inside one kernel."};
  app.add_option("--ranks", options.ranks, "Ranks; 0: one for each device")->check(CLI::Range(0, 8));
  app.add_option("--rounds", options.rounds, "Collectives of a chain, rounded up to an even number")
      ->check(CLI::Range(2u, 10000000u));
  app.add_option("--repeats", options.repeats, "Kernels of each")->check(CLI::Range(1u, 1000u));
  app.add_option("--sizes", options.sizes, "Bytes of a rank's buffer, multiples of 256")
      ->check(CLI::Range(256ull, 1ull << 24));
  CLI11_PARSE(app, argc, argv);
  options.rounds += options.rounds % 2;
  try {
    auto const result = chain_bench::measure(options);
    std::size_t wrong = 0;
    std::printf("Chains of %u in one kernel, %d ranks, bfloat16.\n\n", options.rounds, result.ranks);
    std::printf("| collective | bytes per rank | algorithm | blocks x threads | us each | wrong |\n");
    std::printf("|---|---|---|---|---|---|\n");
    for (auto const& row : result.rows) {
      std::printf("| %s | %zu | `%s` | %u x %u | %.2f | %zu |\n", row.collective.c_str(), row.bytes,
                  row.algorithm.c_str(), row.blocks, row.threads, row.microseconds, row.wrong);
      wrong += row.wrong;
    }
    return wrong == 0 ? 0 : 1;
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
