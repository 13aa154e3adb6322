// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "sim/schedule/schedule.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "mscclpp/host/error.hpp"

namespace mscclpp::sim {
namespace {

constexpr std::string_view version = "v1";

// Of a key: 10 bits thread, 22 block, 20 kernel, 11 device, and on top one that tells threads from host code.
struct Field {
  unsigned shift;
  unsigned bits;
};
constexpr std::array<Field, 4> fields = {{{52, 11}, {32, 20}, {10, 22}, {0, 10}}};
constexpr TaskKey threadBit = TaskKey{1} << 63;

constexpr std::uint64_t maskOf(Field field) { return (std::uint64_t{1} << field.bits) - 1; }

std::string textOf(TaskKey key) {
  if (key == 0) return "s";
  if ((key & threadBit) == 0) return fmt::format("h{}", key - 1);
  auto const part = [key](std::size_t i) { return key >> fields[i].shift & maskOf(fields[i]); };
  return fmt::format("{}.{}.{}.{}", part(0), part(1), part(2), part(3));
}

constexpr std::array<std::pair<FaultKind, std::string_view>, 3> faultNames = {
    {{FaultKind::late, "late"}, {FaultKind::absent, "absent"}, {FaultKind::abort, "abort"}}};

std::string textOfFault(Decision const& fault) {
  auto const where = nameOfThread(fault.task);
  auto text = fmt::format("{}.{}", where.device, where.kernel);
  if (where.block != wholeGrid) text += fmt::format(".{}", where.block);
  for (auto const& [kind, name] : faultNames) {
    if (kind == fault.fault) text += fmt::format("={}", name);
  }
  return fault.fault == FaultKind::absent ? text : text + fmt::format("@{}", fault.choice);
}

std::optional<std::uint64_t> takeNumber(std::string_view& text) {
  std::uint64_t number = 0;
  auto const [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
  return number;
}

bool takeCharacter(std::string_view& text, char c) {
  if (text.empty() || text.front() != c) return false;
  text.remove_prefix(1);
  return true;
}

std::optional<TaskKey> takeTask(std::string_view& text) {
  if (takeCharacter(text, 's')) return 0;
  if (takeCharacter(text, 'h')) {
    auto const rank = takeNumber(text);
    if (!rank || *rank >= threadBit - 1) return std::nullopt;
    return *rank + 1;
  }
  TaskKey key = threadBit;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (i != 0 && !takeCharacter(text, '.')) return std::nullopt;
    auto const number = takeNumber(text);
    if (!number || *number > maskOf(fields[i])) return std::nullopt;
    key |= *number << fields[i].shift;
  }
  return key;
}

std::optional<Decision> parseFault(std::string_view text) {
  std::array<std::uint64_t, 3> parts = {0, 0, wholeGrid};
  std::size_t count = 0;
  do {
    auto const number = takeNumber(text);
    if (!number || *number > maskOf(fields[count])) return std::nullopt;
    parts[count++] = *number;
  } while (count < parts.size() && takeCharacter(text, '.'));
  if (count < 2 || !takeCharacter(text, '=')) return std::nullopt;
  Decision fault;
  fault.task =
      keyOfThread({static_cast<int>(parts[0]), static_cast<unsigned>(parts[1]), static_cast<unsigned>(parts[2]), 0});
  for (auto const& [kind, name] : faultNames) {
    if (text.substr(0, text.find('@')) == name) fault.fault = kind;
  }
  if (fault.fault == FaultKind::none) return std::nullopt;
  bool const ofGrid = count == 2;
  if (!ofGrid && fault.fault != FaultKind::late) return std::nullopt;
  text.remove_prefix(std::min(text.find('@'), text.size()));
  if (fault.fault != FaultKind::absent) {
    auto const number = takeCharacter(text, '@') ? takeNumber(text) : std::nullopt;
    if (!number || *number == 0) return std::nullopt;
    fault.choice = *number;
  }
  return text.empty() ? std::optional(fault) : std::nullopt;
}

std::optional<Decision> parseDecision(std::string_view text) {
  Decision decision;
  auto const task = takeTask(text);
  if (!task || !takeCharacter(text, '@')) return std::nullopt;
  auto const point = takeNumber(text);
  if (!point || *point > UINT32_MAX) return std::nullopt;
  decision.task = *task;
  decision.point = static_cast<std::uint32_t>(*point);
  decision.isValue = takeCharacter(text, '=');
  if (!decision.isValue && !takeCharacter(text, '>')) return std::nullopt;
  auto const choice = decision.isValue ? takeNumber(text) : takeTask(text);
  if (!choice || !text.empty()) return std::nullopt;
  decision.choice = *choice;
  return decision;
}

}  // namespace

TaskKey keyOfThread(ThreadName const& name) {
  std::array<std::uint64_t, 4> const parts = {static_cast<unsigned>(name.device), name.kernel, name.block, name.thread};
  TaskKey key = threadBit;
  for (std::size_t i = 0; i < fields.size(); ++i) key |= (parts[i] & maskOf(fields[i])) << fields[i].shift;
  return key;
}

ThreadName nameOfThread(TaskKey key) {
  auto const part = [key](std::size_t i) { return static_cast<unsigned>(key >> fields[i].shift & maskOf(fields[i])); };
  return {static_cast<int>(part(0)), part(1), part(2), part(3)};
}

TaskKey keyOfHost(int rank) { return static_cast<TaskKey>(rank) + 1; }

std::string toText(Schedule const& schedule) {
  std::string text(version);
  for (auto const& decision : schedule) {
    if (decision.fault != FaultKind::none) {
      text += "," + textOfFault(decision);
      continue;
    }
    fmt::format_to(std::back_inserter(text), ",{}@{}{}", textOf(decision.task), decision.point,
                   decision.isValue ? fmt::format("={}", decision.choice) : ">" + textOf(decision.choice));
  }
  return text;
}

Schedule parseSchedule(std::string_view text) {
  auto const all = text;
  auto const next = [&text] {
    auto const end = text.find(',');
    auto const entry = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    return entry;
  };
  if (next() != version) {
    throw Error(ErrorCode::invalidUsage,
                fmt::format("a schedule to replay begins with \"{}\", as Finding::schedule does; this one is \"{}\"",
                            version, all.substr(0, 40)));
  }
  Schedule schedule;
  while (!text.empty()) {
    auto const entry = next();
    auto decision = parseDecision(entry);
    if (!decision) decision = parseFault(entry);
    if (!decision) {
      throw Error(ErrorCode::invalidUsage,
                  fmt::format("entry {} of the schedule to replay is \"{}\"; it should look like 0.1.3.5@12>1.0.0.0, "
                              "0.1.3.5@13=1 or 1.3=late@2. Pass Finding::schedule as it was printed",
                              schedule.size() + 1, entry.substr(0, 80)));
    }
    schedule.push_back(*decision);
  }
  return schedule;
}

}  // namespace mscclpp::sim
