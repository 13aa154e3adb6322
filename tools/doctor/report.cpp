// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "doctor/report.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace mscclpp::doctor {
namespace {

std::string textOf(Section const& section) {
  auto text = fmt::format("{}\n", section.title);
  std::size_t widest = 0;
  for (auto const& [name, value] : section.lines) widest = std::max(widest, name.size());
  for (auto const& [name, value] : section.lines) text += fmt::format("  {:<{}}  {}\n", name, widest, value);
  std::vector<std::size_t> widths;
  for (auto const& row : section.table) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (auto const& row : section.table) {
    std::string line = " ";
    for (std::size_t i = 0; i < row.size(); ++i) line += fmt::format(" {:<{}}", row[i], widths[i]);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text + "\n";
}

}  // namespace

std::string_view nameOf(Weight weight) {
  switch (weight) {
    case Weight::broken:
      return "broken";
    case Weight::slow:
      return "slow";
    default:
      return "note";
  }
}

Section& Report::section(std::string title) { return sections_.emplace_back(Section{std::move(title)}); }

void Report::find(Weight weight, std::string what, std::string mend) {
  auto const behind = std::ranges::upper_bound(findings_, weight, {}, &Finding::weight);
  findings_.insert(behind, {weight, std::move(what), std::move(mend)});
}

bool Report::isBroken() const { return !findings_.empty() && findings_.front().weight == Weight::broken; }

std::string Report::text() const {
  std::string text;
  for (auto const& section : sections_) text += textOf(section);
  if (findings_.empty()) return text + "Nothing is wrong.\n";
  for (auto const& finding : findings_) {
    text += fmt::format("{}: {}\n", nameOf(finding.weight), finding.what);
    if (!finding.mend.empty()) text += fmt::format("  {}\n", finding.mend);
  }
  return text;
}

std::string Report::json() const {
  auto document = nlohmann::ordered_json::object();
  for (auto const& section : sections_) {
    auto& entry = document[section.title];
    entry = nlohmann::ordered_json::object();
    for (auto const& [name, value] : section.lines) entry[name] = value;
    for (std::size_t i = 1; i < section.table.size(); ++i) {
      auto row = nlohmann::ordered_json::object();
      for (std::size_t k = 0; k < section.table[i].size(); ++k) row[section.table[0][k]] = section.table[i][k];
      entry["rows"].push_back(row);
    }
  }
  auto& findings = document["findings"];
  findings = nlohmann::ordered_json::array();
  for (auto const& finding : findings_) {
    findings.push_back({{"weight", nameOf(finding.weight)}, {"what", finding.what}, {"mend", finding.mend}});
  }
  return document.dump(2) + "\n";
}

}  // namespace mscclpp::doctor
