// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "report/report.hpp"

#include <doctest/doctest.h>

#include <memory>

#include "mscclpp/collectives/native_algorithm.hpp"

using namespace mscclpp;
using namespace mscclpp::bench;

namespace {

Case sample() {
  Case item;
  item.type = DataType::bfloat16;
  item.count = 524288;
  item.operation = ReduceOp::sum;
  item.by = std::make_shared<NativeAlgorithm>("twoshot_ll128", Collective::allReduce,
                                              NativeFunctions{.run = [](auto const&...) {}});
  item.launch = KernelLaunch{.shape = {.blocks = 264, .threads = 128}};
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
  auto const row = makeRow(sample(), {{10e-6, 30e-6, 10e-6}, 0}, 4, {{Contender::nccl, 15e-6}});
  CHECK(row.median == doctest::Approx(10e-6));
  CHECK(row.p99 == doctest::Approx(30e-6));
  CHECK(row.algorithmBandwidth == doctest::Approx(1048576 / 10e-6));
  CHECK(row.busBandwidth == doctest::Approx(1048576 / 10e-6 * 1.5));
  REQUIRE(row.over.contains(Contender::nccl));
  CHECK(row.over.at(Contender::nccl) == doctest::Approx(1.5));
}

TEST_CASE("bus bandwidth is what a link carries at least") {
  auto const factor = [](Collective collective) {
    auto item = sample();
    item.collective = collective;
    auto const row = makeRow(item, {{1e-6}, 0}, 4, {});
    return row.busBandwidth / row.algorithmBandwidth;
  };
  using enum Collective;
  CHECK(factor(allReduce) == doctest::Approx(1.5));
  for (auto collective : {allGather, reduceScatter, allToAll, gather, scatter}) {
    CHECK(factor(collective) == doctest::Approx(0.75));
  }
  for (auto collective : {broadcast, reduce}) CHECK(factor(collective) == doctest::Approx(1));
}

TEST_CASE("a row is compared with the fastest peer, and a peer with none") {
  std::map<Contender, double> const peers{{Contender::nccl, 30e-6}, {Contender::ncclSymmetric, 15e-6}};
  auto const row = makeRow(sample(), {{10e-6}, 0}, 4, peers);
  auto const best = bestPeer(row);
  REQUIRE(best);
  CHECK(best->first == Contender::ncclSymmetric);
  CHECK(best->second == doctest::Approx(1.5));
  auto peer = sample();
  peer.contender = Contender::nccl;
  CHECK(!bestPeer(makeRow(peer, {{30e-6}, 0}, 4, peers)));
  Report report;
  report.sitting = {{"device", "a GPU"}, {"boot", "1234"}};
  report.rows = {row, makeRow(peer, {{30e-6}, 0}, 4, peers)};
  auto const json = report.json();
  for (auto part : {"\"best_peer\": \"nccl-symmetric\"", "\"vs_best\": 1.5", "\"nccl\": 3.0", "\"peer\": \"nccl\"",
                    "\"device\": \"a GPU\"", "\"boot\": \"1234\""}) {
    CAPTURE(part);
    CHECK(contains(json, part));
  }
}

TEST_CASE("lines lie under their titles, and the comparison is shown only where there is one") {
  Report report;
  report.facts = {{"seed", "5"}};
  report.rows.push_back(makeRow(sample(), {{10e-6}, 7}, 4, {{Contender::nccl, 20e-6}}));
  auto const heading = report.heading();
  CHECK(contains(heading, "seed: 5\n"));
  CHECK(!contains(heading, "vs best"));
  auto const titles = heading.substr(heading.rfind('\n', heading.size() - 2) + 1);
  auto const line = report.line(report.rows[0]);
  CHECK(line.size() == titles.size());
  CHECK(line.find("bfloat16") == titles.find("type"));
  CHECK(line.find("twoshot_ll128") == titles.find("algorithm"));
  CHECK(contains(line, "264 x 128"));
  CHECK(contains(line, " 7\n"));
  report.peers = true;
  CHECK(contains(report.heading(), "vs best"));
  CHECK(contains(report.line(report.rows[0]), "2.00\n"));
}

TEST_CASE("rows say how calls were launched, and that ranks share GPUs") {
  Report report;
  report.launch = LaunchMode::host;
  report.shared = true;
  report.rows.push_back(makeRow(sample(), {{1e-6, 2e-6, 9e-6}, 0, {3e-6, 4e-6, 5e-6}}, 4, {}));
  CHECK(contains(report.heading(), "bare us"));
  CHECK(!contains(report.heading(), "busbw"));
  CHECK(contains(report.markdown(), "| host/shared | 2.00 | 9.00 | 4.00 | 5.00 | 0 |\n"));
  auto const json = report.json();
  for (auto part : {"\"launch\": \"host\"", "\"shared\": true", "\"bare_us\": 4.0", "\"bare_p99_us\": 5.0"}) {
    CAPTURE(part);
    CHECK(contains(json, part));
  }
  CHECK(!contains(json, "busbw_gbps"));
}

TEST_CASE("a planned row has no figures") {
  Report report;
  report.rows.emplace_back().item = sample();
  report.rows.back().planned = true;
  CHECK(contains(report.markdown(), "264 x 128 | graph | - | - | - | - | - |\n"));
  CHECK(!contains(report.json(), "time_us"));
  CHECK(!report.bad());
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
  CHECK(contains(text,
                 "| allreduce | 1M | bfloat16 | sum | twoshot_ll128 | 264 x 128 | graph | 1.00 | 1.00 | 1048.58 | "
                 "1572.86 | 0 |\n"));
}
