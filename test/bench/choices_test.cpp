// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The benchmark's --algorithm=auto is AlgorithmCollection::choose(), and both are the table of
// test/collectives/choices.txt, for every collective, size and number of ranks.
#include <doctest/doctest.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "collectives/installed_profile.hpp"
#include "mscclpp/collectives/tuned_profile.hpp"
#include "mscclpp/sim/run.hpp"
#include "mscclpp/sim/runtime.hpp"
#include "plan/plan.hpp"

using namespace mscclpp;
using namespace mscclpp::bench;

namespace {

constexpr std::uint64_t largest = std::uint64_t{1} << 30;

// A line of the table: from so many bytes on, the algorithm.
struct Line {
  Collective collective{};
  DataType type{};
  std::vector<std::pair<std::uint64_t, std::string>> from{};

  std::string const& at(std::uint64_t bytes) const {
    std::string const* name = &from.front().second;
    for (auto const& [least, algorithm] : from) {
      if (least <= bytes) name = &algorithm;
    }
    return *name;
  }
};

// What the table says of symmetric buffers.
std::vector<Line> linesOf(std::string const& setting, int ranks) {
  std::ifstream file(std::string(TEST_SOURCES) + "/collectives/choices.txt");
  REQUIRE(file.good());
  std::vector<Line> lines;
  for (std::string text; std::getline(file, text);) {
    std::istringstream words(text);
    std::string name, collective, type, calls;
    int count = 0;
    words >> name >> collective >> type >> count >> calls;
    if (name != setting || count != ranks || calls != "symmetric:" || collective == "barrier") continue;
    Line line{.collective = collectiveByName(collective).value(), .type = dataTypeByName(type).value()};
    for (std::pair<std::uint64_t, std::string> entry; words >> entry.first >> entry.second;) line.from.push_back(entry);
    REQUIRE(!line.from.empty());
    lines.push_back(line);
  }
  return lines;
}

// Cases that were compared.
int compare(std::string const& setting, int ranks) {
  auto const lines = linesOf(setting, ranks);
  int compared = 0;
  sim::install({.devices = ranks, .linesArriveWhole = setting != "torn", .multicast = setting == "switch"});
  sim::run({.ranks = ranks}, [&](sim::RankContext& context) {
    Communicator const communicator(context.bootstrap(), Device{DeviceKind::sim, context.device()});
    auto const& world = World::of(communicator);
    if (context.rank() == 0) {
      auto algorithms = AlgorithmCollection::defaults();
      algorithms.setProfile(setting == "tuned" ? mscclpp_test::profileOf(world.device) : nullptr);
      auto* const in = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40);
      auto* const out = in + (std::uint64_t{1} << 32);
      for (auto const& line : lines) {
        Options options;
        options.collectives = {line.collective};
        options.types = {line.type};
        for (std::uint64_t bytes = 1024; bytes <= largest; bytes *= 2) {
          // Whole units of 16 bytes for each rank, as in the table.
          auto const parts = traitsOf(line.collective).partsOf(static_cast<std::size_t>(ranks));
          options.minBytes = parts == 1 ? bytes : bytes / parts / 16 * 16 * parts;
          options.maxBytes = options.minBytes;
          if (options.minBytes == 0) continue;
          auto const cases = planCases(options, world, algorithms).cases;
          REQUIRE(cases.size() == 1);
          CAPTURE(setting);
          CAPTURE(cases[0].name());
          CHECK(cases[0].algorithm() == line.at(bytes));
          auto const choice = algorithms.choose(line.collective, communicator, cases[0].call(ranks, in, out, 0));
          CHECK(cases[0].algorithm() == choice.algorithm);
          ++compared;
        }
      }
    }
    communicator.bootstrap()->barrier();
  });
  sim::install({});
  return compared;
}

}  // namespace

TEST_CASE("the automatic choice is the library's, and that of the table") {
  for (auto const* setting : {"lines", "torn", "switch", "tuned"}) {
    // At 72 ranks the smallest buffers have no 16 bytes for each.
    for (int ranks : {1, 2, 3, 4, 6, 8, 16, 72}) CHECK(compare(setting, ranks) > 250);
  }
}
