// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// mscclpp-bench: times collectives and checks their results. docs/benchmark.md tells how to use it and how it measures.
//
// Ends with 0 where all is right, 1 where an element is wrong or a case failed, 2 where the arguments cannot be used.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/progress.hpp"
#include "base/run_command.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/version.hpp"
#include "plan/options.hpp"
#include "plan/plan.hpp"
#include "report/limits.hpp"
#include "report/report.hpp"
#include "session/session.hpp"

namespace mscclpp::bench {
namespace {

constexpr int statusBad = 1;
constexpr int statusUsage = 2;

std::uint64_t digestOf(std::vector<std::string> const& arguments) {
  std::uint64_t digest = 0xcbf29ce484222325u;
  for (auto const& argument : arguments) {
    for (char c : argument + '\n') digest = (digest ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }
  return digest;
}

// Names one start of this machine; empty where the system does not tell.
std::string bootName() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return id.substr(0, 8);
}

// Prints the rows that were added since the last call, as soon as Google Benchmark says that a case is done.
class TableReporter final : public ::benchmark::BenchmarkReporter {
 public:
  TableReporter(Report const& report, Progress& progress, bool leads)
      : report_(report), progress_(progress), leads_(leads) {}

  bool ReportContext(Context const&) override {
    if (leads_) print(report_.heading());
    return true;
  }
  void ReportRuns(std::vector<Run> const&) override {
    for (; printed_ < report_.rows.size(); ++printed_) {
      if (leads_) print(report_.line(report_.rows[printed_]));
    }
  }

 private:
  void print(std::string const& text) {
    progress_.clear();
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  }

  Report const& report_;
  Progress& progress_;
  bool leads_;
  std::size_t printed_ = 0;
};

class Program {
 public:
  Program(CommandLine const& commandLine, std::uint64_t digest)
      : commandLine_(commandLine), session_(commandLine.options, digest), progress_(session_.leads()) {}

  int run() {
    openOutput();
    auto plan = session_.plan(commandLine_.options);
    cases_ = std::move(plan.cases);
    std::erase_if(cases_, [&](Case const& item) { return !session_.supports(item); });
    describe(plan.leftOut);
    if (commandLine_.options.dryRun) return dryRun();
    for (auto const& item : cases_) {
      ::benchmark::RegisterBenchmark(item.name().c_str(),
                                     [this, &item](::benchmark::State& state) { measure(item, state); })
          ->Iterations(report_.launch == LaunchMode::host ? item.replays * item.operations : item.replays)
          ->UseManualTime()
          ->Unit(::benchmark::kMicrosecond);
    }
    auto const list = initializeBenchmark();
    TableReporter reporter(report_, progress_, session_.leads());
    auto const matched = list && !session_.leads() ? 1 : ::benchmark::RunSpecifiedBenchmarks(&reporter);
    progress_.clear();
    session_.close();
    if (matched == 0) throw UsageError("--benchmark_filter matches no case");
    writeReport();
    plot();
    return report_.bad() ? statusBad : 0;
  }

 private:
  // By scripts/plot_bench.py, which stands on what a plotting library does.
  void plot() {
    auto const& folder = commandLine_.options.plot;
    if (folder.empty() || !session_.leads()) return;
    auto const results = folder + "/bench.json";
    if (!(std::ofstream(results) << report_.json()).flush()) {
      throw Error(ErrorCode::systemError, "cannot write " + results);
    }
    auto const drawn = runCommand({"python3", MSCCLPP_BENCH_PLOTS, results, "--out=" + folder});
    std::fputs(drawn.said.c_str(), drawn.status == 0 ? stdout : stderr);
    if (drawn.status != 0) {
      throw Error(ErrorCode::systemError,
                  fmt::format("--plot={0}: no figures; what was measured is in {1}, and python3 "
                              "scripts/plot_bench.py {1} draws it elsewhere",
                              folder, results));
    }
  }

  int dryRun() {
    session_.close();
    for (auto const& item : cases_) {
      report_.rows.emplace_back().item = item;
      report_.rows.back().planned = true;
    }
    if (!session_.leads()) return 0;
    fmt::print("{}", report_.heading());
    for (auto const& row : report_.rows) fmt::print("{}", report_.line(row));
    writeReport();
    return 0;
  }

  void writeReport() {
    if (!output_.is_open()) return;
    output_ << (commandLine_.options.output.ends_with(".json") ? report_.json() : report_.markdown());
    if (!output_.flush()) throw Error(ErrorCode::systemError, "cannot write --output=" + commandLine_.options.output);
  }

  void openOutput() {
    if (auto const& folder = commandLine_.options.plot; !folder.empty() && session_.leads()) {
      std::error_code refused;
      std::filesystem::create_directories(folder, refused);
      if (refused) throw UsageError(fmt::format("--plot={}: {}", folder, refused.message()));
    }
    auto const& file = commandLine_.options.output;
    if (file.empty() || !session_.leads()) return;
    output_.open(file);
    if (!output_) throw UsageError(fmt::format("--output={}: the file cannot be written", file));
  }

  void describe(std::string leftOut) {
    report_.ranks = session_.world().ranks;
    report_.launch = commandLine_.options.launch;
    report_.shared = session_.shared();
    report_.peers = std::any_of(cases_.begin(), cases_.end(), [](Case const& item) { return !item.own(); });
    report_.note = session_.note();
    report_.sitting = {{"device", session_.deviceName()}, {"boot", bootName()}};
    std::vector<std::string> collectives;
    for (auto const& item : cases_) {
      auto const name = nameOf(item.collective);
      if (std::find(collectives.begin(), collectives.end(), name) == collectives.end()) collectives.emplace_back(name);
    }
    report_.facts = {{"mscclpp-bench", versionText},
                     {"collective", fmt::format("{}{}", fmt::join(collectives, ", "),
                                                commandLine_.options.inPlace ? ", in place" : "")},
                     {"ranks", session_.description()},
                     {"seed", fmt::format("{}", session_.seed())}};
    if (!leftOut.empty()) report_.facts.emplace_back("left out", std::move(leftOut));
    if (auto nccl = session_.ncclVersion(); !nccl.empty()) report_.facts.emplace_back("NCCL", std::move(nccl));
    for (auto const& [what, value] : report_.facts) ::benchmark::AddCustomContext(what, value);
  }

  // Returns whether only the names were asked for.
  bool initializeBenchmark() {
    bool list = false;
    auto& arguments = benchmarkArguments_;  // Google Benchmark keeps pointers into them
    arguments = {"mscclpp-bench"};
    for (auto const& argument : commandLine_.benchmarkArguments) {
      list = list || argument == "--benchmark_list_tests" || argument == "--benchmark_list_tests=true";
      if (session_.severalProcesses() && argument.starts_with("--benchmark_enable_random_interleaving")) {
        throw UsageError(argument + ": every process would take another order; use it with ranks in one process");
      }
      // One process writes.
      if (session_.leads() || !argument.starts_with("--benchmark_out")) arguments.push_back(argument);
    }
    std::vector<char*> pointers;
    for (auto& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    int count = static_cast<int>(arguments.size());
    ::benchmark::Initialize(&count, pointers.data());
    if (count > 1) throw UsageError(fmt::format("{}: Google Benchmark does not know this flag", pointers[1]));
    return list;
  }

  // One case, as Google Benchmark calls it.
  void measure(Case const& item, ::benchmark::State& state) {
    if (!prepared_) {
      progress_.show(0, cases_.size(), "preparing");
      session_.prepare(cases_);
      prepared_ = true;
    }
    progress_.show(done_++, cases_.size(), item.name());
    Row row;
    try {
      auto const result = session_.run(item);
      auto& peers = peerMedians_[item.subject()];
      row = makeRow(item, result, report_.ranks, peers);
      if (!item.own() && row.wrong.value_or(0) == 0) peers[item.contender] = row.median;
      std::size_t sample = 0;
      for (auto _ : state) state.SetIterationTime(result.seconds.at(sample++));
      addCounters(row, state);
    } catch (std::exception const& error) {
      row.item = item;
      row.error = error.what();
      if (!failed_) {
        progress_.clear();
        fmt::print(stderr, "mscclpp-bench: {}: {}\n", item.name(), error.what());
      }
      failed_ = true;
      state.SkipWithError(error.what());
    }
    report_.rows.push_back(row);
  }

  void addCounters(Row const& row, ::benchmark::State& state) const {
    state.counters["bytes"] = static_cast<double>(row.item.bytes());
    state.counters["time_us"] = row.median * 1e6;
    state.counters["p99_us"] = row.p99 * 1e6;
    if (report_.launch != LaunchMode::host) {
      state.counters["algbw_gbps"] = row.algorithmBandwidth * 1e-9;
      state.counters["busbw_gbps"] = row.busBandwidth * 1e-9;
    }
    if (row.bare > 0) state.counters["bare_us"] = row.bare * 1e6;
    state.counters["ops_per_graph"] = row.item.operations;
    if (row.item.launch) {
      state.counters["blocks"] = row.item.launch->shape.blocks;
      state.counters["threads"] = row.item.launch->shape.threads;
    }
    if (row.wrong) state.counters["wrong"] = static_cast<double>(*row.wrong);
    if (auto const best = bestPeer(row)) state.counters["vs_best"] = best->second;
  }

  CommandLine const& commandLine_;
  std::vector<std::string> benchmarkArguments_;
  Session session_;
  Progress progress_;
  std::vector<Case> cases_;
  Report report_;
  std::map<std::string, std::map<Contender, double>> peerMedians_;  // by subject
  std::ofstream output_;
  bool prepared_ = false;
  bool failed_ = false;
  std::size_t done_ = 0;
};

int runMain(std::vector<std::string> const& arguments) {
  try {
    auto const commandLine = parseCommandLine(arguments);
    if (!commandLine.help.empty()) {
      fmt::print("{}", commandLine.help);
      return 0;
    }
    if (!commandLine.options.limits.empty()) {
      measureLimits(commandLine.options, digestOf(arguments));
      return 0;
    }
    return Program(commandLine, digestOf(arguments)).run();
  } catch (UsageError const& error) {
    fmt::print(stderr, "mscclpp-bench: {}\n", error.what());
    return statusUsage;
  } catch (std::exception const& error) {
    fmt::print(stderr, "mscclpp-bench: {}\n", error.what());
    return statusBad;
  }
}

}  // namespace
}  // namespace mscclpp::bench

int main(int argc, char** argv) { return mscclpp::bench::runMain({argv + 1, argv + argc}); }
