// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The report that a person reads, and the names of the findings.
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>

#include <fmt/format.h>

#include "mscclpp/sim/explore.hpp"
#include "sim/report/frames.hpp"

namespace mscclpp::sim {
namespace {

constexpr std::size_t placesShown = 8;      // of one finding
constexpr std::size_t scheduleShown = 400;  // characters; a longer one is for programs, and the seed is enough

constexpr std::size_t maxFrames = 12;  // of a stack

std::string plural(std::uint64_t count, std::string_view noun, std::string_view ending = "s") {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : ending);
}

// As seen from the current folder, where it lies below it.
std::string placeText(SourceFrame const& frame) {
  if (frame.file.empty()) return {};
  std::error_code error;
  auto const here = std::filesystem::current_path(error).string() + "/";
  auto const file = frame.file.starts_with(here) ? frame.file.substr(here.size()) : frame.file;
  return frame.line > 0 ? fmt::format("{}:{}", file, frame.line) : file;
}

std::string frameText(SourceFrame const& frame) {
  auto const function = shortName(frame.function);
  auto const place = placeText(frame);
  return fmt::format("{}{}{}", function, function.empty() || place.empty() ? "" : "  ", place);
}

// Every line of `text`, indented and broken between words.
void addLines(std::string& out, std::string_view text, std::string_view indent) {
  constexpr std::size_t width = 110;
  while (!text.empty()) {
    auto end = std::min(text.find('\n'), text.size());
    if (auto const blank = text.rfind(' ', width); end > width && blank != std::string_view::npos) end = blank;
    fmt::format_to(std::back_inserter(out), "{}{}\n", indent, text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

void addAccess(std::string& out, AccessRecord const& access) {
  auto write = std::back_inserter(out);
  fmt::format_to(write, "\n    {}: {}\n", whoIs(access), access.what);
  if (!access.memory.empty()) fmt::format_to(write, "      {}\n", access.memory);
  std::size_t shown = 0;
  for (auto const& frame : access.stack) {
    if (shown == maxFrames) {
      fmt::format_to(write, "      and {} further out\n", plural(access.stack.size() - shown, "frame"));
      break;
    }
    fmt::format_to(write, "      {} {}\n", shown == 0 ? "at" : "by", frameText(frame));
    ++shown;
  }
  auto const* place = placeOf(access);
  auto const* caller = callerOf(access);
  if (caller != nullptr && caller != place) {
    fmt::format_to(write, "      called from {}\n", frameText(*caller));
  }
}

void addFinding(std::string& out, Finding const& finding, std::size_t number) {
  auto write = std::back_inserter(out);
  fmt::format_to(write, "\n[{}] {}: {}\n", number, nameOf(finding.kind), finding.summary);
  auto const shown = std::min(finding.accesses.size(), placesShown);
  for (std::size_t i = 0; i < shown; ++i) addAccess(out, finding.accesses[i]);
  if (shown < finding.accesses.size()) {
    fmt::format_to(write, "\n    and {} places more\n", finding.accesses.size() - shown);
  }
  if (!finding.explanation.empty()) {
    out += '\n';
    addLines(out, finding.explanation, "    ");
  }
  if (!finding.timeline.empty()) {
    out += "\n    The last steps:\n";
    for (auto const& line : finding.timeline) fmt::format_to(write, "      {}\n", line);
  }
  for (std::size_t i = 0; i < finding.faults.size(); ++i) {
    out += i == 0 ? "\n    Faults of the schedule:\n" : "";
    addLines(out, finding.faults[i], "      ");
  }
  fmt::format_to(write, "\n    Shown by {}.", plural(finding.seen, "schedule"));
  if (!finding.schedule.empty() && finding.schedule.size() <= scheduleShown) {
    fmt::format_to(write, " To see it again: ExploreOptions::replay or --replay \"{}\" (found with seed {}).",
                   finding.schedule, finding.seed);
  } else if (finding.seed != 0) {
    fmt::format_to(write, " To see it again: seed {}.", finding.seed);
  }
  out += '\n';
}

void addTotals(std::string& out, ExploreResult const& result) {
  auto write = std::back_inserter(out);
  out += result.ok() ? "nothing found" : plural(result.findings.size(), "finding");
  if (!result.ok()) {
    std::map<FindingKind, std::uint64_t> kinds;
    for (auto const& finding : result.findings) ++kinds[finding.kind];
    char const* separator = " (";
    for (auto const& [kind, count] : kinds) {
      fmt::format_to(write, "{}{} {}", separator, count, nameOf(kind));
      separator = ", ";
    }
    out += ')';
  }
  fmt::format_to(write, " in {}{}, {:.2f} s, {} checked\n", plural(result.schedules, "schedule"),
                 result.complete ? " (all that differ)" : "", result.seconds,
                 plural(result.checkedAccesses, "access", "es"));
  if (!result.explored.empty()) fmt::format_to(write, "explored: {}\n", result.explored);
  if (result.forgottenAccesses > 0) {
    fmt::format_to(write, "dropped from full histories: {}; races with them may have been missed\n",
                   plural(result.forgottenAccesses, "access", "es"));
  }
}

}  // namespace

std::string_view nameOf(FindingKind kind) {
  switch (kind) {
    case FindingKind::race:
      return "race";
    case FindingKind::narrowScope:
      return "narrowScope";
    case FindingKind::missingProxyFence:
      return "missingProxyFence";
    case FindingKind::tornLine:
      return "tornLine";
    case FindingKind::deadLock:
      return "deadLock";
    case FindingKind::liveLock:
      return "liveLock";
    case FindingKind::gridNotResident:
      return "gridNotResident";
    case FindingKind::lostSignal:
      return "lostSignal";
    case FindingKind::repeatedEpoch:
      return "repeatedEpoch";
    case FindingKind::bytesInFlight:
      return "bytesInFlight";
    case FindingKind::kernelFailure:
      return "kernelFailure";
    case FindingKind::hostFailure:
      return "hostFailure";
    case FindingKind::stepLimit:
      return "stepLimit";
    case FindingKind::nothingChecked:
      return "nothingChecked";
  }
  return "unknown";
}

std::string toText(ExploreResult const& result) {
  std::string text;
  addTotals(text, result);
  for (std::size_t i = 0; i < result.findings.size(); ++i) addFinding(text, result.findings[i], i + 1);
  return text;
}

}  // namespace mscclpp::sim
