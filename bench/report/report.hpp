// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Results as people and programs read them: a table on stdout while the cases run, JSON or Markdown in a file at the
// end.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "session/session.hpp"

namespace mscclpp::bench {

struct Row {
  Case item;
  double median = 0;  // seconds per operation
  double p99 = 0;
  double algorithmBandwidth = 0;  // bytes of the larger buffer per second
  double busBandwidth = 0;        // bytes per second that each rank's link must carry at least
  double bare = 0;                // median and p99 of launches of an empty kernel; 0: there are none
  double bareP99 = 0;
  std::optional<std::uint64_t> wrong;  // nothing: not checked
  std::map<Contender, double> over;    // each peer's median time over this one
  std::string error;                   // not empty: the case failed, and the figures mean nothing
  bool planned = false;                // only, and there are no figures
};

// `peers`: the median times of those that had right results.
Row makeRow(Case const& item, CaseResult const& result, int ranks, std::map<Contender, double> const& peers);

// The peer that was fastest, and its time over the row's; nothing where there is none.
std::optional<std::pair<Contender, double>> bestPeer(Row const& row);

// The value below or at which `share` of the samples lie.
double quantile(std::vector<double> samples, double share);

struct Report {
  std::vector<std::pair<std::string, std::string>> facts;  // what, value
  std::string note;
  // Tells apart what must not be compared: figures of other machines, or of this one after another start.
  std::vector<std::pair<std::string, std::string>> sitting;
  bool peers = false;
  int ranks = 1;
  LaunchMode launch = LaunchMode::graph;
  bool shared = false;  // ranks share GPUs
  std::vector<Row> rows;

  std::string heading() const;  // facts and the column names
  std::string line(Row const& row) const;
  std::string json() const;
  std::string markdown() const;
  // True where a case failed or an element was wrong.
  bool bad() const;

 private:
  // By column, as many as are shown.
  std::vector<std::string_view> titles() const;
  std::vector<std::string> cellsOf(Row const& row) const;
};

}  // namespace mscclpp::bench
