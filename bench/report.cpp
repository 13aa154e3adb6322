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

constexpr std::array columns{Column{"size", 8},
                             Column{"type", -11},
                             Column{"op", -4},
                             Column{"algorithm", -18},
                             Column{"blocks x threads", 16},
                             Column{"time us", 10},
                             Column{"p99 us", 10},
                             Column{"algbw GB/s", 10},
                             Column{"busbw GB/s", 10},
                             Column{"wrong", 8},
                             Column{"vs nccl", 8}};

using Cells = std::array<std::string, columns.size()>;

// In GB/s; the simulator's need their leading digits.
std::string formatBandwidth(double bytesPerSecond) {
  double const value = bytesPerSecond * 1e-9;
  return value < 1 ? fmt::format("{:.2g}", value) : fmt::format("{:.2f}", value);
}

Cells cellsOf(Row const& row) {
  auto const shape =
      row.item.nccl ? std::string("-") : fmt::format("{} x {}", row.item.choice.blocks, row.item.choice.threads);
  Cells cells{formatBytes(row.item.bytes()), std::string(name(row.item.type)), std::string(name(row.item.operation)),
              row.item.algorithm(), shape};
  if (!row.error.empty()) {
    for (std::size_t i = 5; i < cells.size(); ++i) cells[i] = "-";
    cells[9] = "failed";
    return cells;
  }
  cells[5] = fmt::format("{:.2f}", row.median * 1e6);
  cells[6] = fmt::format("{:.2f}", row.p99 * 1e6);
  cells[7] = formatBandwidth(row.algorithmBandwidth);
  cells[8] = formatBandwidth(row.busBandwidth);
  cells[9] = row.wrong ? fmt::format("{}", *row.wrong) : "-";
  cells[10] = row.overNccl ? fmt::format("{:.2f}", *row.overNccl) : "-";
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

Row makeRow(Case const& item, CaseResult const& result, int ranks, std::optional<double> ncclMedian) {
  Row row;
  row.item = item;
  row.median = quantile(result.seconds, 0.5);
  row.p99 = quantile(result.seconds, 0.99);
  row.algorithmBandwidth = row.median > 0 ? static_cast<double>(item.bytes()) / row.median : 0;
  row.busBandwidth = row.algorithmBandwidth * 2 * (ranks - 1) / ranks;
  row.wrong = result.wrong;
  if (ncclMedian && row.median > 0) row.overNccl = *ncclMedian / row.median;
  return row;
}

std::string Report::heading() const {
  std::string text;
  for (auto const& [what, value] : facts) text += fmt::format("{}: {}\n", what, value);
  if (!note.empty()) text += note + "\n";
  return text + "\n" + layOut([](std::size_t i) { return columns[i].title; }, columns.size() - (nccl ? 0 : 1));
}

std::string Report::line(Row const& row) const {
  auto const cells = cellsOf(row);
  return layOut([&](std::size_t i) { return std::string_view(cells[i]); }, columns.size() - (nccl ? 0 : 1));
}

std::string Report::json() const {
  nlohmann::ordered_json document;
  for (auto const& [what, value] : facts) document["context"][what] = value;
  if (!note.empty()) document["context"]["note"] = note;
  document["rows"] = nlohmann::ordered_json::array();
  for (auto const& row : rows) {
    nlohmann::ordered_json entry;
    entry["name"] = row.item.name();
    entry["collective"] = "allreduce";
    entry["algorithm"] = row.item.algorithm();
    entry["dtype"] = name(row.item.type);
    entry["op"] = name(row.item.operation);
    entry["bytes"] = row.item.bytes();
    entry["count"] = row.item.count;
    entry["ranks"] = ranks;
    entry["in_place"] = row.item.inPlace;
    if (!row.item.nccl) {
      entry["blocks"] = row.item.choice.blocks;
      entry["threads"] = row.item.choice.threads;
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
      if (row.overNccl) entry["vs_nccl"] = *row.overNccl;
    } else {
      entry["error"] = row.error;
    }
    document["rows"].push_back(entry);
  }
  return document.dump(2) + "\n";
}

std::string Report::markdown() const {
  std::size_t const count = columns.size() - (nccl ? 0 : 1);
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
