// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the cost model says about the rows of a benchmark's JSON, beside what was measured.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mscclpp/collectives/cost_model.hpp"

namespace mscclpp::bench {

struct ModelRow {
  Collective collective{};
  std::string algorithm;
  int ranks = 1;
  std::uint64_t bytes = 0;
  unsigned blocks = 1;
  unsigned threads = 1;
  bool overlapped = false;
  double measured = 0;  // seconds
  double predicted = 0;

  // 0.1: predicted 10 % more than measured.
  double error() const { return predicted / measured - 1; }
};

struct ModelCheck {
  std::vector<ModelRow> rows;
  std::vector<std::string> unknown;  // algorithms that were measured and have no prediction

  // Of the errors' sizes; 0 without rows.
  double medianError() const;
  double largestError() const;
  std::string markdown(std::string const& title) const;
};

// Seconds that a row should take; nothing where that is not known.
using RowPrediction = std::function<std::optional<double>(ModelRow const&)>;

// Adds the rows of `json`, which mscclpp-bench wrote with --output. Rows of peers and of cases that failed are left
// out. Throws UsageError, which names `source`, where it is no such file or was measured on another GPU than `device`.
void addRows(ModelCheck& check, std::string const& device, RowPrediction const& prediction, std::string_view json,
             std::string const& source);
// By the cost model, which outlives it.
RowPrediction predictionOf(MachineModel const& model);
void addRows(ModelCheck& check, MachineModel const& model, std::string_view json, std::string const& source);

// The rows of all files. Throws UsageError that ends in `whyNone` where no row of them is predicted.
ModelCheck checkFiles(std::vector<std::string> const& paths, std::string const& device, RowPrediction const& prediction,
                      std::string_view whyNone);

// Prints the page, and writes it to `output` too, unless that is empty. Whether the median error is within `limit`
// percent.
bool present(ModelCheck const& check, std::string const& title, std::string const& output, double limit);

}  // namespace mscclpp::bench
