// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "report/model_check.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "plan/options.hpp"

namespace mscclpp::bench {
namespace {

std::vector<double> sortedErrors(std::vector<ModelRow> const& rows) {
  std::vector<double> errors;
  for (auto const& row : rows) errors.push_back(std::abs(row.error()));
  std::sort(errors.begin(), errors.end());
  return errors;
}

double medianOf(std::vector<double> const& sorted) {
  if (sorted.empty()) return 0;
  auto const half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

}  // namespace

double ModelCheck::medianError() const { return medianOf(sortedErrors(rows)); }

double ModelCheck::largestError() const { return rows.empty() ? 0 : sortedErrors(rows).back(); }

RowPrediction predictionOf(MachineModel const& model) {
  return [&model](ModelRow const& row) {
    return predict(model, {.ranks = row.ranks,
                           .collective = row.collective,
                           .algorithm = row.algorithm,
                           .bytes = row.bytes,
                           .blocks = row.blocks,
                           .threads = row.threads,
                           .overlapped = row.overlapped});
  };
}

void addRows(ModelCheck& check, MachineModel const& model, std::string_view json, std::string const& source) {
  addRows(check, model.device, predictionOf(model), json, source);
}

void addRows(ModelCheck& check, std::string const& wanted, RowPrediction const& prediction, std::string_view json,
             std::string const& source) {
  try {
    auto const document = nlohmann::json::parse(json);
    auto const& context = document.at("context");
    if (auto const device = context.at("device").get<std::string>(); device != wanted) {
      throw UsageError(
          fmt::format("{}: it was measured on {}, but the model is that of {}; give --model=FILE for that "
                      "GPU, which mscclpp-bench --limits=FILE writes",
                      source, device, wanted));
    }
    for (auto const& entry : document.at("rows")) {
      if (entry.contains("peer") || !entry.contains("time_us")) continue;
      ModelRow row;
      auto const name = entry.at("collective").get<std::string>();
      auto const collective = collectiveByName(name);
      if (!collective) throw UsageError(fmt::format("{}: there is no collective \"{}\"", source, name));
      row.collective = *collective;
      row.algorithm = entry.at("algorithm").get<std::string>();
      row.ranks = entry.at("ranks").get<int>();
      row.bytes = entry.at("bytes").get<std::uint64_t>();
      row.blocks = entry.value("blocks", 1u);
      row.threads = entry.value("threads", 1u);
      row.measured = entry.at("time_us").get<double>() * 1e-6;
      if (!(row.measured > 0)) {
        throw UsageError(fmt::format("{}: a time of {} us; allowed is more than 0", source, row.measured * 1e6));
      }
      row.overlapped = entry.value("overlap", false);
      auto const seconds = prediction(row);
      if (seconds) {
        row.predicted = *seconds;
        check.rows.push_back(row);
      } else {
        auto const what = name + "/" + row.algorithm;
        if (std::find(check.unknown.begin(), check.unknown.end(), what) == check.unknown.end()) {
          check.unknown.push_back(what);
        }
      }
    }
  } catch (nlohmann::json::exception const& error) {
    throw UsageError(fmt::format("{}: no results of mscclpp-bench --output=FILE.json: {}", source, error.what()));
  }
}

std::string ModelCheck::markdown(std::string const& title) const {
  std::string text = fmt::format(
      "# {}\n\n{} rows; the median error is {:.1f} %, the largest {:.1f} %. Times in "
      "microseconds.\n\n",
      title, rows.size(), medianError() * 100, largestError() * 100);
  if (!unknown.empty())
    text += fmt::format("Rows without a prediction are left out, of: {}.\n\n", fmt::join(unknown, ", "));

  // The algorithms, in the order of their first rows.
  std::vector<std::pair<std::string, std::vector<ModelRow>>> groups;
  for (auto const& row : rows) {
    auto const name = fmt::format("{} | {}", nameOf(row.collective), row.algorithm);
    auto found = std::find_if(groups.begin(), groups.end(), [&](auto const& group) { return group.first == name; });
    if (found == groups.end()) found = groups.insert(groups.end(), {name, {}});
    found->second.push_back(row);
  }
  text += "| collective | algorithm | rows | median error | largest |\n| --- | --- | ---: | ---: | ---: |\n";
  for (auto const& [name, members] : groups) {
    auto const errors = sortedErrors(members);
    text += fmt::format("| {} | {} | {:.1f} % | {:.1f} % |\n", name, members.size(), medianOf(errors) * 100,
                        errors.back() * 100);
  }
  text +=
      "\n| collective | algorithm | ranks | size | blocks x threads | measured | predicted | error |\n"
      "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n";
  for (auto const& row : rows) {
    text += fmt::format("| {} | {} | {} | {} | {} x {} | {:.2f} | {:.2f} | {:+.1f} % |\n", nameOf(row.collective),
                        row.algorithm, row.ranks, formatBytes(row.bytes), row.blocks, row.threads, row.measured * 1e6,
                        row.predicted * 1e6, row.error() * 100);
  }
  return text;
}

ModelCheck checkFiles(std::vector<std::string> const& paths, std::string const& device, RowPrediction const& prediction,
                      std::string_view whyNone) {
  ModelCheck result;
  for (auto const& path : paths) {
    std::ifstream file(path, std::ios::binary);
    std::string const text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (!file) throw UsageError(fmt::format("{}: it cannot be read", path));
    addRows(result, device, prediction, text, path);
  }
  if (result.rows.empty()) throw UsageError(fmt::format("{}: {}", fmt::join(paths, ", "), whyNone));
  return result;
}

bool present(ModelCheck const& check, std::string const& title, std::string const& output, double limit) {
  auto const text = check.markdown(title);
  std::fputs(text.c_str(), stdout);
  if (!output.empty()) writeOutput(output, text);
  return check.medianError() * 100 <= limit;
}

}  // namespace mscclpp::bench
