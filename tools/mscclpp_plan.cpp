// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// mscclpp-plan: execution plans, judged, shown, compiled and run.
//
//   mscclpp-plan check PLAN.json                         whether it is right, and if not, why
//   mscclpp-plan describe PLAN.json --svg=plan.svg       its steps as text, and as a picture
//   mscclpp-plan compile PLAN.json --dtype=bfloat16      its kernel, for the processes to come
//   mscclpp-plan run PLAN.json --ranks=8 --size=1M       runs it, compares every element, times it
//
// Exit status: 0, 1 where the plan or its result is wrong or a rank fails, 2 bad use, which a file that is no plan is
// too.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>

#include "machine/machine.hpp"
#include "mscclpp/dsl/detail/lower/lower.hpp"
#include "mscclpp/dsl/passes/promote.hpp"
#include "mscclpp/dsl/plan_json.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/launcher.hpp"
#include "mscclpp/host/runtime.hpp"
#include "mscclpp/jit/plan_executor.hpp"
#include "plan/usage.hpp"
#include "plan_diagram.hpp"
#include "plan_run.hpp"
#include "plan_steps.hpp"

#if defined(MSCCLPP_HAS_SIM)
#include "mscclpp/sim/runtime.hpp"
#endif

namespace mscclpp::tools {
namespace {

using bench::formatBytes;
using bench::parseBytes;
using bench::UsageError;

constexpr int statusWrong = 1;
constexpr int statusUsage = 2;

struct Options {
  std::string plan;
  std::string svg;
  std::string device = "auto";
  std::optional<int> ranks;
  std::optional<std::string> size;
  std::string type = "float32";
  std::optional<std::string> op;
  std::optional<int> architecture;
  bool compiled = false;
  std::optional<int> threads;
  std::optional<int> iterations;
  std::optional<int> replays;
  std::optional<int> hosts;
  std::optional<int> splitMask;
  std::string launch = "graph";
  std::string packets = "LL16";
  bool inPlace = false;
  bool strict = false;
};

dsl::Program read(Options const& options) {
  auto const& path = options.plan;
  std::ifstream file(path, std::ios::binary);
  std::string const text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file.is_open() || file.bad())
    throw UsageError(fmt::format("{}: it cannot be read; give an execution plan", path));
  auto program = dsl::programFromJson(text, path);
  program.strict = options.strict;
  if (options.splitMask) {
    auto const mask = *options.splitMask;
    auto& collective = program.collective;
    if (collective.kind != dsl::CollectiveKind::sendReceive || (mask & (mask + 1)) != 0 ||
        collective.ranks % (mask + 1) != 0) {
      throw UsageError(
          fmt::format("--split-mask={}: one less than a power of two that divides the {} ranks, for "
                      "plans of sendrecv",
                      mask, collective.ranks));
    }
    collective.shift = mask + 1;
  }
  return program;
}

// What a right plan asks of its callers.
std::string conditionsOf(dsl::Program const& program, dsl::Verdict const& verdict) {
  std::string text;
  if (verdict.needsEvenChunks) {
    text += fmt::format("; for messages of a multiple of {} bytes a rank's part",
                        16 * dsl::shapeOf(program, true).longestOf);
  }
  if (verdict.reliesOnPackets) text += "; relies on packets to order reads before writes";
  if (!verdict.canAverage) text += "; cannot average";
  if (verdict.promoted != 0) {
    text += fmt::format("; {} relaxed signals and waits are carried out as ordered ones, which its data need",
                        verdict.promoted);
  }
  if (auto const why = dsl::mscclppRefusal(program); !why.empty()) {
    text += fmt::format("; MSCCL++ itself would not run it: {}", why);
  }
  return text;
}

int tellWrong(Options const& options, dsl::Program const& program, dsl::Verdict const& verdict) {
  fmt::print("{}: plan '{}' is wrong: {}\n", options.plan, program.name.str(), verdict.diagnostic.str());
  return statusWrong;
}

int check(Options const& options) {
  auto program = read(options);
  auto const verdict = dsl::prove(program);
  if (!verdict.right()) return tellWrong(options, program, verdict);
  fmt::print("{}: plan '{}' is right: {}{}\n", options.plan, program.name.str(), summaryOf(program),
             conditionsOf(program, verdict));
  return 0;
}

// Also of wrong plans: their steps are what one wants to see.
int describe(Options const& options) {
  auto program = read(options);
  auto const verdict = dsl::prove(program);
  fmt::print("plan '{}': {}\n", program.name.str(), summaryOf(program));
  if (verdict.right()) {
    fmt::print("right{}\n", conditionsOf(program, verdict));
  } else {
    fmt::print("wrong: {}\n", verdict.diagnostic.str());
  }
  fmt::print("{}", listingOf(program));
  if (options.svg.empty()) return 0;
  std::ofstream file(options.svg);
  file << diagramOf(program);
  file.close();
  if (!file) throw UsageError(fmt::format("--svg={}: the file cannot be written", options.svg));
  return 0;
}

// ---- run ------------------------------------------------------------------------------------------------------------

// With a launcher each process is a rank, and ranks may share GPUs; else this process has them all.
DeviceKind deviceFor(Options const& options, LaunchInfo const& launch, int ranks) {
  auto* const simulated = bench::machine(DeviceKind::sim);
  auto const gpus = Device::count(DeviceKind::cuda), needed = launch.size > 1 ? 1 : ranks;
  auto kind = DeviceKind::sim;
  bool const wantsHosts = options.hosts.has_value();
  if (options.device == "cuda" || (options.device == "auto" && !wantsHosts && (gpus >= needed || !simulated))) {
    kind = DeviceKind::cuda;
  }
  if (kind == DeviceKind::cuda && wantsHosts) {
    throw UsageError(
        fmt::format("--hosts={}: only simulated GPUs are on as many hosts as one likes; start processes "
                    "on the hosts, by mpirun or torchrun",
                    *options.hosts));
  }
  if (kind == DeviceKind::cuda && gpus < needed) {
    throw UsageError(
        fmt::format("--device={}: the plan has {} ranks and there are {} GPUs{}; processes started by "
                    "mpirun or torchrun may share them",
                    options.device, ranks, gpus, simulated ? "; --device=sim simulates them" : ""));
  }
  if (kind == DeviceKind::sim && !simulated) {
    throw UsageError("--device=sim: this program was built without the simulated machine");
  }
#if defined(MSCCLPP_HAS_SIM)
  if (kind == DeviceKind::sim) {
    int const hosts = options.hosts.value_or(1);
    if (launch.size > 1 && wantsHosts) throw UsageError("--hosts is for ranks that are threads of one process");
    if (hosts > ranks) throw UsageError(fmt::format("--hosts={}: the plan has {} ranks", hosts, ranks));
    sim::install({.devices = launch.size > 1 ? launch.localRank + 1 : ranks,
                  .devicesPerNode = hosts > 1 ? (ranks + hosts - 1) / hosts : 0});
  }
#endif
  return kind;
}

ReduceOp opFor(Options const& options, dsl::Program const& program) {
  auto const own = operationOf(program);
  if (!options.op) return own;
  if (own == ReduceOp::none)
    throw UsageError(fmt::format("--op={}: the plan reduces nothing; leave it out", *options.op));
  auto const op = reduceOpByName(*options.op);
  if (op) return *op;
  std::vector<std::string_view> names;
  for (auto each : reduceOps) names.push_back(nameOf(each));
  throw UsageError(fmt::format("--op={}: allowed is {}", *options.op, fmt::join(names, ", ")));
}

DataType typeFor(Options const& options) {
  if (auto const type = dataTypeByName(options.type)) return *type;
  std::vector<std::string_view> names;
  for (auto each : dataTypes) names.push_back(nameOf(each));
  throw UsageError(fmt::format("--dtype={}: allowed is {}", options.type, fmt::join(names, ", ")));
}

std::uint64_t sizeFor(Options const& options, dsl::ExecutionPlan const& plan, DataType type, DeviceKind device) {
  auto const granularity = granularityOf(plan, type);
  if (!options.size) {
    std::uint64_t const usual = device == DeviceKind::sim ? 64u << 10 : 1u << 20;
    return std::max(usual / granularity, std::uint64_t{1}) * granularity;
  }
  auto const bytes = parseBytes("--size", *options.size);
  if (bytes % granularity == 0) return bytes;
  auto const next = (bytes / granularity + 1) * granularity;
  throw UsageError(fmt::format("--size={}: the plan's larger buffer is a multiple of {} bytes of {}, as {} is",
                               *options.size, granularity, nameOf(type), formatBytes(next)));
}

dsl::PlanPackets packetsFor(Options const& options) {
  return options.packets == "LL8" ? dsl::PlanPackets::ll8 : dsl::PlanPackets::ll16;
}

// For the processes to come, whose calls then need not wait for it.
int compile(Options const& options) {
  auto program = read(options);
  auto const verdict = dsl::prove(program);
  if (!verdict.right()) return tellWrong(options, program, verdict);
  auto const type = typeFor(options);
  auto const op = opFor(options, program);
  auto const name = program.name.str();
  jit::Target target{DeviceKind::sim};
  if (options.architecture) {
    target = {DeviceKind::cuda, *options.architecture};
  } else if (options.device != "sim" && Device::count(DeviceKind::cuda) > 0) {
    target = jit::targetOf({DeviceKind::cuda, 0});
  } else if (options.device == "cuda") {
    throw UsageError("--device=cuda: there is no GPU here; name its architecture, as --arch=90");
  }
  auto const made = jit::preparePlan(target, dsl::ExecutionPlan(std::move(program)), type, op, packetsFor(options));
  fmt::print("plan '{}' for {}{}: {}\n", name, nameOf(type),
             op == ReduceOp::none ? "" : fmt::format(", {}", nameOf(op)),
             made == jit::Prepared::now      ? "compiled"
             : made == jit::Prepared::before ? "was compiled before"
                                             : "too long to be compiled; it is interpreted");
  return 0;
}

int run(Options const& options) {
  auto program = read(options);
  auto const verdict = dsl::prove(program);
  auto const launch = launchFromEnvironment();
  bool const leads = launch.rank == 0;
  if (!verdict.right()) return leads ? tellWrong(options, program, verdict) : statusWrong;
  if (options.ranks && *options.ranks != program.size()) {
    throw UsageError(fmt::format("--ranks={}: the plan is for {} ranks", *options.ranks, program.size()));
  }
  if (launch.size > 1 && launch.size != program.size()) {
    throw UsageError(
        fmt::format("{} started {} ranks: the plan is for {}", launch.launcher, launch.size, program.size()));
  }
  if (options.inPlace && !program.inPlace) {
    throw UsageError(fmt::format("--in-place: plan '{}' does not work in place; leave it out", program.name.str()));
  }
  auto const device = deviceFor(options, launch, program.size());
  bool const simulated = device == DeviceKind::sim;
  // Threads are the cost of a simulation.
  if (simulated) program.threads = std::min(program.threads, 64);
  if (options.threads) program.threads = *options.threads;
  auto const type = typeFor(options);
  auto const op = opFor(options, program);
  dsl::ExecutionPlan const plan(std::move(program));
  PlanRun const wanted{.device = device,
                       .bytes = sizeFor(options, plan, type, device),
                       .type = type,
                       .op = op,
                       .packets = packetsFor(options),
                       .compiled = options.compiled,
                       .launch = options.launch == "eager" ? bench::LaunchMode::eager : bench::LaunchMode::graph,
                       .operations = options.iterations.value_or(simulated ? 2 : 20),
                       .replays = options.replays.value_or(simulated ? 1 : 20)};
  auto const result = runPlan(plan, wanted, launch);
  for (auto const& finding : result.findings) fmt::print("{}\n", finding);
  int const status = result.wrong != 0 ? statusWrong : 0;
  if (!leads) return status;
  fmt::print("plan '{}': {} {}{}, {} of {}{}\n", plan.program().name.str(), plan.program().size(),
             simulated ? "simulated ranks" : "GPUs",
             launch.size > 1 ? fmt::format(", processes started by {}", launch.launcher) : "",
             formatBytes(wanted.bytes), nameOf(type), op == ReduceOp::none ? "" : fmt::format(", {}", nameOf(op)));
  if (!result.form.empty()) fmt::print("{}\n", result.form);
  if (result.wrong != 0) {
    fmt::print("wrong: {} of {} elements\n", result.wrong, result.compared);
  } else if (result.compared == 0) {
    fmt::print("it ran; its collective demands nothing, so nothing was compared\n");
  } else {
    fmt::print("right: {} elements compared, before and after the timed calls\n", result.compared);
  }
  fmt::print("{}{}", result.report.heading(), result.report.line(result.report.rows[0]));
  return status;
}

// ---- the command line -----------------------------------------------------------------------------------------------

int runCommand(int argc, char** argv) {
  Options options;
  CLI::App app("Execution plans, judged, shown, compiled and run.", "mscclpp-plan");
  app.require_subcommand(1);
  auto* const checking = app.add_subcommand("check", "whether a plan is right, and if not, why");
  auto* const describing = app.add_subcommand("describe", "the steps of each rank and block, right or wrong");
  auto* const compiling = app.add_subcommand("compile", "a plan's kernel, kept for the processes to come");
  auto* const running = app.add_subcommand("run", "runs a plan and compares every element");
  for (auto* command : {checking, describing, compiling, running}) {
    command->add_option("plan", options.plan, "the plan's JSON file")->required();
    command
        ->add_option("--split-mask", options.splitMask,
                     "of a plan of sendrecv: ranks send that far plus one ahead, as groups of so many do")
        ->check(CLI::Range(0, 63));
    command->add_flag("--strict", options.strict,
                      "refuse relaxed signals and waits that must hand over data, rather than order them");
  }
  describing->add_option("--svg", options.svg, "also draw them into this file");
  running->add_option("--ranks", options.ranks, "ranks; those of the plan");
  running->add_option("--size", options.size,
                      "bytes of a rank's larger buffer, with K, M or G; default 1M, 64K where they are simulated");
  running->add_flag("--in-place", options.inPlace,
                    "insist on a plan that works in place; a plan says itself if it does");
  for (auto* command : {compiling, running}) {
    command->add_option("--dtype", options.type, "type of the elements; default float32");
    command->add_option("--op", options.op, "what a plan reduces by that names no operation; default sum");
    command->add_option("--packet-type", options.packets, "LL8 or LL16, of plans with packets; default LL16")
        ->check(CLI::IsMember({"LL8", "LL16"}));
    command->add_option("--device", options.device, "auto, cuda or sim; auto: GPUs where there are enough")
        ->check(CLI::IsMember({"auto", "cuda", "sim"}));
  }
  compiling->add_option("--arch", options.architecture, "of GPUs that are not here: 90 for sm_90")
      ->check(CLI::Range(80, 200));
  running->add_flag("--compiled", options.compiled, "compile it first, rather than interpret it");
  running
      ->add_option("--iterations", options.iterations,
                   "timed calls of a replay; default 20, 2 where they are simulated")
      ->check(CLI::Range(1, 1'000'000));
  running->add_option("--replays", options.replays, "of which median and p99 are taken; default 20, 1 where simulated")
      ->check(CLI::Range(1, 1'000'000));
  running->add_option("--launch", options.launch, "graph, or eager: one call after the other")
      ->check(CLI::IsMember({"graph", "eager"}));
  running->add_option("--hosts", options.hosts, "hosts of simulated ranks; default 1")->check(CLI::Range(1, 64));
  running
      ->add_option("--threads", options.threads, "of a block; default the plan's, at most 64 where they are simulated")
      ->check(CLI::Range(32, 1024));
  try {
    app.parse(argc, argv);
  } catch (CLI::CallForHelp const&) {
    fmt::print("{}", app.help());
    return 0;
  } catch (CLI::ParseError const& error) {
    throw UsageError(fmt::format("{}; see mscclpp-plan --help", error.what()));
  }
  return *checking ? check(options) : *describing ? describe(options) : *compiling ? compile(options) : run(options);
}

int runMain(int argc, char** argv) {
  try {
    return runCommand(argc, argv);
  } catch (Error const& error) {
    fmt::print(stderr, "mscclpp-plan: {}\n", error.what());
    return error.code() == ErrorCode::invalidUsage || error.code() == ErrorCode::unsupported ? statusUsage
                                                                                             : statusWrong;
  } catch (std::exception const& error) {
    fmt::print(stderr, "mscclpp-plan: {}\n", error.what());
    return statusUsage;
  }
}

}  // namespace
}  // namespace mscclpp::tools

int main(int argc, char** argv) { return mscclpp::tools::runMain(argc, argv); }
