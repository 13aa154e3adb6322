// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs a program under many schedules of the simulated machine and reports what can go wrong: races, dead-locks, lost
// signals, wrong results. For tests, in any framework:
//
//   auto const result = sim::explore({.ranks = 4}, [](sim::RankContext& rank) { ...host code of one rank... });
//   CHECK_MESSAGE(result.ok(), sim::toText(result));
//
// Races of plain accesses are seen in code that links mscclpp::check, which compiles it with the compiler's hooks for
// race detection; without it only the library's ordered accesses are. Memory is that of the PTX memory model: a relaxed
// load may see an old value, a store may become visible late, until something orders them.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "mscclpp/sim/finding.hpp"
#include "mscclpp/sim/run.hpp"
#include "mscclpp/sim/runtime.hpp"

namespace mscclpp::sim {

// So many ranks, each with a device of its own.
struct World {
  int ranks = 2;
  MachineOptions machine = {};  // `devices` is raised to `ranks`
};

// How the next schedule is chosen.
enum class Strategy : std::uint8_t {
  mixed,       // random and pct in turn: odd seeds and even ones
  random,      // who runs next, and where a thread is interrupted, by chance
  pct,         // random priorities that change at a few random steps; finds faults of that depth with known probability
  exhaustive,  // every schedule that differs in the order of dependent steps; for small programs
};

struct ExploreOptions {
  Strategy strategy = Strategy::mixed;
  int schedules = 100;  // at most, beside the undisturbed one that pct and faults begin with; 0: the time limit decides
  std::uint64_t seed = 1;  // of the first schedule; each next one takes the next number
  double preemption = 0.05;
  int priorityChanges = 3;                  // pct
  int preemptionBound = -1;                 // exhaustive: switches away from a thread that could go on; -1: no bound
  bool findRaces = true;                    // accesses are checked against each other
  bool weakMemory = true;                   // relaxed accesses may be seen late and out of order
  bool findLostSignals = true;              // a release that nobody saw by the end of the run is a finding
  int maxFindings = 20;                     // exploring ends with so many different ones
  bool stopAtFirst = false;                 // exploring ends with the first schedule that has a finding
  bool shrink = true;                       // look for a short schedule of each finding
  int faults = 0;                           // at most so many in a schedule; see Faults below
  std::uint64_t stepLimit = 50'000'000;     // memory steps of one schedule
  std::uint64_t liveLockSteps = 2'000'000;  // memory steps in which nothing changed
  std::chrono::milliseconds timeLimit{0};   // of the whole exploration; 0: none
  std::string replay = {};                  // Finding::schedule: run just this one
};

// What was found, and how much was looked at, in all schedules together.
struct ExploreResult {
  std::vector<Finding> findings;  // different ones, in the order found
  std::uint64_t schedules = 0;
  std::uint64_t switches = 0;
  std::uint64_t memorySteps = 0;
  std::uint64_t checkedAccesses = 0;    // plain and ordered
  std::uint64_t forgottenAccesses = 0;  // dropped from a full history; races with them may have been missed
  bool complete = false;                // exhaustive: every schedule was run
  double seconds = 0;
  std::string explored;  // which schedules these were, in words
  bool ok() const { return findings.empty(); }
};

// Faults. With ExploreOptions::faults each schedule chooses, from its seed, one to so many launches of kernels, of
// those that the undisturbed run makes, at which a rank is
//   late    its kernel, or one block of it, begins only once one to three waits of kernels have been given up for their
//           limit, or nobody else can go on;
//   absent  the launch throws deviceError, and the kernel does not run;
//   aborted its watch's abort word is raised at one of the looks that the kernel's waits take.
// Once a fault has struck, waits end by their limits when nobody can go on, those of kernels and of the host, and a
// rank reports by an Error of code timeout, aborted, remoteError or deviceError: that is no finding, whether it leaves
// `rankMain` or is caught there. So a program compares its results as ever, in each call that has thrown nothing, and
// throws something else where one is wrong. Signals that nobody looked at are no finding then; all else is. Memory that
// such an Error frees on its way stays until the end of the schedule; otherwise free it only when all ranks' kernels
// have ended. A schedule that no fault strikes is one without the option.
//
// `rankMain` runs once per rank and schedule, as in sim::run, and must build everything it uses anew. An exception that
// leaves it is a finding; a finding is never thrown. Throws invalidUsage for options out of range.
ExploreResult explore(World const& world, std::function<void(RankContext&)> const& rankMain,
                      ExploreOptions const& options = {});

// Readable report; one document of JSON; one of SARIF 2.1.0, for the code views of CI services, which want files below
// `sourceRoot` named from there.
std::string toText(ExploreResult const& result);
std::string toJson(ExploreResult const& result);
std::string toSarif(ExploreResult const& result, std::string const& sourceRoot = {});

}  // namespace mscclpp::sim
