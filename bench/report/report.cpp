// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "report/report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

namespace mscclpp::bench {
namespace {

struct Column {
  std::string_view title;
  int width;                // negative: to the left
  std::string_view ofCall;  // the title where the processor's time of a call is measured, if another
};

constexpr std::array columns{Column{"collective", -13, {}},
                             Column{"size", 8, {}},
                             Column{"type", -11, {}},
                             Column{"op", -4, {}},
                             Column{"algorithm", -20, {}},
                             Column{"blocks x threads", 16, {}},
                             Column{"launch", -12, {}},
                             Column{"time us", 10, {}},
                             Column{"p99 us", 10, {}},
                             Column{"algbw GB/s", 10, "bare us"},
                             Column{"busbw GB/s", 10, "bare p99"},
                             Column{"wrong", 8, {}},
                             Column{"vs best", 8, {}}};

// In GB/s; the simulator's need their leading digits.
std::string formatBandwidth(double bytesPerSecond) {
  double const value = bytesPerSecond * 1e-9;
  return value < 1 ? fmt::format("{:.2g}", value) : fmt::format("{:.2f}", value);
}

std::string formatTime(double seconds) { return seconds > 0 ? fmt::format("{:.2f}", seconds * 1e6) : "-"; }

template <class Cells>
std::string layOut(Cells const& cells) {
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    int const width = columns[i].width;
    if (i != 0) line += "  ";
    line += width < 0 ? fmt::format("{:<{}}", cells[i], -width) : fmt::format("{:>{}}", cells[i], width);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

}  // namespace

double quantile(std::vector<double> samples, double share) {
  if (samples.empty()) return 0;
  std::sort(samples.begin(), samples.end());
  auto const rank = std::ceil(share * static_cast<double>(samples.size()));
  auto const index = static_cast<std::size_t>(std::max(rank, 1.0)) - 1;
  return samples[std::min(index, samples.size() - 1)];
}

Row makeRow(Case const& item, CaseResult const& result, int ranks, std::map<Contender, double> const& peers) {
  Row row;
  row.item = item;
  row.median = quantile(result.seconds, 0.5);
  row.p99 = quantile(result.seconds, 0.99);
  row.algorithmBandwidth = row.median > 0 ? static_cast<double>(item.bytes()) / row.median : 0;
  row.busBandwidth = row.algorithmBandwidth * busFactor(item.collective, ranks);
  row.bare = quantile(result.bare, 0.5);
  row.bareP99 = quantile(result.bare, 0.99);
  row.wrong = result.wrong;
  if (item.own() && row.median > 0) {
    for (auto const& [peer, median] : peers) row.over[peer] = median / row.median;
  }
  return row;
}

std::optional<std::pair<Contender, double>> bestPeer(Row const& row) {
  auto const best = std::min_element(row.over.begin(), row.over.end(),
                                     [](auto const& a, auto const& b) { return a.second < b.second; });
  return best == row.over.end() ? std::nullopt : std::optional(std::pair(best->first, best->second));
}

std::vector<std::string_view> Report::titles() const {
  std::vector<std::string_view> titles;
  for (auto const& column : columns) {
    bool const other = launch == LaunchMode::host && !column.ofCall.empty();
    titles.push_back(other ? column.ofCall : column.title);
  }
  if (!peers) titles.pop_back();
  return titles;
}

std::vector<std::string> Report::cellsOf(Row const& row) const {
  auto const& item = row.item;
  std::vector<std::string> cells{
      std::string(item.called()),
      formatBytes(item.bytes()),
      std::string(nameOf(item.type)),
      item.operation == ReduceOp::none ? "-" : std::string(nameOf(item.operation)),
      item.algorithm(),
      item.launch ? fmt::format("{} x {}", item.launch->shape.blocks, item.launch->shape.threads) : "-",
      fmt::format("{}{}", nameOf(launch), shared ? "/shared" : "")};
  if (row.planned || !row.error.empty()) {
    cells.resize(columns.size(), "-");
    if (!row.planned) cells[columns.size() - 2] = "failed";
  } else {
    bool const ofCall = launch == LaunchMode::host;
    auto const best = bestPeer(row);
    cells.insert(cells.end(),
                 {formatTime(row.median), formatTime(row.p99),
                  ofCall ? formatTime(row.bare) : formatBandwidth(row.algorithmBandwidth),
                  ofCall ? formatTime(row.bareP99) : formatBandwidth(row.busBandwidth),
                  row.wrong ? fmt::format("{}", *row.wrong) : "-", best ? fmt::format("{:.2f}", best->second) : "-"});
  }
  if (!peers) cells.pop_back();
  return cells;
}

std::string Report::heading() const {
  std::string text;
  for (auto const& [what, value] : facts) text += fmt::format("{}: {}\n", what, value);
  if (!note.empty()) text += note + "\n";
  return text + "\n" + layOut(titles());
}

std::string Report::line(Row const& row) const { return layOut(cellsOf(row)); }

std::string Report::json() const {
  nlohmann::ordered_json document;
  for (auto const& [what, value] : facts) document["context"][what] = value;
  for (auto const& [what, value] : sitting) document["context"][what] = value;
  if (!note.empty()) document["context"]["note"] = note;
  document["rows"] = nlohmann::ordered_json::array();
  for (auto const& row : rows) {
    nlohmann::ordered_json entry;
    entry["name"] = row.item.name();
    entry["collective"] = row.item.called();
    entry["algorithm"] = row.item.algorithm();
    if (!row.item.own()) entry["peer"] = nameOf(row.item.contender);
    entry["dtype"] = nameOf(row.item.type);
    entry["op"] = nameOf(row.item.operation);
    entry["bytes"] = row.item.bytes();
    entry["count"] = row.item.count;
    entry["ranks"] = ranks;
    entry["in_place"] = row.item.inPlace;
    entry["launch"] = nameOf(launch);
    entry["shared"] = shared;
    if (row.item.launch) {
      entry["blocks"] = row.item.launch->shape.blocks;
      entry["threads"] = row.item.launch->shape.threads;
      entry["overlap"] = row.item.overlap;
    }
    entry["ops_per_graph"] = row.item.operations;
    entry["replays"] = row.item.replays;
    if (row.planned) {
      entry["planned"] = true;
    } else if (row.error.empty()) {
      entry["time_us"] = row.median * 1e6;
      entry["p99_us"] = row.p99 * 1e6;
      if (launch != LaunchMode::host) {
        entry["algbw_gbps"] = row.algorithmBandwidth * 1e-9;
        entry["busbw_gbps"] = row.busBandwidth * 1e-9;
      }
      if (row.bare > 0) {
        entry["bare_us"] = row.bare * 1e6;
        entry["bare_p99_us"] = row.bareP99 * 1e6;
      }
      if (row.wrong) entry["wrong"] = *row.wrong;
      for (auto const& [peer, ratio] : row.over) entry["vs"][std::string(nameOf(peer))] = ratio;
      if (auto const best = bestPeer(row)) {
        entry["best_peer"] = nameOf(best->first);
        entry["vs_best"] = best->second;
      }
    } else {
      entry["error"] = row.error;
    }
    document["rows"].push_back(entry);
  }
  return document.dump(2) + "\n";
}

std::string Report::markdown() const {
  std::string text = "| | |\n| --- | --- |\n";
  for (auto const& [what, value] : facts) text += fmt::format("| {} | {} |\n", what, value);
  if (!note.empty()) text += "\n" + note + "\n";
  auto const shown = titles();
  text += fmt::format("\n| {} |\n|", fmt::join(shown, " | "));
  for (std::size_t i = 0; i < shown.size(); ++i) text += columns[i].width < 0 ? " --- |" : " ---: |";
  text += "\n";
  for (auto const& row : rows) text += fmt::format("| {} |\n", fmt::join(cellsOf(row), " | "));
  return text;
}

bool Report::bad() const {
  return std::any_of(rows.begin(), rows.end(),
                     [](Row const& row) { return !row.error.empty() || row.wrong.value_or(0) != 0; });
}

}  // namespace mscclpp::bench
