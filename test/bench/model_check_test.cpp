// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Prediction against measurement: on the committed results, and what is refused.
#include "report/model_check.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "plan/options.hpp"

using namespace mscclpp;
using namespace mscclpp::bench;

namespace {

MachineModel const& h200() { return *MachineModel::builtIn("NVIDIA H200"); }

std::string textOf(std::string const& name) {
  auto const path = std::filesystem::path(TEST_SOURCES) / ".." / "bench" / "results" / name;
  std::ifstream file(path);
  REQUIRE_MESSAGE(file.good(), path.string());
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string refusalOf(std::string const& json) {
  ModelCheck check;
  try {
    addRows(check, h200(), json, "x.json");
  } catch (UsageError const& error) {
    return error.what();
  }
  return {};
}

bool contains(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

std::string document(std::string const& rows, std::string const& device = "NVIDIA H200") {
  return R"({"context": {"device": ")" + device + R"("}, "rows": [)" + rows + "]}";
}

std::string row(std::string const& algorithm, std::string const& time) {
  return R"({"collective": "allgather", "algorithm": ")" + algorithm +
         R"(", "ranks": 4, "bytes": 1024, "blocks": 1, "threads": 128, "overlap": true, "time_us": )" + time + "}";
}

}  // namespace

TEST_CASE("the built-in figures predict what was measured on H200 within 15 % in the median") {
  ModelCheck check;
  addRows(check, h200(), textOf("model_h200.json"), "model_h200.json");
  CHECK(check.rows.size() > 200);
  CHECK(check.unknown.empty());
  CHECK_MESSAGE(check.medianError() < 0.15, check.medianError());
  CHECK_MESSAGE(check.largestError() < 0.35, check.largestError());
  // By number of ranks too: none hides behind the others.
  for (int ranks : {2, 4}) {
    ModelCheck part;
    for (auto const& item : check.rows) {
      if (item.ranks == ranks) part.rows.push_back(item);
    }
    CHECK(part.rows.size() >= 10);
    CHECK_MESSAGE(part.medianError() < 0.15, ranks, " ranks: ", part.medianError());
  }
  // The committed table is this one.
  CHECK(check.markdown("Prediction against measurement: " + h200().device) == textOf("model_h200.md"));
}

TEST_CASE("other figures miss it") {
  auto wrong = h200();
  wrong.storeRate /= 2;
  wrong.kernelTime *= 2;
  ModelCheck check;
  addRows(check, wrong, textOf("model_h200.json"), "model_h200.json");
  CHECK(check.medianError() > 0.15);
}

TEST_CASE("peers, failed cases and unknown algorithms are left out") {
  ModelCheck check;
  addRows(
      check, h200(),
      document(row("ll16", "2.5") + R"(, {"collective": "allgather", "algorithm": "nccl", "peer": "nccl", "time_us": 3},
                     {"collective": "allgather", "algorithm": "ll8", "error": "it failed"},)" +
               row("new", "3") + "," + row("new", "4")),
      "x.json");
  REQUIRE(check.rows.size() == 1);
  CHECK(check.rows[0].algorithm == "ll16");
  CHECK(check.rows[0].measured == doctest::Approx(2.5e-6));
  CHECK(check.unknown == std::vector<std::string>{"allgather/new"});
  auto const text = check.markdown("Prediction against measurement: " + h200().device);
  CHECK(contains(text, "| allgather | ll16 | 4 | 1K | 1 x 128 | 2.50 | "));
  CHECK(contains(text, "Rows without a prediction are left out, of: allgather/new."));
}

TEST_CASE("the median and the largest error are those of the rows") {
  ModelCheck check;
  CHECK(check.medianError() == 0);
  for (double predicted : {1.1, 0.6, 1.3}) {
    ModelRow item;
    item.measured = 1;
    item.predicted = predicted;
    check.rows.push_back(item);
  }
  CHECK(check.medianError() == doctest::Approx(0.3));
  CHECK(check.largestError() == doctest::Approx(0.4));
  check.rows.pop_back();
  CHECK(check.medianError() == doctest::Approx(0.25));
}

TEST_CASE("files that are no results of this GPU are refused") {
  CHECK(contains(refusalOf("{"), "x.json: no results of mscclpp-bench --output=FILE.json"));
  CHECK(contains(refusalOf(R"({"rows": []})"), "context"));
  CHECK(contains(refusalOf(document("", "NVIDIA A100")),
                 "x.json: it was measured on NVIDIA A100, but the model is that of NVIDIA H200"));
  CHECK(contains(refusalOf(document(row("ll16", "0"))), "a time of 0 us; allowed is more than 0"));
  CHECK(contains(refusalOf(document(row("ll16", "\"fast\""))), "x.json: no results"));
  CHECK(
      contains(refusalOf(document(R"({"collective": "allfun", "time_us": 1})")), "there is no collective \"allfun\""));
}
