// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// mscclpp-model: what the cost model says.
//
//   mscclpp-model show                           the figures of a GPU, as JSON
//   mscclpp-model check results.json...          prediction against what mscclpp-bench measured
//   mscclpp-model plan --ranks=8 --collective=allgather     predicted times of every algorithm, by size; with --output
//                                                           the fastest of each as a page, beside what the links allow
//   mscclpp-model network --nodes=16 --ranks=8 --rail-gbps=50 --message-us=12 --transfer-us=1
//                                                predicted times of the collectives in two levels, by size; with
//                                                --output a table of them by each schedule between the nodes
//
// Exit status: 0, 1 where the median error of a check is above its limit, 2 bad use.
#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>

#include "mscclpp/collectives/kernel_table.hpp"
#include "mscclpp/collectives/network_model.hpp"
#include "mscclpp/collectives/selection.hpp"
#include "mscclpp/host/error.hpp"
#include "plan/exchange.hpp"
#include "plan/options.hpp"
#include "report/model_check.hpp"

namespace mscclpp::tools {
namespace {

using bench::UsageError;

constexpr int statusBad = 1;
constexpr int statusUsage = 2;

struct Options {
  std::string modelFile;
  std::string device = "NVIDIA H200";
  std::vector<std::string> results;
  std::string output;
  double limit = 15;
  std::string collective = "allreduce";
  int ranks = 4;
  std::string minBytes = "1K";
  std::string maxBytes = "1G";
  int nodes = 2;
  std::string networkFile;
  std::optional<double> railGbps;
  std::optional<double> messageUs;
  std::optional<double> transferUs;
  unsigned blocks = 32;
};

MachineModel modelOf(Options const& options) {
  if (!options.modelFile.empty()) return MachineModel::load(options.modelFile);
  auto const& model = MachineModel::of(options.device);
  if (model.device != options.device) {
    throw UsageError(
        fmt::format("--device={}: no figures of it are known; give --model=FILE, which mscclpp-bench "
                    "--limits=FILE writes there",
                    options.device));
  }
  return model;
}

int check(Options const& options) {
  auto const model = modelOf(options);
  auto const result =
      bench::checkFiles(options.results, model.device, bench::predictionOf(model), "no row that the model can predict");
  auto const title = "Prediction against measurement: " + model.device;
  if (bench::present(result, title, options.output, options.limit)) return 0;
  fmt::print(
      stderr,
      "mscclpp-model: the median error is {:.1f} %, the limit {} %; measure the figures of this machine anew with "
      "mscclpp-bench --limits=FILE\n",
      result.medianError() * 100, options.limit);
  return statusBad;
}

struct PlanRow {
  std::uint64_t bytes;
  std::vector<AlgorithmPrediction> predictions;  // the fastest first
  double bound;                                  // seconds that the busiest link takes for the bytes alone
};

std::vector<PlanRow> rowsOf(Options const& options, MachineModel const& model, Collective collective,
                            std::uint64_t least, std::uint64_t most) {
  auto const machine =
      KernelTable::instance().has(DeviceKind::cuda) ? DeviceKind::cuda : DeviceKind::sim;  // their shapes are the same
  std::vector<PlanRow> rows;
  for (auto bytes = least; bytes <= most; bytes *= 4) {
    SelectionRequest const request{.collective = collective,
                                   .ranks = options.ranks,
                                   .bytes = bytes,
                                   .type = DataType::bfloat16,
                                   .op = reduces(collective) ? ReduceOp::sum : ReduceOp::none,
                                   .symmetric = true,
                                   .machine = machine,
                                   .device = model.device};
    auto const linkRate = std::max(model.storeRate, model.copyRate);
    rows.push_back({bytes, predictions(request, model),
                    static_cast<double>(bytes) * bench::busFactor(collective, options.ranks) / linkRate});
  }
  return rows;
}

std::string planPage(Options const& options, MachineModel const& model,
                     std::vector<std::pair<Collective, std::vector<PlanRow>>> const& plans) {
  auto text = fmt::format(
      "# Predictions for {} x {}\n\nNothing here was measured on {} of them: the cost model's times for the algorithm "
      "that it finds fastest, bfloat16, symmetric buffers. `bound` is the time that each link takes at {:.0f} GB/s for "
      "the bytes that it must carry, without any latency.\n",
      options.ranks, model.device, options.ranks, std::max(model.storeRate, model.copyRate) / gigabyte);
  for (auto const& [collective, rows] : plans) {
    text += fmt::format(
        "\n## {}\n\n| size | fastest | predicted, us | bound, us | bound / predicted |\n|---|---|---|---|---|\n",
        nameOf(collective));
    for (auto const& row : rows) {
      if (row.predictions.empty()) continue;
      auto const& best = row.predictions.front();
      text += fmt::format("| {} | `{}` | {:.2f} | {:.2f} | {:.2f} |\n", bench::formatBytes(row.bytes), best.algorithm,
                          best.seconds * 1e6, row.bound * 1e6, row.bound / best.seconds);
    }
  }
  return text;
}

std::pair<std::uint64_t, std::uint64_t> sizesOf(Options const& options) {
  auto const least = bench::parseBytes("--min-bytes", options.minBytes);
  auto const most = bench::parseBytes("--max-bytes", options.maxBytes);
  if (most < least) {
    throw UsageError(fmt::format("--min-bytes={} is more than --max-bytes={}", options.minBytes, options.maxBytes));
  }
  return {least, most};
}

NetworkModel networkOf(Options const& options) {
  bool const any = options.railGbps || options.messageUs || options.transferUs;
  bool const all = options.railGbps && options.messageUs && options.transferUs;
  if (!options.networkFile.empty() && !any) return NetworkModel::load(options.networkFile);
  if (!options.networkFile.empty() || !all) {
    throw UsageError(
        "a network has --rail-gbps, --message-us and --transfer-us, all three, or --network=FILE in their "
        "place, which mscclpp-bench --limits=FILE writes");
  }
  return {*options.messageUs * microsecond, *options.transferUs * microsecond, *options.railGbps * gigabyte};
}

// What a column predicts: a collective, and of all-reduce one schedule or the fastest.
struct NetworkColumn {
  Collective collective;
  std::optional<NodeSchedule> schedule{};
};

// All-reduce by each schedule between nodes, the others by the one that there is. The fastest of all-reduce in bold.
std::string networkPage(MachineModel const& model, NetworkModel const& figures, TwoLevelQuery query,
                        std::vector<std::uint64_t> const& sizes) {
  std::vector<NetworkColumn> columns;
  for (auto const schedule : nodeSchedules) columns.push_back({Collective::allReduce, schedule});
  for (auto const collective : {Collective::allGather, Collective::reduceScatter, Collective::allToAll}) {
    columns.push_back({collective});
  }
  std::string text = "| size |", rule = "|---|";
  for (auto const& [collective, schedule] : columns) {
    text += fmt::format(" {}{} |", nameOf(collective), schedule ? fmt::format(" `{}`", nameOf(*schedule)) : "");
    rule += "---|";
  }
  text += "\n" + rule + "\n";
  for (auto const bytes : sizes) {
    query.bytes = bytes;
    query.collective = Collective::allReduce;
    query.schedule = std::nullopt;
    auto const fastest = predictTwoLevel(model, figures, query)->schedule;
    text += fmt::format("| {} |", bench::formatBytes(bytes));
    for (auto const& [collective, schedule] : columns) {
      query.collective = collective;
      query.schedule = schedule;
      auto const time = fmt::format("{:.1f}", predictTwoLevel(model, figures, query)->seconds * 1e6);
      text += schedule && schedule == fastest ? fmt::format(" **{}** |", time) : fmt::format(" {} |", time);
    }
    text += "\n";
  }
  return text;
}

int network(Options const& options) {
  auto const model = modelOf(options);
  auto const figures = networkOf(options);
  TwoLevelQuery query{.nodes = options.nodes, .rails = options.ranks, .blocks = options.blocks, .threads = 512};
  auto const [least, most] = sizesOf(options);
  std::vector<std::uint64_t> sizes;
  for (auto bytes = least; bytes <= most; bytes *= 4) sizes.push_back(bytes);
  constexpr std::array shown{Collective::allReduce, Collective::allGather, Collective::reduceScatter,
                             Collective::allToAll};
  auto text = fmt::format("{}, {} nodes of {} ranks, in microseconds, in brackets the share of the network\n{:>6}",
                          model.device, options.nodes, options.ranks, "size");
  for (auto const collective : shown) text += fmt::format("  {:>18}", nameOf(collective));
  for (auto const bytes : sizes) {
    query.bytes = bytes;
    text += fmt::format("\n{:>6}", bench::formatBytes(bytes));
    for (auto const collective : shown) {
      query.collective = collective;
      auto const time = predictTwoLevel(model, figures, query);
      auto const share = time->network / time->seconds * 100;
      text += fmt::format("  {:>18}", fmt::format("{:.1f} ({:.0f} %)", time->seconds * 1e6, share));
    }
  }
  fmt::print("{}\n", text);
  if (!options.output.empty()) bench::writeOutput(options.output, networkPage(model, figures, query, sizes));
  return 0;
}

int plan(Options const& options) {
  auto const model = modelOf(options);
  std::vector<Collective> wanted(bench::timedCollectives.begin(), bench::timedCollectives.end());
  if (options.collective != "all") {
    auto const collective = collectiveByName(options.collective);
    if (!collective) throw UsageError(fmt::format("--collective={}: there is no such collective", options.collective));
    wanted = {*collective};
  }
  auto const [least, most] = sizesOf(options);
  std::vector<std::pair<Collective, std::vector<PlanRow>>> plans;
  for (auto collective : wanted) {
    auto rows = rowsOf(options, model, collective, least, most);
    if (!rows.front().predictions.empty()) plans.emplace_back(collective, std::move(rows));
  }
  if (plans.empty()) {
    throw UsageError(fmt::format("--collective={}: the model has no prediction of it", options.collective));
  }
  for (auto const& [collective, rows] : plans) {
    fmt::print("{}, {} ranks, {} in microseconds, the fastest first\n", model.device, options.ranks,
               nameOf(collective));
    for (auto const& row : rows) {
      std::vector<std::string> cells;
      for (auto const& prediction : row.predictions) {
        cells.push_back(fmt::format("{} {:.2f}", prediction.algorithm, prediction.seconds * 1e6));
      }
      fmt::print("{:>6}  {}\n", bench::formatBytes(row.bytes), fmt::join(cells, ", "));
    }
  }
  if (!options.output.empty()) bench::writeOutput(options.output, planPage(options, model, plans));
  return 0;
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("What the cost model says about the library's algorithms.", "mscclpp-model");
  app.require_subcommand(1);
  app.add_option("--model", options.modelFile, "figures that mscclpp-bench --limits wrote");
  app.add_option("--device", options.device, "a GPU whose figures are known; default NVIDIA H200");
  auto* const show = app.add_subcommand("show", "the figures, as JSON");
  auto* const comparing = app.add_subcommand("check", "prediction against measurement");
  comparing->add_option("results", options.results, "JSON files of mscclpp-bench --output")->required();
  comparing->add_option("--output", options.output, "also write the table to this file");
  comparing->add_option("--limit", options.limit, "largest median error, in percent; default 15");
  auto* const planning = app.add_subcommand("plan", "predicted times of every algorithm, by size");
  planning->add_option("--collective", options.collective, "or all; default allreduce");
  planning->add_option("--output", options.output, "also write the fastest of each size as a page");
  planning->add_option("--ranks", options.ranks, "default 4")->check(CLI::Range(1, maxTeamSize));
  planning->add_option("--min-bytes", options.minBytes, "of the larger buffer; default 1K");
  planning->add_option("--max-bytes", options.maxBytes, "default 1G");
  auto* const networking = app.add_subcommand("network", "predicted times in two levels, by size");
  networking->add_option("--nodes", options.nodes, "default 2")->check(CLI::Range(1, 1 << 20));
  networking->add_option("--ranks", options.ranks, "of a node, each with its own adapter; default 4")
      ->check(CLI::Range(1, maxTeamSize));
  networking->add_option("--network", options.networkFile, "figures that mscclpp-bench --limits wrote; or these:");
  networking->add_option("--rail-gbps", options.railGbps, "GB/s out of one rank");
  networking->add_option("--message-us", options.messageUs, "from putWithSignal until the peer has seen it");
  networking->add_option("--transfer-us", options.transferUs, "of each further transfer of a proxy");
  networking->add_option("--output", options.output, "also write a table by each schedule between nodes to this file");
  networking->add_option("--blocks", options.blocks, "of the kernel; default 32")->check(CLI::Range(1u, 1024u));
  networking->add_option("--min-bytes", options.minBytes, "of the larger buffer; default 1K");
  networking->add_option("--max-bytes", options.maxBytes, "default 1G");
  for (auto* command : {show, comparing, planning, networking}) command->fallthrough();
  try {
    app.parse(argc, argv);
  } catch (CLI::CallForHelp const&) {
    fmt::print("{}", app.help());
    return 0;
  } catch (CLI::ParseError const& error) {
    throw UsageError(fmt::format("{}; see mscclpp-model --help", error.what()));
  }
  if (*show) {
    fmt::print("{}", modelOf(options).json());
    return 0;
  }
  if (*networking) return network(options);
  return *comparing ? check(options) : plan(options);
}

int runMain(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (std::exception const& error) {
    fmt::print(stderr, "mscclpp-model: {}\n", error.what());
    return statusUsage;
  }
}

}  // namespace
}  // namespace mscclpp::tools

int main(int argc, char** argv) { return mscclpp::tools::runMain(argc, argv); }
