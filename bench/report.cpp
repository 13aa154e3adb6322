// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

namespace mscclpp::bench {
namespace {

struct Column {
  std::string_view title;
  int width;  // negative: to the left
};

constexpr std::array columns{Column{"collective", -13}, Column{"size", 8},        Column{"type", -11},
                             Column{"op", -4},          Column{"algorithm", -20}, Column{"blocks x threads", 16},
                             Column{"time us", 10},     Column{"p99 us", 10},     Column{"algbw GB/s", 10},
                             Column{"busbw GB/s", 10},  Column{"wrong", 8},       Column{"vs best", 8}};

using Cells = std::array<std::string, columns.size()>;

// In GB/s; the simulator's need their leading digits.
std::string formatBandwidth(double bytesPerSecond) {
  double const value = bytesPerSecond * 1e-9;
  return value < 1 ? fmt::format("{:.2g}", value) : fmt::format("{:.2f}", value);
}

Cells cellsOf(Row const& row) {
  auto const& item = row.item;
  auto const shape = item.own() ? fmt::format("{} x {}", item.shape.blocks, item.shape.threads) : std::string("-");
  Cells cells{std::string(nameOf(item.collective)),
              formatBytes(item.bytes()),
              std::string(nameOf(item.type)),
              item.operation == ReduceOp::none ? "-" : std::string(nameOf(item.operation)),
              item.algorithm(),
              shape};
  if (!row.error.empty()) {
    for (std::size_t i = 6; i < cells.size(); ++i) cells[i] = "-";
    cells[10] = "failed";
    return cells;
  }
  cells[6] = fmt::format("{:.2f}", row.median * 1e6);
  cells[7] = fmt::format("{:.2f}", row.p99 * 1e6);
  cells[8] = formatBandwidth(row.algorithmBandwidth);
  cells[9] = formatBandwidth(row.busBandwidth);
  cells[10] = row.wrong ? fmt::format("{}", *row.wrong) : "-";
  auto const best = bestPeer(row);
  cells[11] = best ? fmt::format("{:.2f}", best->second) : "-";
  return cells;
}

template <class Text>
std::string layOut(Text const& cellAt, std::size_t count) {
  std::string line;
  for (std::size_t i = 0; i < count; ++i) {
    int const width = columns[i].width;
    if (i != 0) line += "  ";
    line += width < 0 ? fmt::format("{:<{}}", cellAt(i), -width) : fmt::format("{:>{}}", cellAt(i), width);
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

std::string Report::heading() const {
  std::string text;
  for (auto const& [what, value] : facts) text += fmt::format("{}: {}\n", what, value);
  if (!note.empty()) text += note + "\n";
  return text + "\n" + layOut([](std::size_t i) { return columns[i].title; }, columns.size() - (peers ? 0 : 1));
}

std::string Report::line(Row const& row) const {
  auto const cells = cellsOf(row);
  return layOut([&](std::size_t i) { return std::string_view(cells[i]); }, columns.size() - (peers ? 0 : 1));
}

std::string Report::json() const {
  nlohmann::ordered_json document;
  for (auto const& [what, value] : facts) document["context"][what] = value;
  for (auto const& [what, value] : sitting) document["context"][what] = value;
  if (!note.empty()) document["context"]["note"] = note;
  document["rows"] = nlohmann::ordered_json::array();
  for (auto const& row : rows) {
    nlohmann::ordered_json entry;
    entry["name"] = row.item.name();
    entry["collective"] = nameOf(row.item.collective);
    entry["algorithm"] = row.item.algorithm();
    if (!row.item.own()) entry["peer"] = nameOf(row.item.contender);
    entry["dtype"] = nameOf(row.item.type);
    entry["op"] = nameOf(row.item.operation);
    entry["bytes"] = row.item.bytes();
    entry["count"] = row.item.count;
    entry["ranks"] = ranks;
    entry["in_place"] = row.item.inPlace;
    if (row.item.own()) {
      entry["blocks"] = row.item.shape.blocks;
      entry["threads"] = row.item.shape.threads;
      entry["overlap"] = row.item.overlap;
    }
    entry["ops_per_graph"] = row.item.operations;
    entry["replays"] = row.item.replays;
    if (row.error.empty()) {
      entry["time_us"] = row.median * 1e6;
      entry["p99_us"] = row.p99 * 1e6;
      entry["algbw_gbps"] = row.algorithmBandwidth * 1e-9;
      entry["busbw_gbps"] = row.busBandwidth * 1e-9;
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
  std::size_t const count = columns.size() - (peers ? 0 : 1);
  std::string text = "| | |\n| --- | --- |\n";
  for (auto const& [what, value] : facts) text += fmt::format("| {} | {} |\n", what, value);
  if (!note.empty()) text += "\n" + note + "\n";
  text += "\n|";
  for (std::size_t i = 0; i < count; ++i) text += fmt::format(" {} |", columns[i].title);
  text += "\n|";
  for (std::size_t i = 0; i < count; ++i) text += columns[i].width < 0 ? " --- |" : " ---: |";
  text += "\n";
  for (auto const& row : rows) {
    auto const cells = cellsOf(row);
    text += "|";
    for (std::size_t i = 0; i < count; ++i) text += fmt::format(" {} |", cells[i]);
    text += "\n";
  }
  return text;
}

bool Report::bad() const {
  return std::any_of(rows.begin(), rows.end(),
                     [](Row const& row) { return !row.error.empty() || row.wrong.value_or(0) != 0; });
}

}  // namespace mscclpp::bench
