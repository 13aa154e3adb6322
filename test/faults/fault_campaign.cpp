// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Thousands of jobs of 2 to 8 processes on the simulated machine, to each of which something happens at random: every
// rank must end in time, with right results or with errors that name the culprit. docs/failures.md says how to run it.
//
//   fault_campaign [--trials=N] [--seconds=N] [--seed=S] [--kind=NAME] [--plant=NAME] [--jobs=N] [--show]
//   fault_campaign --self-test
//
// Trial i follows from S + i alone, up to what the machine does when. `--self-test`: plants a defect of the ranks for
// each kind of fault, and fails where one is not found.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <functional>
#include <map>
#include <stdexcept>
#include <thread>

#include <fmt/format.h>

#include "faults/job.hpp"

namespace faults {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::uint64_t trials = 1000;
  std::uint64_t seconds = 3600;
  std::uint64_t seed = 1;
  std::uint64_t jobs = 3 * std::max(std::thread::hardware_concurrency(), 1u);
  std::optional<Kind> kind;
  Plant plant = Plant::none;
  bool show = false;
  bool selfTest = false;
};

template <class Enum, std::size_t n>
Enum named(std::array<std::string_view, n> const& all, std::string_view text) {
  auto const at = std::find(all.begin(), all.end(), text);
  if (at == all.end()) throw std::invalid_argument(fmt::format("\"{}\" is none of {}", text, fmt::join(all, ", ")));
  return static_cast<Enum>(at - all.begin());
}

Options parse(int count, char** arguments) {
  Options options;
  for (int i = 1; i < count; ++i) {
    std::string_view const argument = arguments[i];
    auto const equals = std::min(argument.find('='), argument.size());
    auto const name = argument.substr(0, equals);
    auto const value = argument.substr(std::min(equals + 1, argument.size()));
    auto const number = [&](std::uint64_t& to) {
      auto const [end, error] = std::from_chars(value.data(), value.data() + value.size(), to);
      if (error != std::errc{} || end != value.data() + value.size()) {
        throw std::invalid_argument(fmt::format("{} takes a number, not \"{}\"", name, value));
      }
    };
    if (name == "--trials") {
      number(options.trials);
    } else if (name == "--seconds") {
      number(options.seconds);
    } else if (name == "--seed") {
      number(options.seed);
    } else if (name == "--jobs") {
      number(options.jobs);
    } else if (name == "--kind") {
      options.kind = named<Kind>(kindNames, value);
    } else if (name == "--plant") {
      options.plant = named<Plant>(plantNames, value);
    } else if (argument == "--show") {
      options.show = true;
    } else if (argument == "--self-test") {
      options.selfTest = true;
    } else {
      throw std::invalid_argument(fmt::format("there is no option {}", argument));
    }
  }
  return options;
}

struct Row {
  std::uint64_t trials = 0;
  Verdict sum;  // but for the time, of which it is the longest

  void add(Verdict const& verdict) {
    ++trials;
    sum.right += verdict.right;
    sum.errors += verdict.errors;
    sum.hangs += verdict.hangs;
    sum.wrong += verdict.wrong;
    sum.culprits += verdict.culprits;
    sum.crashes += verdict.crashes;
    sum.milliseconds = std::max(sum.milliseconds, verdict.milliseconds);
  }
};

// Each trial in a process of its own, `jobs` at once. `next`: nothing where there is none now; ends where none runs,
// too.
class Campaign {
 public:
  explicit Campaign(std::uint64_t jobs, bool show = false)
      : jobs_(jobs),
        show_(show),
        verdicts_(static_cast<Verdict*>(
            ::mmap(nullptr, jobs * sizeof(Verdict), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  Campaign(Campaign const&) = delete;
  Campaign& operator=(Campaign const&) = delete;
  ~Campaign() { ::munmap(verdicts_, jobs_ * sizeof(Verdict)); }

  void run(std::function<std::optional<Plan>()> const& next, std::function<void(Plan const&, Verdict)> const& ended) {
    for (;;) {
      while (running_.size() < jobs_) {
        auto plan = next();
        if (!plan) break;
        start(std::move(*plan));
      }
      if (running_.empty()) return;
      int status = 0;
      auto const found = running_.find(::waitpid(-1, &status, 0));
      if (found == running_.end()) continue;
      auto const [slot, plan] = std::move(found->second);
      running_.erase(found);
      auto verdict = verdicts_[slot];
      if (status != 0) verdict.crashes = 1;
      ended(plan, verdict);
    }
  }

 private:
  struct Running {
    std::size_t slot;
    Plan plan;
  };

  void start(Plan plan) {
    std::size_t slot = 0;
    for (auto const& [process, other] : running_) slot |= std::size_t{1} << other.slot;
    slot = static_cast<std::size_t>(std::countr_one(slot));
    std::fflush(nullptr);
    auto const process = ::fork();
    if (process == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      verdicts_[slot] = runJob(plan, show_);
      ::_exit(0);
    }
    running_.emplace(process, Running{slot, std::move(plan)});
  }

  std::uint64_t jobs_;
  bool show_;
  Verdict* verdicts_;
  std::map<pid_t, Running> running_;
};

void print(std::string_view name, Row const& row) {
  fmt::print("| {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", name, row.trials, row.sum.right, row.sum.errors,
             row.sum.hangs, row.sum.wrong, row.sum.culprits, row.sum.crashes, row.sum.milliseconds);
}

bool runTrials(Options const& options) {
  auto const begin = Clock::now();
  std::map<Kind, Row> rows;
  Row all;
  std::uint64_t number = 0;
  Campaign(options.jobs, options.show)
      .run(
          [&]() -> std::optional<Plan> {
            bool const late = Clock::now() - begin >= std::chrono::seconds(options.seconds);
            if (late || number == options.trials) return {};
            return makePlan(options.seed + number++, options.kind, options.plant);
          },
          [&](Plan const& plan, Verdict const& verdict) {
            rows[plan.kind].add(verdict);
            all.add(verdict);
            if (!verdict.bad()) return;
            fmt::print(stderr, "again: --seed={} --trials=1{}\n", plan.seed,
                       options.kind ? fmt::format(" --kind={}", kindNames[static_cast<std::size_t>(plan.kind)]) : "");
          });
  fmt::print(
      "| fault | trials | right results | errors | hangs | wrong results | wrong culprits | crashes | longest, ms |\n"
      "|---|---|---|---|---|---|---|---|---|\n");
  for (auto const& [kind, row] : rows) print(kindNames[static_cast<std::size_t>(kind)], row);
  print("all", all);
  fmt::print("seeds {} to {}, {:.0f} s, {} jobs at once\n", options.seed, options.seed + number - 1,
             std::chrono::duration<double>(Clock::now() - begin).count(), options.jobs);
  return all.trials > 0 && !all.sum.bad();
}

// Which number of the verdict finds a defect.
int foundBy(Plant plant, Verdict const& verdict) {
  if (plant == Plant::stale) return verdict.wrong;
  if (plant == Plant::hang) return verdict.hangs;
  if (plant == Plant::crash) return verdict.crashes;
  return verdict.culprits;
}

bool selfTest(Options const& options) {
  using enum Plant;
  std::vector<std::pair<Kind, Plant>> const plants{
      {Kind::none, leave},       {Kind::none, crash},    {Kind::none, hang},       {Kind::kill, stale},
      {Kind::kill, misname},     {Kind::kill, hang},     {Kind::stop, stale},      {Kind::stop, misname},
      {Kind::stop, crash},       {Kind::pause, stale},   {Kind::pause, misname},   {Kind::delay, stale},
      {Kind::delay, misname},    {Kind::delay, hang},    {Kind::refuse, ignore},   {Kind::refuse, misname},
      {Kind::fork, leave},       {Kind::fork, misname},  {Kind::fork, hang},       {Kind::mismatch, ignore},
      {Kind::mismatch, misname}, {Kind::mismatch, hang}, {Kind::strangers, leave}, {Kind::strangers, crash},
      {Kind::abort, stale},      {Kind::abort, misname}, {Kind::abort, crash}};
  struct State {
    std::uint64_t tried = 0;
    int running = 0;
    bool found = false;
  };
  constexpr std::uint64_t most = 300;  // trials, until one finds it; one in 15 does where a defect shows least
  std::map<std::pair<Kind, Plant>, State> states;
  Campaign(options.jobs)
      .run(
          [&]() -> std::optional<Plan> {
            for (auto const& plant : plants) {
              auto& state = states[plant];
              if (state.found || state.running == 2 || state.tried == most) continue;
              ++state.running;
              return makePlan(options.seed + state.tried++, plant.first, plant.second);
            }
            return {};
          },
          [&](Plan const& plan, Verdict const& verdict) {
            auto& state = states[{plan.kind, plan.plant}];
            --state.running;
            state.found = state.found || foundBy(plan.plant, verdict) > 0;
          });
  bool all = true;
  for (auto const& [plant, state] : states) {
    all = all && state.found;
    fmt::print("{:9} {:8} {} in {} trials\n", kindNames[static_cast<std::size_t>(plant.first)],
               plantNames[static_cast<std::size_t>(plant.second)], state.found ? "found" : "NOT FOUND", state.tried);
  }
  return all;
}

}  // namespace
}  // namespace faults

int main(int count, char** arguments) {
  try {
    auto const options = faults::parse(count, arguments);
    return (options.selfTest ? faults::selfTest(options) : faults::runTrials(options)) ? 0 : 1;
  } catch (std::invalid_argument const& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
