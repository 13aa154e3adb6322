// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "sim/explore/liveness.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <exception>
#include <memory>
#include <set>
#include <span>
#include <string>

#include <cxxabi.h>
#include <fmt/format.h>

#include "mscclpp/host/error.hpp"
#include "sim/machine/waiting.hpp"

namespace mscclpp::sim {
namespace {

constexpr std::size_t maxRecords = 64;

// A place's text without its numbers.
std::string withoutNumbers(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    bool const digit = std::isdigit(static_cast<unsigned char>(text[i])) != 0;
    if (!digit) {
      result += text[i];
      continue;
    }
    result += '#';
    while (i + 1 < text.size() && std::isxdigit(static_cast<unsigned char>(text[i + 1])) != 0) ++i;
  }
  return result;
}

std::uint64_t keyOf(FindingKind kind, std::set<std::string> const& places) {
  std::uint64_t hash = 0xcbf29ce484222325u ^ static_cast<std::uint64_t>(kind);
  for (auto const& place : places) {
    for (char const c : place) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    hash = (hash ^ 0xff) * 0x100000001b3u;
  }
  return hash;
}

AccessRecord recordOf(WaitingGroup const& group) {
  AccessRecord record;
  record.rank = group.device;
  record.host = group.host;
  record.kernel = group.kernel;
  record.what = group.what;
  if (!group.blocks.empty()) {
    record.block = group.blocks.front();
    record.thread = group.threads.front();
    if (group.blocks.size() > 1 || group.threads.size() > 1) {
      record.what += fmt::format(" ({})", threadsOf(group));
    }
  }
  if (group.first != nullptr) record.calls = group.first->calls();
  return record;
}

// One record for what stands at one place on several ranks and waits for the same but for its numbers: the first
// rank's, with how many there are of the others.
std::vector<AccessRecord> recordsOf(std::vector<WaitingGroup> const& groups) {
  struct Place {
    AccessRecord record;
    std::string what;  // without numbers
    std::size_t alike = 0;
    std::set<unsigned> ranks;
  };
  std::vector<Place> places;
  for (auto const& group : groups) {
    Place place{recordOf(group), withoutNumbers(group.what), 0, {}};
    auto const& record = place.record;
    auto const same = std::ranges::find_if(places, [&](Place const& p) {
      return p.record.rank != record.rank && p.what == place.what && p.record.host == record.host &&
             p.record.kernel == record.kernel && p.record.calls == record.calls;
    });
    if (same != places.end()) {
      ++same->alike;
      same->ranks.insert(static_cast<unsigned>(group.device));
    } else if (places.size() < maxRecords) {
      places.push_back(std::move(place));
    }
  }
  std::vector<AccessRecord> records;
  for (auto& place : places) {
    if (place.alike != 0) {
      place.record.what += fmt::format("; and {} more here, of {}", place.alike,
                                       plural("rank", {place.ranks.begin(), place.ranks.end()}));
    }
    records.push_back(std::move(place.record));
  }
  return records;
}

// Those that say most come first: waits of the library, then barriers, then host code.
int rankOf(WaitingGroup const& group) {
  if (group.kind == layout::WaitKind::hostProxy) return 3;  // it waits for whoever waits for something else
  if (group.kind != layout::WaitKind::none) return 0;
  if (group.blocks.empty() && !group.host) return 1;
  return group.host ? 3 : 2;
}

Finding findingOfWaits(FindingKind kind, std::vector<WaitingGroup> groups, std::string const& how) {
  std::ranges::stable_sort(groups, {}, rankOf);
  Finding finding;
  finding.kind = kind;
  std::set<std::string> places;
  int const mostTelling = groups.empty() ? 0 : rankOf(groups.front());
  for (auto const& group : groups) {
    if (rankOf(group) == mostTelling) places.insert(group.kernel + ": " + withoutNumbers(group.what));
  }
  finding.accesses = recordsOf(groups);
  finding.key = keyOf(kind, places);
  finding.summary = how;
  if (groups.empty()) return finding;
  auto const& first = groups.front();
  finding.summary += fmt::format(": rank {}: {}", first.device, toString(first));
  if (groups.size() > 1) finding.summary += fmt::format(", and {} more", groups.size() - 1);
  return finding;
}

Finding findingOfStuck(std::vector<WaitingGroup> groups) {
  bool const grid = std::ranges::any_of(
      groups, [](WaitingGroup const& g) { return g.kind == layout::WaitKind::gridBarrier && g.missesBlocks; });
  if (!grid) {
    auto finding = findingOfWaits(FindingKind::deadLock, std::move(groups), "nobody can go on");
    finding.explanation =
        "Each of these waits for something that nobody will do any more: a signal that was not sent, went elsewhere or "
        "was already counted, or a barrier that not all of its threads reach. Look for who should have ended the first "
        "wait, and where that thread is instead";
    return finding;
  }
  std::erase_if(groups,
                [](WaitingGroup const& g) { return g.kind != layout::WaitKind::gridBarrier && !g.blocks.empty(); });
  auto finding = findingOfWaits(FindingKind::gridNotResident, std::move(groups),
                                "blocks wait for others of their grid that have not begun");
  finding.explanation =
      "A barrier of the whole grid needs all blocks on the device at the same time, and it has no room for them. "
      "Launch "
      "fewer or smaller blocks, or end what else runs there first";
  return finding;
}

Finding findingOfCut(Cut why) {
  auto& machine = Machine::instance();
  auto groups = waitingGroups(machine);
  if (why == Cut::gridNotResident) {
    auto finding = findingOfStuck(groups);
    if (finding.kind == FindingKind::gridNotResident) return finding;
    std::erase_if(groups, [](WaitingGroup const& g) { return g.kind != layout::WaitKind::gridBarrier; });
    finding = findingOfWaits(FindingKind::gridNotResident, std::move(groups),
                             "a grid that the device can never hold waits for all of its blocks");
    return finding;
  }
  bool const liveLock = why == Cut::liveLock;
  auto finding =
      findingOfWaits(liveLock ? FindingKind::liveLock : FindingKind::stepLimit, std::move(groups),
                     liveLock ? "threads run, and nothing changes any more"
                              : fmt::format("cut off after {} memory steps", machine.scheduler().memorySteps()));
  finding.explanation =
      liveLock ? "For ExploreOptions::liveLockSteps steps no access has changed a value and no thread has ended. The "
                 "threads below spin on a condition that nobody makes true"
               : "The schedule has reached ExploreOptions::stepLimit. Raise it, or make the program smaller";
  return finding;
}

AccessRecord recordOf(KernelFailure const& failure) {
  AccessRecord record;
  record.what = failure.text;
  record.rank = failure.device;
  record.kernel = failure.kernel;
  record.block = failure.block;
  record.thread = failure.thread;
  record.calls = failure.calls;
  return record;
}

Finding findingOf(KernelFailure const& failure) {
  Finding finding;
  finding.kind = FindingKind::kernelFailure;
  finding.summary = fmt::format("kernel \"{}\" failed on rank {}: {}", failure.kernel, failure.device, failure.text);
  finding.explanation = "The kernel has ended early, and so has what follows it in its stream";
  finding.key = keyOf(finding.kind, {failure.kernel, withoutNumbers(failure.text)});
  if (failure.byThread) finding.accesses.push_back(recordOf(failure));
  return finding;
}

std::string textOf(std::exception_ptr const& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (std::exception const& e) {
    return e.what();
  } catch (...) {
    auto const* type = abi::__cxa_current_exception_type();
    int status = 0;
    std::unique_ptr<char, void (*)(void*)> const name(
        type == nullptr ? nullptr : abi::__cxa_demangle(type->name(), nullptr, nullptr, &status), std::free);
    return fmt::format("an exception of type {}, as test frameworks throw when an assertion fails",
                       name == nullptr ? "unknown" : name.get());
  }
}

// What a rank may throw that a fault of the schedule has struck, or its peers.
bool isReport(std::exception_ptr const& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (Error const& e) {
    using enum ErrorCode;
    return e.code() == timeout || e.code() == aborted || e.code() == remoteError || e.code() == deviceError;
  } catch (...) {
    return false;
  }
}

bool isDeviceError(std::exception_ptr const& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (Error const& e) {
    return e.code() == ErrorCode::deviceError;
  } catch (...) {
    return false;
  }
}

// The first rank says what went wrong; what the others have thrown and other consequences stand under it.
Finding findingOf(std::span<HostTask const* const> failed, std::vector<AccessRecord> consequences) {
  Finding finding;
  finding.kind = FindingKind::hostFailure;
  auto const text = textOf(failed.front()->failure());
  finding.summary = fmt::format("rank {}: {}", failed.front()->rank(), text);
  finding.explanation =
      "The rank's host code has thrown this: a check of its own that failed, or an error of the library";
  finding.key = keyOf(finding.kind, {withoutNumbers(text)});
  for (auto const* const task : failed) {
    AccessRecord record;
    record.what = "threw: " + textOf(task->failure());
    record.rank = task->rank();
    record.host = true;
    finding.accesses.push_back(std::move(record));
  }
  std::ranges::move(consequences, std::back_inserter(finding.accesses));
  if (finding.accesses.size() > maxRecords) finding.accesses.resize(maxRecords);
  if (finding.accesses.size() > 1) finding.explanation += ". What has failed after it stands under it";
  return finding;
}

}  // namespace

std::vector<Finding> findingsOfEnd(RunEnd end, RankRun const& run) {
  auto& machine = Machine::instance();
  std::vector<Finding> findings;
  auto failed = run.failedRanks();
  auto const* const faults = machine.scheduler().faults();
  bool const struck = faults != nullptr && faults->struck();
  if (struck) std::erase_if(failed, [](HostTask const* task) { return isReport(task->failure()); });
  // What follows from a failed kernel, or from a rank that is gone, is no finding of its own.
  std::vector<AccessRecord> consequences;
  for (auto const& failure : run.kernelFailures()) {
    if (failure.afterRank && !failed.empty() && !struck) {
      consequences.push_back(recordOf(failure));
    } else {
      findings.push_back(findingOf(failure));
    }
  }
  if (struck) {
    // With faults ranks fail by themselves.
    for (auto const* const& task : failed) findings.push_back(findingOf({&task, 1}, {}));
  } else if (!failed.empty() && (findings.empty() || !isDeviceError(failed.front()->failure()))) {
    findings.push_back(findingOf(failed, std::move(consequences)));
  }
  if (!findings.empty()) return findings;
  if (end == RunEnd::stuck) findings.push_back(findingOfStuck(waitingGroups(machine)));
  auto const why = machine.scheduler().whyCut();
  if (end == RunEnd::cut && why != Cut::wasSeen) findings.push_back(findingOfCut(why));
  return findings;
}

Finding nothingCheckedFinding() {
  Finding finding;
  finding.kind = FindingKind::nothingChecked;
  finding.summary = "no access to memory of the simulated machine was seen, so nothing was checked";
  finding.explanation =
      "Plain accesses are seen in code that is compiled with the compiler's hooks: build the kernels with "
      "mscclpp_add_check(), or link mscclpp::check in place of mscclpp::sim. A program that shall touch no GPU memory "
      "sets ExploreOptions::findRaces to false, or takes --no-races";
  finding.key = keyOf(finding.kind, {});
  return finding;
}

Finding leakFinding(std::size_t allocations, std::size_t streams) {
  Finding finding;
  finding.kind = FindingKind::hostFailure;
  finding.summary =
      fmt::format("the ranks' code leaves {} allocations and {} streams behind in each schedule", allocations, streams);
  finding.explanation =
      "Each schedule runs the ranks' code anew: it must free what it takes, also when an exception ends it early";
  finding.key = keyOf(finding.kind, {"leak"});
  return finding;
}

}  // namespace mscclpp::sim
