// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "report.hpp"

#include <doctest/doctest.h>

using namespace mscclpp;
using namespace mscclpp::bench;

namespace {

Case sample() {
  Case item;
  item.type = ElementType::bfloat16;
  item.count = 524288;
  item.choice = {AllReduceAlgorithm::twoShotLL128, 264, 128};
  return item;
}

bool contains(std::string const& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("quantiles are samples, by nearest rank") {
  CHECK(quantile({3, 1, 2}, 0.5) == 2);
  CHECK(quantile({4, 3, 2, 1}, 0.5) == 2);
  CHECK(quantile({5}, 0.99) == 5);
  std::vector<double> hundred;
  for (int i = 100; i >= 1; --i) hundred.push_back(i);
  CHECK(quantile(hundred, 0.99) == 99);
  CHECK(quantile({}, 0.5) == 0);
}

TEST_CASE("bandwidths follow from the median") {
  auto const row = makeRow(sample(), {{10e-6, 30e-6, 10e-6}, 0}, 4, 15e-6);
  CHECK(row.median == doctest::Approx(10e-6));
  CHECK(row.p99 == doctest::Approx(30e-6));
  CHECK(row.algorithmBandwidth == doctest::Approx(1048576 / 10e-6));
  CHECK(row.busBandwidth == doctest::Approx(1048576 / 10e-6 * 1.5));
  REQUIRE(row.overNccl);
  CHECK(*row.overNccl == doctest::Approx(1.5));
}

TEST_CASE("lines lie under their titles, and the comparison is shown only where there is one") {
  Report report;
  report.facts = {{"seed", "5"}};
  report.rows.push_back(makeRow(sample(), {{10e-6}, 7}, 4, 20e-6));
  auto const heading = report.heading();
  CHECK(contains(heading, "seed: 5\n"));
  CHECK(!contains(heading, "vs nccl"));
  auto const titles = heading.substr(heading.rfind('\n', heading.size() - 2) + 1);
  auto const line = report.line(report.rows[0]);
  CHECK(line.size() == titles.size());
  CHECK(line.find("bfloat16") == titles.find("type"));
  CHECK(line.find("twoshot_ll128") == titles.find("algorithm"));
  CHECK(contains(line, "264 x 128"));
  CHECK(contains(line, " 7\n"));
  report.nccl = true;
  CHECK(contains(report.heading(), "vs nccl"));
  CHECK(contains(report.line(report.rows[0]), "2.00\n"));
}

TEST_CASE("a wrong element or a failed case makes the whole run bad") {
  Report report;
  report.rows.push_back(makeRow(sample(), {{1e-6}, 0}, 4, {}));
  CHECK(!report.bad());
  report.rows.push_back(makeRow(sample(), {{1e-6}, std::nullopt}, 4, {}));
  CHECK(!report.bad());
  report.rows.push_back(makeRow(sample(), {{1e-6}, 1}, 4, {}));
  CHECK(report.bad());
  report.rows.back().wrong.reset();
  report.rows.back().error = "rank 3 waited";
  CHECK(report.bad());
  CHECK(contains(report.line(report.rows.back()), "failed"));
  CHECK(contains(report.json(), "\"error\": \"rank 3 waited\""));
}

TEST_CASE("Markdown has a cell for every column") {
  Report report;
  report.rows.push_back(makeRow(sample(), {{1e-6}, 0}, 4, {}));
  auto const text = report.markdown();
  CHECK(contains(text, "| 1M | bfloat16 | sum | twoshot_ll128 | 264 x 128 | 1.00 | 1.00 | 1048.58 | 1572.86 | 0 |\n"));
}
