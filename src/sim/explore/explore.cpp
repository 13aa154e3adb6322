// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/sim/explore.hpp"

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "mscclpp/host/error.hpp"
#include "sim/checker/checker.hpp"
#include "sim/explore/exhaustive.hpp"
#include "sim/explore/liveness.hpp"
#include "sim/explore/shrink.hpp"
#include "sim/machine/machine.hpp"
#include "sim/machine/rank_run.hpp"
#include "sim/report/describe.hpp"

namespace mscclpp::sim {
namespace {

using Time = std::chrono::steady_clock;

// Of shrinking one finding.
constexpr int shrinkRuns = 300;
constexpr std::chrono::seconds shrinkTime{5};
// The code under test may keep something for good the first time that it runs; what it leaves after that is lost.
constexpr std::uint64_t schedulesThatMayKeep = 2;

// The machine as the world wants it, and afterwards as it was.
class InstalledMachine {
 public:
  explicit InstalledMachine(World const& world) {
    ensureInstalled();
    auto& machine = Machine::instance();
    before_ = machine.options();
    auto wanted = world.machine;
    if (wanted.devices == 0) wanted.devices = before_.devices;
    wanted.devices = std::max(wanted.devices, world.ranks);
    wanted.seed = before_.seed;
    wanted.preemption = before_.preemption;
    changed_ = wanted != before_;
    if (changed_) machine.install(wanted);
  }
  ~InstalledMachine() {
    auto& machine = Machine::instance();
    if (changed_ && machine.heap().empty() && machine.streamCount() == 0) machine.install(before_);
  }
  InstalledMachine(InstalledMachine const&) = delete;
  InstalledMachine& operator=(InstalledMachine const&) = delete;

 private:
  MachineOptions before_;
  bool changed_ = false;
};

// While it lives, the checker observes the machine's run.
class Checked {
 public:
  Checked(Machine& machine, Checker& checker, CheckerOptions const& options) : machine_(machine), checker_(checker) {
    checker.begin(options);
    machine.observe(&checker);
  }
  ~Checked() {
    machine_.observe(nullptr);
    if (checker_.active()) checker_.end();
  }
  Checked(Checked const&) = delete;
  Checked& operator=(Checked const&) = delete;

 private:
  Machine& machine_;
  Checker& checker_;
};

struct Observed {
  std::vector<Finding> findings;
  Schedule schedule;
  std::uint64_t switches = 0;
  std::uint64_t memorySteps = 0;
  std::uint64_t checkedAccesses = 0;
  std::uint64_t forgottenAccesses = 0;
  RunEnd end = RunEnd::finished;
  Cut cut = Cut::none;
};

class Explorer {
 public:
  Explorer(World const& world, std::function<void(RankContext&)> const& rankMain, ExploreOptions const& options)
      : machine_(Machine::instance()),
        ranks_(world.ranks),
        rankMain_(rankMain),
        options_(options),
        checker_(machine_),
        checks_{options.findRaces, options.weakMemory, options.findLostSignals},
        begun_(Time::now()),
        hostStacks_(RunOptions{}.hostStackBytes * stackFactor) {
    if (options.timeLimit.count() > 0) deadline_ = begun_ + options.timeLimit;
  }

  ExploreResult explore() {
    if (!options_.replay.empty()) {
      keep(count(replay(parseSchedule(options_.replay))), options_.seed, false);
    } else if (options_.strategy == Strategy::exhaustive) {
      searchAll();
    } else {
      search();
    }
    if (result_.ok() && options_.findRaces && result_.checkedAccesses == 0) {
      result_.findings.push_back(nothingCheckedFinding());
      result_.findings.back().seen = result_.schedules;
    }
    result_.seconds = std::chrono::duration<double>(Time::now() - begun_).count();
    result_.explored = inWords();
    return std::move(result_);
  }

 private:
  // Told by the seed alone, which so replays a schedule of a mixture too.
  bool isPct(std::uint64_t seed) const {
    return options_.strategy == Strategy::pct || (options_.strategy == Strategy::mixed && seed % 2 == 0);
  }

  bool goesOn(int done) const { return options_.schedules == 0 || done < options_.schedules; }

  void search() {
    std::uint64_t length = 0;
    Faults undisturbed;
    if (isPct(options_.seed) || (options_.strategy == Strategy::mixed && goesOn(1)) || options_.faults > 0) {
      // Where priorities change depends on how long a run is, and where faults strike on what it launches; those of the
      // undisturbed one go into every seed.
      auto const director = replayDirector({});
      auto const seen = count(runOnce(*director, options_.faults > 0 ? &undisturbed : nullptr));
      length = seen.memorySteps;
      ++undisturbed_;
      if (!keep(seen, options_.seed, true)) return;
    }
    for (int i = 0; goesOn(i); ++i) {
      auto const seed = options_.seed + static_cast<std::uint64_t>(i);
      auto const director =
          isPct(seed) ? pctDirector(seed, options_.priorityChanges, length) : randomDirector(seed, options_.preemption);
      ++(isPct(seed) ? pct_ : random_);
      Faults faults(options_.faults > 0 ? chooseFaults(undisturbed.launches(), seed, options_.faults) : Schedule());
      if (!keep(count(runOnce(*director, options_.faults > 0 ? &faults : nullptr)), seed, true)) return;
    }
  }

  void searchAll() {
    ExhaustiveSearch search(options_.preemptionBound);
    bool allEnded = true;
    for (int i = 0; goesOn(i); ++i) {
      search.beginRun();
      auto const seen = count(runOnce(search));
      if (seen.cut == Cut::stepLimit || seen.cut == Cut::liveLock) allEnded = false;
      bool const goOn = keep(seen, options_.seed, true);
      bool const more = search.next();
      result_.complete = !more && allEnded && seen.end != RunEnd::wallLimit;
      if (!more || !goOn) return;
    }
  }

  std::string inWords() const {
    if (!options_.replay.empty()) return "the one that was asked for";
    if (options_.strategy == Strategy::exhaustive) {
      auto const bound =
          options_.preemptionBound < 0 ? "" : fmt::format(" of at most {} interruptions", options_.preemptionBound);
      return fmt::format("{}{}", result_.complete ? "all" : "some", bound);
    }
    std::vector<std::string> parts;
    if (undisturbed_ != 0) parts.push_back(fmt::format("{} undisturbed", undisturbed_));
    if (random_ != 0) parts.push_back(fmt::format("{} random (preemption {})", random_, options_.preemption));
    if (pct_ != 0) parts.push_back(fmt::format("{} pct ({} changes of priority)", pct_, options_.priorityChanges));
    auto const faults = options_.faults == 0 ? "" : fmt::format(", with up to {} faults each", options_.faults);
    return fmt::format("{}{}", fmt::join(parts, ", "), faults);
  }

  // A run that the search has cut off as the beginning of another one. It counts if it is the first to show something.
  static bool isRepeated(Observed const& seen) { return seen.cut == Cut::wasSeen; }

  Observed count(Observed seen) {
    if (!isRepeated(seen)) ++result_.schedules;
    result_.switches += seen.switches;
    result_.memorySteps += seen.memorySteps;
    result_.checkedAccesses += seen.checkedAccesses;
    result_.forgottenAccesses += seen.forgottenAccesses;
    return seen;
  }

  Observed replay(Schedule const& schedule) {
    auto const director = replayDirector(schedule);
    Faults faults(schedule);
    bool const any = std::ranges::any_of(schedule, [](Decision const& d) { return d.fault != FaultKind::none; });
    return runOnce(*director, any ? &faults : nullptr);
  }

  Observed runOnce(Director& director, Faults* faults = nullptr) {
    Observed seen;
    auto const allocations = machine_.heap().regions();
    auto const streams = machine_.streamCount();
    {
      Checked const checked(machine_, checker_, checks_);
      auto& scheduler = machine_.scheduler();
      RankRun run({.ranks = ranks_,
                   .seed = options_.seed,
                   .deadline = deadline_,
                   .director = &director,
                   .limits = {.steps = options_.stepLimit, .liveLockSteps = options_.liveLockSteps},
                   .faults = faults,
                   .stopAtFailure = false},
                  hostStacks_, rankMain_);
      try {
        seen.end = run.toEnd();
        seen.cut = scheduler.whyCut();
        seen.findings = findingsOfEnd(seen.end, run);
        seen.schedule = scheduler.takeSchedule();
        seen.switches = scheduler.switches();
        seen.memorySteps = scheduler.memorySteps();
      } catch (...) {
        run.unwind();
        throw;
      }
      auto const races = checker_.findings();
      seen.checkedAccesses = checker_.accesses();
      seen.forgottenAccesses = checker_.forgotten();
      run.unwind();
      auto found = checker_.end();
      // What looks like a lost signal or a race while threads are being ended is none.
      if (seen.end != RunEnd::finished) found.resize(races);
      std::ranges::move(found, std::inserter(seen.findings, seen.findings.begin()));
    }
    if (faults != nullptr && faults->struck()) addFaults(seen, *faults);
    checkLeaks(seen, allocations, streams);
    return seen;
  }

  static void addFaults(Observed& seen, Faults const& faults) {
    // Whoever has given up looks at nothing any more.
    std::erase_if(seen.findings, [](Finding const& finding) { return finding.kind == FindingKind::lostSignal; });
    for (auto& finding : seen.findings) finding.faults = faults.texts();
    auto const& struck = faults.struckHere();
    seen.schedule.insert(seen.schedule.begin(), struck.begin(), struck.end());
  }

  void checkLeaks(Observed& seen, std::size_t allocationsBefore, std::size_t streamsBefore) {
    auto const allocations = machine_.heap().regions();
    auto const streams = machine_.streamCount();
    if (seen.end != RunEnd::finished || !seen.findings.empty() || ++runsEnded_ <= schedulesThatMayKeep) return;
    if (allocations <= allocationsBefore && streams <= streamsBefore) return;
    seen.findings.push_back(leakFinding(allocations - std::min(allocations, allocationsBefore),
                                        streams - std::min(streams, streamsBefore)));
  }

  // Takes the findings over; false when exploring shall end.
  bool keep(Observed const& seen, std::uint64_t seed, bool mayShrink) {
    std::vector<std::pair<FindingKind, std::uint64_t>> inThisOne;
    auto const knownBefore = result_.findings.size();
    for (auto const& finding : seen.findings) {
      std::pair const what{finding.kind, finding.key};
      if (std::ranges::find(inThisOne, what) != inThisOne.end()) continue;
      inThisOne.push_back(what);
      auto const known = std::ranges::find_if(result_.findings, [&](Finding const& f) { return isSame(f, finding); });
      if (known != result_.findings.end()) {
        if (!isRepeated(seen)) ++known->seen;
        continue;
      }
      if (result_.findings.size() >= static_cast<std::size_t>(options_.maxFindings)) break;
      auto kept = finding;
      kept.seed = seed;
      kept.schedule = toText(seen.schedule);
      result_.findings.push_back(std::move(kept));
      if (options_.shrink && mayShrink) shrinkFinding(result_.findings.back(), seen.schedule);
    }
    if (isRepeated(seen) && result_.findings.size() > knownBefore) ++result_.schedules;
    if (options_.stopAtFirst && !result_.findings.empty()) return false;
    if (result_.findings.size() >= static_cast<std::size_t>(options_.maxFindings)) return false;
    return seen.end != RunEnd::wallLimit && Time::now() < deadline_;
  }

  static bool isSame(Finding const& a, Finding const& b) { return a.kind == b.kind && a.key == b.key; }

  void shrinkFinding(Finding& finding, Schedule const& schedule) {
    auto const end = std::min(deadline_, Time::now() + shrinkTime);
    int runs = 0;
    auto const attempt = [&](Schedule const& candidate) -> std::optional<Schedule> {
      ++runs;
      auto seen = replay(candidate);
      auto const same = std::ranges::find_if(seen.findings, [&](Finding const& f) { return isSame(f, finding); });
      if (same == seen.findings.end()) return std::nullopt;
      same->seed = finding.seed;
      same->seen = finding.seen;
      same->schedule = toText(seen.schedule);
      finding = std::move(*same);
      return std::move(seen.schedule);
    };
    shrink(schedule, attempt, [&] { return runs < shrinkRuns && Time::now() < end; });
  }

  Machine& machine_;
  int const ranks_;
  std::function<void(RankContext&)> const& rankMain_;
  ExploreOptions const& options_;
  Checker checker_;
  CheckerOptions const checks_;
  Time::time_point const begun_;
  Time::time_point deadline_ = Time::time_point::max();
  StackPool hostStacks_;
  std::uint64_t runsEnded_ = 0;
  std::uint64_t undisturbed_ = 0, random_ = 0, pct_ = 0;  // schedules of each kind that were begun
  ExploreResult result_;
};

bool isAlike(AccessRecord const& a, AccessRecord const& b) {
  return a.what == b.what && a.host == b.host && a.kernel == b.kernel &&
         std::ranges::equal(a.stack, b.stack, [](SourceFrame const& x, SourceFrame const& y) {
           return x.line == y.line && x.function == y.function && x.file == y.file;
         });
}

// Compilers make several places of one line, as of a loop that they unroll: findings whose frames are the same are one.
void mergeAlike(std::vector<Finding>& findings) {
  std::vector<Finding> kept;
  for (auto& finding : findings) {
    auto const same = std::ranges::find_if(kept, [&](Finding const& other) {
      return other.kind == finding.kind && !finding.accesses.empty() && !finding.accesses.front().stack.empty() &&
             std::ranges::equal(other.accesses, finding.accesses, isAlike);
    });
    if (same == kept.end()) {
      kept.push_back(std::move(finding));
    } else {
      same->seen = std::max(same->seen, finding.seen);
    }
  }
  findings = std::move(kept);
}

void checkOptions(World const& world, std::function<void(RankContext&)> const& rankMain,
                  ExploreOptions const& options) {
  auto const refuse = [](std::string const& why) { throw Error(ErrorCode::invalidUsage, "sim::explore: " + why); };
  auto const atLeast = [&](char const* name, auto value, auto least) {
    if (value < least) refuse(fmt::format("{} is {}, it must be at least {}", name, value, least));
  };
  if (!rankMain) refuse("no function to run");
  atLeast("World::ranks", world.ranks, 1);
  atLeast("ExploreOptions::schedules", options.schedules, 0);
  if (options.schedules == 0 && options.timeLimit.count() == 0 && options.strategy != Strategy::exhaustive) {
    refuse("ExploreOptions::schedules is 0 and there is no timeLimit, so there is no end; set one of the two");
  }
  atLeast("ExploreOptions::priorityChanges", options.priorityChanges, 0);
  atLeast("ExploreOptions::maxFindings", options.maxFindings, 1);
  atLeast("ExploreOptions::faults", options.faults, 0);
  if (options.faults > 0 && options.strategy == Strategy::exhaustive) {
    refuse("faults are chosen by chance; set Strategy::random or pct, or ExploreOptions::faults to 0");
  }
  atLeast("ExploreOptions::stepLimit", options.stepLimit, 1u);
  atLeast("ExploreOptions::liveLockSteps", options.liveLockSteps, 1u);
  atLeast("ExploreOptions::timeLimit (ms)", options.timeLimit.count(), 0);
  if (!(options.preemption >= 0 && options.preemption <= 1)) {
    refuse(fmt::format("ExploreOptions::preemption is {}, the range is 0 to 1", options.preemption));
  }
}

}  // namespace

ExploreResult explore(World const& world, std::function<void(RankContext&)> const& rankMain,
                      ExploreOptions const& options) {
  checkOptions(world, rankMain, options);
  InstalledMachine const installed(world);
  auto result = Explorer(world, rankMain, options).explore();
  for (auto& finding : result.findings) describe(finding);
  mergeAlike(result.findings);
  return result;
}

}  // namespace mscclpp::sim
