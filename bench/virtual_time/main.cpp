// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// mscclpp-bench-virtual: how long the library's collectives would take on GPUs, by the clocks of the simulated machine.
//
//   mscclpp-bench-virtual --collective=allreduce --ranks=8 --max-bytes=64K           every algorithm, by size
//   mscclpp-bench-virtual --check results.json... [--output=FILE.md]      beside what mscclpp-bench measured on GPUs
//
// Exit status: 0, 1 where the median error of a check is above its limit, 2 bad use.
#include <cstddef>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>

#include "base/progress.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/sim/runtime.hpp"
#include "plan/options.hpp"
#include "report/model_check.hpp"
#include "virtual_run.hpp"

namespace virtual_time {
namespace {

using namespace mscclpp;
using bench::UsageError;

constexpr int statusBad = 1;
constexpr int statusUsage = 2;

struct Options {
  std::string timing;
  std::vector<std::string> results;
  std::string output;
  double limit = 15;
  unsigned mostThreads = 1u << 16;
  std::string collective = "allreduce";
  std::vector<std::string> algorithms;
  int ranks = 4;
  std::string minBytes = "1K";
  std::string maxBytes = "64K";
  unsigned blocks = 0;
  unsigned threads = 0;
};

// With room for every grid at once.
void install(int ranks, sim::TimingModel const& model) {
  sim::install({.devices = ranks, .multiprocessors = model.multiprocessors, .stackGuards = false});
}

int check(Options const& options, sim::TimingModel const& model) {
  Progress progress;
  std::size_t rows = 0;
  auto const prediction = [&](bench::ModelRow const& row) -> std::optional<double> {
    progress.show(rows++, 0, fmt::format("{} of {} bytes by {}", nameOf(row.collective), row.bytes, row.algorithm));
    auto const threads = std::uint64_t{row.blocks} * row.threads * static_cast<unsigned>(row.ranks);
    if (row.algorithm == "copy_engine" || threads > options.mostThreads) return std::nullopt;
    install(row.ranks, model);
    return timeOf({.collective = row.collective,
                   .algorithm = row.algorithm,
                   .ranks = row.ranks,
                   .bytes = row.bytes,
                   .blocks = row.blocks,
                   .threads = row.threads,
                   .overlapped = row.overlapped},
                  model)
        .seconds;
  };
  auto const whyNone =
      fmt::format("no row that can be simulated; --most-threads={} leaves out larger launches", options.mostThreads);
  auto const result = bench::checkFiles(options.results, model.device, prediction, whyNone);
  progress.clear();
  auto const title = "The simulated machine's clocks against measurement: " + model.device;
  if (bench::present(result, title, options.output, options.limit)) return 0;
  fmt::print(stderr, "mscclpp-bench-virtual: the median error is {:.1f} %, the limit {} %\n",
             result.medianError() * 100, options.limit);
  return statusBad;
}

int plan(Options const& options, sim::TimingModel const& model) {
  auto const collective = collectiveByName(options.collective);
  if (!collective) throw UsageError(fmt::format("--collective={}: there is no such collective", options.collective));
  auto const least = bench::parseBytes("--min-bytes", options.minBytes);
  auto const most = bench::parseBytes("--max-bytes", options.maxBytes);
  install(options.ranks, model);
  auto const names = options.algorithms.empty() ? timedAlgorithms(*collective) : options.algorithms;
  fmt::print("{} of bfloat16 among {} ranks; microseconds that {} would take by the figures of {}.\n\n",
             options.collective, options.ranks, options.ranks == 1 ? "it" : "they", model.device);
  fmt::print("| size | {} |\n| ---: |{}\n", fmt::join(names, " | "), [&] {
    std::string rule;
    for (std::size_t i = 0; i < names.size(); ++i) rule += " ---: |";
    return rule;
  }());
  for (auto bytes = least; bytes <= most; bytes *= 4) {
    fmt::print("| {} |", bench::formatBytes(bytes));
    for (auto const& name : names) {
      auto const answer = timeOf({.collective = *collective,
                                  .algorithm = name,
                                  .ranks = options.ranks,
                                  .bytes = bytes,
                                  .blocks = options.blocks,
                                  .threads = options.threads},
                                 model);
      fmt::print(" {:.2f} |", answer.seconds * 1e6);
      std::fflush(stdout);
    }
    fmt::print("\n");
  }
  return 0;
}

}  // namespace
}  // namespace virtual_time

int main(int argc, char** argv) {
  using namespace virtual_time;
  Options options;
  CLI::App app{"Times collectives by the clocks of the simulated machine."};
  app.add_option("--timing", options.timing, "Figures of a GPU, as mscclpp-bench-timing prints them; default: H200");
  app.add_option("--check", options.results, "Results of mscclpp-bench --output=FILE.json to compare with");
  app.add_option("--output", options.output, "Also write the comparison to this .md file");
  app.add_option("--limit", options.limit, "Largest median error of a comparison, in percent")
      ->check(CLI::Range(0.0, 1000.0));
  app.add_option("--most-threads", options.mostThreads, "Leave larger launches, of all ranks, out of a comparison")
      ->check(CLI::Range(32u, 1u << 20));
  app.add_option("--collective", options.collective, "Which one");
  app.add_option("--algorithm", options.algorithms, "Which ones; default: all");
  app.add_option("--ranks", options.ranks, "Ranks")->check(CLI::Range(1, 72));
  app.add_option("--min-bytes", options.minBytes, "Smallest size of the larger buffer");
  app.add_option("--max-bytes", options.maxBytes, "Largest one; each is 4 times the one before");
  app.add_option("--blocks", options.blocks, "Blocks of every launch; 0: as the library would")
      ->check(CLI::Range(0u, 1024u));
  app.add_option("--threads", options.threads, "Threads of a block, likewise")->check(CLI::Range(0u, 1024u));
  try {
    app.parse(argc, argv);
    auto const model =
        options.timing.empty() ? mscclpp::sim::TimingModel::h200() : mscclpp::sim::TimingModel::load(options.timing);
    return options.results.empty() ? plan(options, model) : check(options, model);
  } catch (CLI::ParseError const& error) {
    return app.exit(error) == 0 ? 0 : statusUsage;
  } catch (std::exception const& error) {
    fmt::print(stderr, "mscclpp-bench-virtual: {}\n", error.what());
    return statusUsage;
  }
}
