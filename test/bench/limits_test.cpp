// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The measurement of the cost model's figures: from the times that a model predicts, the same model comes out. And that
// of a network between simulated nodes.
#include "report/limits.hpp"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "collectives/ranks.hpp"
#include "report/network_limits.hpp"

using namespace mscclpp_test;
using namespace mscclpp::bench;

namespace {

World h200(int ranks) { return {.machine = DeviceKind::cuda, .ranks = ranks, .device = "NVIDIA H200"}; }

MachineModel solvedFrom(MachineModel const& truth, int ranks) {
  auto const cases = limitCases(h200(ranks), 132);
  LimitTimes times{};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    auto const& item = cases[i];
    REQUIRE(static_cast<std::size_t>(item.limit) == i);
    auto const seconds = predict(truth, {ranks, item.collective, item.algorithm, item.bytes, std::max(1u, item.blocks),
                                         item.threads == 0 ? 256 : item.threads, item.overlapped});
    REQUIRE(seconds.has_value());
    times[i] = *seconds;
  }
  return solveLimits(cases, times, ranks, truth.device, 132, truth.memoryRate);
}

}  // namespace

TEST_CASE("from the times that a model predicts the model comes out") {
  auto truth = *MachineModel::builtIn("NVIDIA H200");
  for (int ranks : {2, 4, 8}) {
    for (double factor : {1.0, 1.7}) {
      truth.kernelTime *= factor;
      truth.barrierTime *= factor;
      truth.copyTime *= factor;
      truth.storeRate /= factor;
      auto const found = solvedFrom(truth, ranks);
      for (auto const& parameter : modelParameters) {
        // Times hold the few bytes of the small cases too.
        auto const tolerance = parameter.unit == microsecond ? 0.1 : 0.03;
        CHECK_MESSAGE(found.*parameter.member == doctest::Approx(truth.*parameter.member).epsilon(tolerance),
                      parameter.name, " on ", ranks, " ranks");
      }
      CHECK(found.device == "NVIDIA H200");
      truth = *MachineModel::builtIn("NVIDIA H200");
    }
  }
}

TEST_CASE("times that do not fit together leave figures that a model may have") {
  for (double factor : {1.0, 0.5, 2.0}) {
    LimitTimes times{};
    double seconds = 1e-5;
    for (auto& time : times) time = seconds *= factor;
    auto const model = solveLimits(limitCases(h200(4), 132), times, 4, "NVIDIA H200", 132, 1e12);
    auto const again = MachineModel::parse(model.json(), "found");
    for (auto const& parameter : modelParameters) {
      CHECK_MESSAGE(again.*parameter.member >= 0, parameter.name, " with times by ", factor);
    }
  }
}

TEST_CASE("cases are whole for every rank and stay inside what the links are bound by") {
  for (int ranks = 2; ranks <= 72; ++ranks) {
    for (auto const& item : limitCases(h200(ranks), 132)) {
      CHECK(item.bytes % static_cast<std::uint64_t>(ranks) == 0);
      CHECK(item.bytes / static_cast<std::uint64_t>(ranks) % 128 == 0);
      CHECK_FALSE(item.what.empty());
    }
  }
}

TEST_CASE("on simulated GPUs it runs, and what it writes can be read") {
  auto const path = std::filesystem::temp_directory_path() / ("mscclpp-limits-" + std::to_string(::getpid()) + ".json");
  Options options;
  options.device = DeviceKind::sim;
  options.ranks = 3;
  options.limits = path.string();
  measureLimits(options, 1);
  auto const model = MachineModel::load(path.string());
  CHECK(model.device == "simulated GPU");
  CHECK(model.multiprocessors == 16);
  CHECK(model.kernelTime > 0);
  std::filesystem::remove(path);
}

TEST_CASE("one rank has no links to measure") {
  Options options;
  options.device = DeviceKind::sim;
  options.ranks = 1;
  options.limits = "unused.json";
  CHECK_THROWS_WITH_AS(measureLimits(options, 1),
                       "--limits: there is 1 rank; it measures links, so 2 or more devices are needed", UsageError);
}

TEST_CASE("the command line refuses what would choose other cases") {
  CHECK(parseCommandLine({"--limits=x.json", "--ranks=2", "--replays=3"}).options.limits == "x.json");
  CHECK_THROWS_WITH_AS(parseCommandLine({"--limits=x.txt"}),
                       "--limits=x.txt: allowed is a file name that ends in .json", UsageError);
  CHECK_THROWS_WITH_AS(parseCommandLine({"--limits=x.json", "--dtype=float32"}),
                       "--dtype=float32: --limits measures cases of its own; leave it out", UsageError);
  CHECK_THROWS_AS(parseCommandLine({"--limits=x.json", "--in-place"}), UsageError);
  CHECK_THROWS_AS(parseCommandLine({"--limits=x.json", "--benchmark_filter=x"}), UsageError);
}

TEST_CASE("pairs of ranks are of two hosts each") {
  using Pairs = std::vector<std::pair<int, int>>;
  CHECK(networkPairs({}).empty());
  CHECK(networkPairs({0, 0, 0}).empty());
  CHECK(networkPairs({0, 0, 2, 2}) == Pairs{{0, 2}, {1, 3}});
  // Counted in turn; hosts of 2, 1 and 1 ranks; a third host that nobody is left for.
  CHECK(networkPairs({0, 1, 0, 1}) == Pairs{{0, 1}, {2, 3}});
  CHECK(networkPairs({0, 0, 2, 3}) == Pairs{{0, 2}});
  CHECK(networkPairs({0, 1, 2, 3}) == Pairs{{0, 1}, {2, 3}});
}

TEST_CASE("a network between simulated nodes is measured, by ranks that are in a pair and by others") {
  sim::install({.devices = 6, .devicesPerNode = 2});
  forEachRankOn(DeviceKind::sim, 6, [](Communicator& communicator) {
    auto const found = measureNetwork(*machine(DeviceKind::sim), communicator);
    CHECK(found.transport == "memory");
    CHECK(found.messageTime > 0);
    CHECK(found.transferTime > 0);
    CHECK(found.railRate > 0);
    // All ranks know the same, and a file can hold it.
    std::vector<double> times(6);
    times[static_cast<std::size_t>(communicator.rank())] = found.messageTime;
    communicator.bootstrap()->allGather(times.data(), sizeof(double));
    CHECK(times == std::vector<double>(6, found.messageTime));
    CHECK(NetworkModel::parse(found.json(), "found").transport == "memory");
  });
  sim::install({.devices = 2});
  forEachRankOn(DeviceKind::sim, 2, [](Communicator& communicator) {
    CHECK_THROWS_WITH_AS((void)measureNetwork(*machine(DeviceKind::sim), communicator),
                         "--limits: all 2 ranks are on one host; there is no network between them", UsageError);
  });
}
