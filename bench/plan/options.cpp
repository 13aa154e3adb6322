// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "plan/options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <limits>

#include "machine/timer.hpp"

namespace mscclpp::bench {
namespace {

constexpr std::string_view benchmarkPrefix = "--benchmark_";

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  while (true) {
    auto const comma = text.find(',');
    parts.push_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

template <class Range>
std::string names(Range const& values) {
  std::vector<std::string_view> result;
  for (auto value : values) result.push_back(nameOf(value));
  return fmt::format("{}", fmt::join(result, ", "));
}

template <class T, class ByName>
std::vector<T> parseList(std::string_view flag, std::string const& text, ByName byName, std::string const& allowed) {
  std::vector<T> result;
  for (auto part : split(text)) {
    auto const value = byName(part);
    if (!value) refuse(flag, part, allowed);
    result.push_back(*value);
  }
  return result;
}

template <class T>
T parseNumber(std::string_view flag, std::string_view text, T least, T most) {
  T value{};
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < least || value > most) {
    refuse(flag, text, fmt::format("a whole number from {} to {}", least, most));
  }
  return value;
}

bool parseSwitch(std::string_view flag, std::string_view text) {
  if (text == "on") return true;
  if (text != "off") refuse(flag, text, "on, off");
  return false;
}

void parseAlgorithms(std::string const& text, Options& options) {
  if (text == "auto") return;
  if (text == "all") {
    options.algorithmChoice = AlgorithmChoice::all;
    return;
  }
  // Which names there are, the kernel table tells: see planCases().
  options.algorithmChoice = AlgorithmChoice::named;
  for (auto part : split(text)) options.algorithms.emplace_back(part);
}

void parseCollectives(std::string const& text, Options& options) {
  if (text == "all") {
    options.collectives.assign(timedCollectives.begin(), timedCollectives.end());
    options.everyCollective = true;
    return;
  }
  options.collectives = parseList<Collective>(
      "--collective", text,
      [](auto part) {
        auto const found = std::find_if(timedCollectives.begin(), timedCollectives.end(),
                                        [&](Collective collective) { return nameOf(collective) == part; });
        return found == timedCollectives.end() ? std::nullopt : std::optional(*found);
      },
      fmt::format("all, or a list of {}", names(timedCollectives)));
}

std::optional<Contender> peerByName(std::string_view wanted) {
  for (auto peer : {Contender::nccl, Contender::ncclSymmetric}) {
    if (nameOf(peer) == wanted) return peer;
  }
  return std::nullopt;
}

// The flags as text, where given.
struct Texts {
  std::optional<std::string> device, ranks, devices, launch, collective, algorithm, dtype, op, minBytes, maxBytes,
      factor, peers, check, replays, operationsPerGraph, blocks, threads, overlap, seed, output, plot, limits;
};

// It has cases of its own, so what chooses cases is a mistake.
void interpretLimits(Texts const& text, Options& options) {
  if (!text.limits->ends_with(".json")) refuse("--limits", *text.limits, "a file name that ends in .json");
  for (auto const& [flag, value] :
       {std::pair("--launch", &text.launch), std::pair("--collective", &text.collective),
        std::pair("--algorithm", &text.algorithm), std::pair("--dtype", &text.dtype), std::pair("--op", &text.op),
        std::pair("--min-bytes", &text.minBytes), std::pair("--max-bytes", &text.maxBytes),
        std::pair("--factor", &text.factor), std::pair("--peers", &text.peers), std::pair("--check", &text.check),
        std::pair("--ops-per-graph", &text.operationsPerGraph), std::pair("--blocks", &text.blocks),
        std::pair("--threads", &text.threads), std::pair("--overlap", &text.overlap),
        std::pair("--output", &text.output), std::pair("--plot", &text.plot)}) {
    if (value->has_value()) {
      throw UsageError(fmt::format("{}={}: --limits measures cases of its own; leave it out", flag, **value));
    }
  }
  options.limits = *text.limits;
}

Options interpret(Texts const& text) {
  Options options;
  if (text.device && *text.device != "auto") {
    if (*text.device != "cuda" && *text.device != "sim") refuse("--device", *text.device, "auto, cuda, sim");
    options.device = *text.device == "cuda" ? DeviceKind::cuda : DeviceKind::sim;
  }
  if (text.ranks) options.ranks = parseNumber("--ranks", *text.ranks, 1, maxTeamSize);
  if (text.devices) options.devices = parseNumber("--devices", *text.devices, 1, maxTeamSize);
  if (text.launch) {
    auto const found = std::find_if(launchModes.begin(), launchModes.end(),
                                    [&](LaunchMode mode) { return nameOf(mode) == *text.launch; });
    if (found == launchModes.end()) refuse("--launch", *text.launch, names(launchModes));
    options.launch = *found;
  }
  if (text.collective) parseCollectives(*text.collective, options);
  if (text.algorithm) parseAlgorithms(*text.algorithm, options);
  if (text.dtype) {
    options.types = parseList<DataType>(
        "--dtype", *text.dtype, [](auto part) { return dataTypeByName(part); }, names(dataTypes));
  }
  if (text.op) {
    options.operations = parseList<ReduceOp>(
        "--op", *text.op, [](auto part) { return reduceOpByName(part); }, names(reduceOps));
  }
  if (text.minBytes) options.minBytes = parseBytes("--min-bytes", *text.minBytes);
  if (text.maxBytes) options.maxBytes = parseBytes("--max-bytes", *text.maxBytes);
  if (options.maxBytes && *options.maxBytes < options.minBytes) {
    throw UsageError(fmt::format("--min-bytes={} is more than --max-bytes={}", formatBytes(options.minBytes),
                                 formatBytes(*options.maxBytes)));
  }
  if (text.factor) options.factor = parseNumber<std::uint64_t>("--factor", *text.factor, 2, 1u << 20);
  if (text.peers) {
    options.peers = parseList<Contender>("--peers", *text.peers, peerByName,
                                         fmt::format("a list of {}", fmt::join(peerNames, ", ")));
  }
  if (text.check) options.check = parseSwitch("--check", *text.check);
  if (text.replays) options.replays = parseNumber("--replays", *text.replays, 1, 100000);
  if (text.operationsPerGraph) {
    options.operationsPerGraph = parseNumber("--ops-per-graph", *text.operationsPerGraph, 1, 10000);
  }
  if (options.launch == LaunchMode::host && options.operationsPerGraph.value_or(1) > mostCallsInQueue) {
    throw UsageError(
        fmt::format("--ops-per-graph={}: --launch=host takes at most {} calls in a row, since the stream's "
                    "queue would be full and a call wait for kernels",
                    *options.operationsPerGraph, mostCallsInQueue));
  }
  if (text.blocks) options.blocks = parseNumber<std::uint32_t>("--blocks", *text.blocks, 0, 4096);
  if (text.threads) options.threads = parseNumber<std::uint32_t>("--threads", *text.threads, 0, 512);
  if (text.overlap) {
    options.overlap = parseSwitch("--overlap", *text.overlap);
    if (options.launch != LaunchMode::graph) {
      throw UsageError(fmt::format("--overlap={}: with --launch={} the library decides it; leave it out", *text.overlap,
                                   nameOf(options.launch)));
    }
  }
  if (text.seed) {
    options.seed = parseNumber<std::uint64_t>("--seed", *text.seed, 0, std::numeric_limits<std::uint64_t>::max());
  }
  if (text.output) {
    if (!text.output->ends_with(".json") && !text.output->ends_with(".md")) {
      refuse("--output", *text.output, "a file name that ends in .json or .md");
    }
    options.output = *text.output;
  }
  if (text.plot) {
    if (text.plot->empty()) refuse("--plot", *text.plot, "a folder");
    if (options.launch != LaunchMode::graph) {
      throw UsageError(fmt::format("--plot={}: figures are of --launch=graph", *text.plot));
    }
    options.plot = *text.plot;
  }
  if (text.limits) interpretLimits(text, options);
  return options;
}

}  // namespace

CommandLine parseCommandLine(std::vector<std::string> const& arguments) {
  CommandLine result;
  std::vector<std::string> own;
  for (auto const& argument : arguments) {
    (argument.starts_with(benchmarkPrefix) ? result.benchmarkArguments : own).push_back(argument);
  }

  CLI::App app("Times collectives and checks their results, on GPUs or on simulated GPUs.", "mscclpp-bench");
  Texts text;
  app.add_option("--device", text.device, "auto, cuda or sim; auto: GPUs where there are any");
  app.add_option("--ranks", text.ranks,
                 "ranks in this process: default every GPU, or 4 simulated ones; more than there are GPUs share them");
  app.add_option("--devices", text.devices, "use the first so many GPUs only; default: as many as there are ranks");
  app.add_option(
      "--launch", text.launch,
      "graph (the default): the device's time of a call in a captured chain; eager: the time of a loop of the "
      "library's calls; host: the processor's time of one, beside a launch of an empty kernel");
  app.add_option("--collective", text.collective,
                 fmt::format("all, or a list of {}; default allreduce", names(timedCollectives)));
  app.add_option("--algorithm", text.algorithm,
                 "auto (the library's choice, the default), all, or a list of names; a name that there is not gets the "
                 "list of those that there are");
  app.add_option("--dtype", text.dtype, fmt::format("list of {}; default bfloat16", names(dataTypes)));
  app.add_option("--op", text.op, fmt::format("list of {}; default sum", names(reduceOps)));
  app.add_option("--min-bytes", text.minBytes, "smallest size, such as 1K, of the larger buffer; default 1K");
  app.add_option("--max-bytes", text.maxBytes, "largest size; default 1G, on simulated GPUs 1M");
  app.add_option("--factor", text.factor, "from one size to the next; default 4");
  bool inPlace = false;
  app.add_flag("--in-place", inPlace, "input and output in one buffer, as each collective allows it");
  app.add_option("--peers", text.peers,
                 "nccl, nccl-symmetric (on registered memory) or both: time NCCL in the same run, from libnccl.so.2");
  app.add_option("--check", text.check, "on or off: compare every element with what the host computes; default on");
  app.add_option("--replays", text.replays, "timed repetitions of each case");
  app.add_option("--ops-per-graph", text.operationsPerGraph, "operations in one repetition");
  app.add_option("--blocks", text.blocks, "blocks of every launch, in place of the library's choice, which is 0");
  app.add_option("--threads", text.threads, "threads per block of every launch, likewise");
  app.add_option("--overlap", text.overlap,
                 "on or off: programmatic dependent launch; default on for packet algorithms");
  bool dryRun = false;
  app.add_flag("--dry-run", dryRun, "print what would be run, with the library's choices, and run nothing");
  app.add_option("--seed", text.seed, "of the input data; default: a random one, which is printed");
  app.add_option("--output", text.output, "also write the results to this .json or .md file");
  app.add_option("--plot", text.plot,
                 "also draw time and bandwidth against size: an SVG file for each collective, type and operation, and "
                 "the results as bench.json, into this folder; needs python3 and matplotlib");
  app.add_option("--limits", text.limits,
                 "measure latencies and bandwidths in place of collectives, and write them to this .json file for the "
                 "cost model; takes --device, --ranks, --replays and --seed");
  app.footer("Flags of Google Benchmark, such as --benchmark_filter= and --benchmark_out=, are passed on to it.");

  std::vector<std::string> reversed(own.rbegin(), own.rend());  // the order that CLI11 takes a vector in
  try {
    app.parse(reversed);
  } catch (CLI::CallForHelp const&) {
    result.help = app.help();
    return result;
  } catch (CLI::ParseError const& error) {
    throw UsageError(fmt::format("{}; see mscclpp-bench --help", error.what()));
  }
  result.options = interpret(text);
  result.options.inPlace = inPlace;
  result.options.dryRun = dryRun;
  if (dryRun && !result.options.plot.empty()) throw UsageError("--dry-run: it measures nothing that --plot could draw");
  if (!result.options.limits.empty() && (inPlace || dryRun || !result.benchmarkArguments.empty())) {
    throw UsageError(fmt::format("{}: --limits measures cases of its own; leave it out",
                                 inPlace  ? "--in-place"
                                 : dryRun ? "--dry-run"
                                          : result.benchmarkArguments.front()));
  }
  return result;
}

}  // namespace mscclpp::bench
