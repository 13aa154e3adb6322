// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// mscclpp-bench-port: what a trigger, a signal and a transfer through a port channel cost. On the simulated machine its
// times mean nothing; it shows that everything runs.
#include <cstdio>
#include <exception>

#include <CLI/CLI.hpp>

#include "port_bench.hpp"

int main(int argc, char** argv) {
  port_bench::Options options;
  CLI::App app{"Measures port channels between two devices of this process."};
  app.add_option("--rounds", options.rounds, "Rounds of each latency")->check(CLI::Range(10u, 10000000u));
  app.add_option("--triggers", options.triggers, "Triggers that each thread pushes")->check(CLI::Range(10u, 10000000u));
  app.add_option("--threads", options.threads, "Threads that push")->check(CLI::Range(1u, 1024u));
  app.add_option("--proxies", options.proxies, "Proxies that take, for the rate of triggers")->check(CLI::Range(1, 16));
  app.add_option("--sizes", options.sizes, "Bytes of the transfers")->check(CLI::Range(1024ull, (1ull << 32) - 1));
  app.add_option("--transfers", options.transfers, "Transfers of each size")->check(CLI::Range(1u, 1000u));
  app.add_option("--matrix", options.matrix, "Side of the matrix product")->check(CLI::Range(16u, 65536u));
  CLI11_PARSE(app, argc, argv);
  try {
    auto const result = port_bench::measure(options);
    std::printf("| measure | value |\n|---|---|\n");
    std::printf("| a store to the host and a word back, no queue | %.2f us |\n", result.bareRoundTripUs);
    std::printf("| trigger round trip | %.2f us |\n", result.roundTripUs);
    std::printf("| flush of an idle channel | %.2f us |\n", result.flushUs);
    std::printf("| triggers, %d of %u threads | %.2f million/s |\n", options.proxies, options.threads,
                result.triggersPerSecond / 1e6);
    std::printf("| putWithSignal of 1 KiB, seen by the peer's kernel | %.2f us |\n", result.putWithSignalUs);
    for (auto const& transfer : result.transfers) {
      std::printf("| put of %zu bytes | %.1f GB/s |\n", transfer.bytes, transfer.gigabytesPerSecond);
    }
    std::printf("| matrix product of side %u, alone | %.3f ms |\n", options.matrix, result.matrixMs);
    std::printf("| the same beside transfers | %.3f ms (%+.1f %%) |\n", result.matrixBesideMs,
                (result.matrixBesideMs / result.matrixMs - 1) * 100);
    if (!result.right) {
      std::fprintf(stderr, "what was transferred did not arrive\n");
      return 1;
    }
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
