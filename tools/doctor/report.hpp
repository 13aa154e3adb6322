// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What mscclpp-doctor has found, as text and as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mscclpp::doctor {

// What it costs to leave it: nothing works, it is slow, nothing.
enum class Weight : std::uint8_t { broken, slow, note };

struct Finding {
  Weight weight;
  std::string what;
  std::string mend;  // what to do; empty where there is nothing to
};

struct Section {
  std::string title;
  std::vector<std::pair<std::string, std::string>> lines{};
  std::vector<std::vector<std::string>> table{};  // the first row names the columns
};

class Report {
 public:
  Section& section(std::string title);
  void find(Weight weight, std::string what, std::string mend = {});

  std::vector<Section> const& sections() const { return sections_; }
  // The dearest first, else as they were found.
  std::vector<Finding> const& findings() const { return findings_; }
  bool isBroken() const;

  std::string text() const;
  std::string json() const;

 private:
  std::vector<Section> sections_;
  std::vector<Finding> findings_;
};

std::string_view nameOf(Weight weight);

}  // namespace mscclpp::doctor
