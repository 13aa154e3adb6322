// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// mscclpp-check: explores the programs of a shared object, or of a source file, on the simulated machine and reports
// what can go wrong.
//
// Exit status: 0 nothing found (or, with --expect-finding, that was found), 1 findings, 2 bad use.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/progress.hpp"
#include "crash_report.hpp"
#include "jit/host_compiler.hpp"
#include "jit/work_folder.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/sim/check_program.hpp"
#include "mscclpp/sim/explore.hpp"
#include "mscclpp/version.hpp"
#include "sim/hooks/tsan_hooks.hpp"

namespace mscclpp::tools {
namespace {

using sim::Strategy;

constexpr int nothingFound = 0;
constexpr int found = 1;
constexpr int badUse = 2;

struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// ---- the command line -----------------------------------------------------------------------------------------------

struct CommandLine {
  std::string object;  // or source
  std::vector<std::string> definitions;
  std::vector<std::string> folders;
  std::string program;
  bool list = false;
  std::optional<int> ranks;
  std::optional<int> schedules;
  std::optional<Strategy> strategy;
  std::optional<std::uint64_t> seed;
  std::optional<double> preemption;
  std::optional<int> faults;
  std::optional<double> timeLimit;
  std::string replay;
  bool noRaces = false;
  bool noWeakMemory = false;
  bool noLostSignals = false;
  bool noShrink = false;
  bool stopAtFirst = false;
  std::optional<sim::FindingKind> expected;
  std::string json;
  std::string sarif;
  std::string sourceRoot = ".";
};

std::map<std::string, sim::FindingKind> kindsByName() {
  std::map<std::string, sim::FindingKind> kinds;
  for (auto kind = sim::FindingKind::race;; kind = static_cast<sim::FindingKind>(static_cast<int>(kind) + 1)) {
    kinds.emplace(sim::nameOf(kind), kind);
    if (kind == sim::FindingKind::nothingChecked) return kinds;
  }
}

// The value of an option that has one of a few names.
template <class T>
std::function<void(std::string const&)> oneOf(std::map<std::string, T> const& values, std::optional<T>& target) {
  return [values, &target](std::string const& text) {
    auto const entry = values.find(text);
    if (entry == values.end()) {
      std::vector<std::string> names;
      for (auto const& [name, value] : values) names.push_back(name);
      throw CLI::ValidationError(fmt::format("{}: allowed is {}", text, fmt::join(names, ", ")));
    }
    target = entry->second;
  };
}

// Nothing where the command has done all it was asked for, such as --help.
std::optional<CommandLine> parse(int argc, char** argv) {
  CommandLine line;
  CLI::App app(
      "Explores the programs of a shared object or source file on simulated GPUs and reports races, dead-locks, lost "
      "signals and wrong results. Exit status: 0 nothing found, 1 findings, 2 bad use.",
      "mscclpp-check");
  app.set_version_flag("--version", versionText);
  app.add_option("object", line.object,
                 "Shared object with the programs, as mscclpp_add_check() builds it, or a source, which is compiled")
      ->required();
  app.add_option("-D,--define", line.definitions, "Macro of a source, NAME or NAME=VALUE")->allow_extra_args(false);
  app.add_option("-I,--include", line.folders, "Folder of a source's headers")->allow_extra_args(false);
  app.add_option("--run", line.program, "Only the program of this name");
  app.add_flag("--list", line.list, "Name the programs and end");
  app.add_option("--ranks", line.ranks, "Ranks, each on a simulated GPU of its own")->check(CLI::Range(1, 256));
  app.add_option("--schedules", line.schedules, "Schedules at most; 0: as many as --time-limit allows")
      ->check(CLI::Range(0, 1'000'000'000));
  app.add_option_function<std::string>("--strategy",
                                       oneOf<Strategy>({{"mixed", Strategy::mixed},
                                                        {"random", Strategy::random},
                                                        {"pct", Strategy::pct},
                                                        {"exhaustive", Strategy::exhaustive}},
                                                       line.strategy),
                                       "mixed, random, pct or exhaustive");
  app.add_option("--seed", line.seed, "Of the first schedule");
  app.add_option("--preemption", line.preemption, "Chance that a thread is interrupted at an access, 0 to 1")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--faults", line.faults, "Ranks that are late, absent or aborted: at most so many in a schedule")
      ->check(CLI::Range(0, 100));
  app.add_option("--time-limit", line.timeLimit, "Seconds, for each program")->check(CLI::Range(0.001, 1e6));
  app.add_option("--replay", line.replay, "Run just this schedule, as a report names it");
  app.add_flag("--no-races", line.noRaces, "Do not check accesses against each other");
  app.add_flag("--no-weak-memory", line.noWeakMemory, "Accesses take effect at once and in order");
  app.add_flag("--no-lost-signals", line.noLostSignals, "A signal that nobody waits for is no finding");
  app.add_flag("--no-shrink", line.noShrink, "Do not look for short schedules");
  app.add_flag("--stop-at-first", line.stopAtFirst, "End with the first schedule that has a finding");
  app.add_option_function<std::string>("--expect-finding", oneOf(kindsByName(), line.expected),
                                       "Succeed if every program has a finding of this kind, and only then");
  app.add_option("--json", line.json, "Also write the report to this file");
  app.add_option("--sarif", line.sarif, "Also write it as SARIF 2.1.0");
  app.add_option("--source-root", line.sourceRoot, "SARIF names the files below it from there (current folder)");
  try {
    app.parse(argc, argv);
  } catch (CLI::Success const& done) {
    app.exit(done);
    return std::nullopt;
  } catch (CLI::ParseError const& error) {
    throw UsageError(error.what());
  }
  return line;
}

// ---- the shared object ----------------------------------------------------------------------------------------------

struct Program {
  std::string name;
  std::function<void(sim::RankContext&)> rankMain;
  sim::World world;
  sim::ExploreOptions options;
};

// `object` is what was made of `named`, where that is a source.
std::vector<Program> load(std::string const& object, std::string const& named) {
  constexpr char const* exported = "mscclppCheck";
  auto const unitsBefore = sim::instrumentedUnits();
  auto const path = object.find('/') == std::string::npos ? "./" + object : object;
  void* const handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed: programs live as long as we do
  if (handle == nullptr) {
    throw UsageError(
        fmt::format("cannot load {}: {}. Build it with mscclpp_add_check(), or as a shared library that "
                    "links mscclpp::check_object and what else it needs",
                    named, ::dlerror()));
  }
  // The machine exists once. An object with another one would run its kernels there, unseen.
  auto* const ownMachine = ::dlsym(handle, "_ZN7mscclpp3sim15ensureInstalledEv");
  if (ownMachine != nullptr && ownMachine != reinterpret_cast<void*>(&sim::ensureInstalled)) {
    throw UsageError(
        fmt::format("{} holds its own copy of the simulated machine. Link mscclpp::check_object instead of "
                    "mscclpp::check, mscclpp::sim or mscclpp::host: the command lends it the libraries",
                    named));
  }
  std::vector<Program> programs;
  for (auto const* program : sim::checkPrograms()) {
    programs.push_back({program->name(), program->rankMain(), program->world(), program->options()});
  }
  if (auto* const symbol = ::dlsym(handle, exported); symbol != nullptr) {
    programs.push_back({exported, reinterpret_cast<void (*)(sim::RankContext&)>(symbol), {}, {}});
  }
  if (programs.empty()) {
    throw UsageError(
        fmt::format("{} has nothing to check: it exports no `extern \"C\" void "
                    "{}(mscclpp::sim::RankContext&)` and has no mscclpp::sim::CheckProgram",
                    named, exported));
  }
  if (sim::instrumentedUnits() == unitsBefore) {
    fmt::print(stderr,
               "mscclpp-check: warning: {} was compiled without the compiler's hooks, so its plain accesses are not "
               "seen. Link mscclpp::check_object, or compile and link it with the options that docs/checker_command.md "
               "names\n",
               named);
  }
  return programs;
}

std::vector<Program> choose(std::vector<Program> programs, CommandLine const& line) {
  std::vector<std::string> names;
  for (auto const& program : programs) names.push_back(program.name);
  if (!line.program.empty()) {
    std::erase_if(programs, [&](Program const& program) { return program.name != line.program; });
    if (programs.empty()) {
      throw UsageError(fmt::format("--run {}: {} has {}", line.program, line.object, fmt::join(names, ", ")));
    }
  }
  if (!line.replay.empty() && programs.size() > 1) {
    throw UsageError(fmt::format("--replay wants one program: say which with --run, {}", fmt::join(names, " or ")));
  }
  for (auto& program : programs) {
    auto& options = program.options;
    program.world.ranks = line.ranks.value_or(program.world.ranks);
    options.schedules = line.schedules.value_or(options.schedules);
    options.strategy = line.strategy.value_or(options.strategy);
    options.seed = line.seed.value_or(options.seed);
    options.preemption = line.preemption.value_or(options.preemption);
    options.faults = line.faults.value_or(options.faults);
    if (line.timeLimit) options.timeLimit = std::chrono::milliseconds(static_cast<long>(*line.timeLimit * 1000));
    if (!line.replay.empty()) options.replay = line.replay;
    options.findRaces &= !line.noRaces;
    options.weakMemory &= !line.noWeakMemory;
    options.findLostSignals &= !line.noLostSignals;
    options.shrink &= !line.noShrink;
    options.stopAtFirst |= line.stopAtFirst;
  }
  return programs;
}

// ---- the report -----------------------------------------------------------------------------------------------------

class Report {
 public:
  explicit Report(CommandLine const& line) : line_(line) {}

  // The program that the next results belong to.
  void begin(Program const& program) { current_ = program.name; }

  void add(sim::ExploreResult const& result) {
    bool const asExpected =
        line_.expected ? std::any_of(result.findings.begin(), result.findings.end(),
                                     [&](sim::Finding const& finding) { return finding.kind == *line_.expected; })
                       : result.ok();
    failed_ |= !asExpected;
    fmt::print("{}: {}", current_, sim::toText(result));
    if (line_.expected) {
      fmt::print("{}: {} {}\n", current_, sim::nameOf(*line_.expected), asExpected ? "was expected" : "was not found");
    }
    std::fflush(stdout);
    if (!line_.json.empty()) {
      nlohmann::ordered_json check = {{"name", current_}};
      check.update(nlohmann::ordered_json::parse(sim::toJson(result)));
      checks_.push_back(std::move(check));
    }
    if (!line_.sarif.empty()) {
      auto document = nlohmann::ordered_json::parse(sim::toSarif(result, line_.sourceRoot));
      document["runs"][0]["automationDetails"]["id"] = fmt::format("mscclpp-check/{}/", current_);
      if (sarif_.is_null()) {
        sarif_ = std::move(document);
      } else {
        sarif_["runs"].push_back(std::move(document["runs"][0]));
      }
    }
  }

  void writeFiles() const {
    if (!line_.json.empty()) write(line_.json, {{"checks", checks_}});
    if (!line_.sarif.empty()) write(line_.sarif, sarif_);
  }

  int exitStatus() const { return failed_ ? found : nothingFound; }

 private:
  static void write(std::string const& path, nlohmann::ordered_json const& document) {
    std::ofstream file(path);
    file << document.dump(2) << '\n';
    file.flush();
    if (!file) throw UsageError(fmt::format("cannot write {}", path));
  }

  CommandLine const& line_;
  std::string current_;
  bool failed_ = false;
  nlohmann::ordered_json checks_ = nlohmann::ordered_json::array();
  nlohmann::ordered_json sarif_;
};

bool isSource(std::string const& path) {
  auto const extension = std::filesystem::path(path).extension();
  return extension == ".cpp" || extension == ".cc" || extension == ".cxx" || extension == ".cu";
}

int check(CommandLine const& line) {
  // Until the end: reports take lines from what was loaded.
  std::optional<jit::WorkFolder> work;
  auto object = line.object;
  if (isSource(line.object)) {
    work.emplace();
    if (!std::filesystem::exists(line.object)) throw UsageError(fmt::format("there is no file {}", line.object));
    Progress compiling;
    compiling.show(0, 0, "compiling " + line.object);
    object = jit::buildForHost({.source = line.object, .what = line.object, .into = work->path(), .hooked = true},
                               {.definitions = line.definitions, .folders = line.folders});
  } else if (!line.definitions.empty() || !line.folders.empty()) {
    throw UsageError(
        fmt::format("--define and --include are for sources, whose names end with .cpp, .cc, .cxx or .cu; "
                    "{} is none",
                    line.object));
  }
  auto programs = load(object, line.object);
  if (line.list) {
    for (auto const& program : programs) fmt::print("{}\n", program.name);
    return nothingFound;
  }
  Report report(line);
  sim::ExploreResult crashed;
  std::optional<Progress> progress;
  reportCrashes(found, [&](sim::Finding const& finding) {
    progress->clear();
    crashed.findings.push_back(finding);
    report.add(crashed);
    report.writeFiles();
  });
  for (auto const& program : choose(std::move(programs), line)) {
    report.begin(program);
    crashed.schedules = 0;
    std::map<int, std::uint64_t> begunByRank;
    progress.emplace();
    auto const total = static_cast<std::size_t>(program.options.schedules);
    auto const counted = [&](sim::RankContext& rank) {
      crashed.schedules = std::max(crashed.schedules, ++begunByRank[rank.rank()]);
      if (rank.rank() == 0) progress->show(crashed.schedules - 1, total, program.name);
      program.rankMain(rank);
    };
    auto const result = sim::explore(program.world, counted, program.options);
    progress->clear();
    report.add(result);
  }
  report.writeFiles();
  return report.exitStatus();
}

int run(int argc, char** argv) {
  try {
    auto const line = parse(argc, argv);
    return line ? check(*line) : nothingFound;
  } catch (UsageError const& error) {
    fmt::print(stderr, "mscclpp-check: {}\n", error.what());
  } catch (Error const& error) {
    fmt::print(stderr, "mscclpp-check: {}\n", error.what());
  }
  return badUse;
}

}  // namespace
}  // namespace mscclpp::tools

int main(int argc, char** argv) { return mscclpp::tools::run(argc, argv); }
