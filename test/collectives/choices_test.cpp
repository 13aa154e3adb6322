// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the library chooses by itself, for every collective, size and number of ranks, is what choices.txt says. Whoever
// changes a choice on purpose writes the file anew, with MSCCLPP_WRITE_CHOICES=path, and says why in the commit.
//
//   machine collective type ranks symmetric: the algorithm from so many bytes of the larger buffer on, and so on
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>

#include "collectives/installed_profile.hpp"
#include "collectives/ranks.hpp"
#include "mscclpp/collectives/algorithm_collection.hpp"
#include "mscclpp/collectives/tuned_profile.hpp"

using namespace mscclpp_test;

namespace {

constexpr std::uint64_t smallest = 1024;
constexpr std::uint64_t largest = std::uint64_t{1} << 30;

struct Setting {
  char const* name;
  bool wholeLines;
  bool multicast;
  bool tuned;  // with the profiles that come with the library, as if they were of this device
};
constexpr Setting settings[]{{"lines", true, false, false},
                             {"torn", false, false, false},
                             {"switch", true, true, false},
                             {"tuned", true, false, true}};

CollectiveCall callOf(Collective collective, DataType type, std::uint64_t bytes, int ranks, bool symmetric,
                      std::byte* memory) {
  auto const part = bytes / static_cast<unsigned>(ranks) / 16 * 16;
  CollectiveCall call{.in = memory, .out = memory + (std::uint64_t{1} << 32), .type = type, .symmetric = symmetric};
  call.op = reduces(collective) ? ReduceOp::sum : ReduceOp::none;
  bool const many = collective == Collective::reduceScatter || collective == Collective::allToAll ||
                    collective == Collective::scatter;
  bool const gathers = collective == Collective::allGather || collective == Collective::gather;
  auto const whole = part * static_cast<unsigned>(ranks);
  bool const even = collective == Collective::allReduce || collective == Collective::broadcast ||
                    collective == Collective::reduce || collective == Collective::sendRecv;
  call.inBytes = even ? bytes : many ? whole : part;
  call.outBytes = even ? bytes : gathers || collective == Collective::allToAll ? whole : part;
  if (collective == Collective::barrier) call.inBytes = call.outBytes = 0;
  return call;
}

std::string choicesOf(Setting const& setting, int ranks) {
  std::ostringstream lines;
  sim::install({.devices = ranks, .linesArriveWhole = setting.wholeLines, .multicast = setting.multicast});
  sim::run({.ranks = ranks}, [&](sim::RankContext& context) {
    Communicator communicator(context.bootstrap(), Device{DeviceKind::sim, context.device()});
    auto algorithms = AlgorithmCollection::defaults();
    algorithms.setProfile(setting.tuned ? profileOf(communicator.device().properties().name) : nullptr);
    DeviceMemory const memory(communicator.device(), 4096);
    for (auto collective : collectives) {
      for (auto type : {DataType::bfloat16, DataType::float64, DataType::uint8}) {
        if (!reduces(collective) && type != DataType::uint8) continue;
        for (bool symmetric : {false, true}) {
          std::ostringstream line;
          line << setting.name << ' ' << nameOf(collective) << ' ' << nameOf(type) << ' ' << ranks
               << (symmetric ? " symmetric:" : " -:");
          std::string last;
          for (auto bytes = smallest; bytes <= largest; bytes *= 2) {
            auto const call = callOf(collective, type, bytes, ranks, symmetric, static_cast<std::byte*>(memory.data()));
            std::string name = "none";
            try {
              name = algorithms.choose(collective, communicator, call).algorithm;
            } catch (Error const& error) {
              REQUIRE_MESSAGE(error.code() == ErrorCode::unsupported, error.what());
            }
            if (name != last) line << ' ' << bytes << ' ' << name;
            last = name;
          }
          if (context.rank() == 0) lines << line.str() << '\n';
        }
      }
    }
    communicator.bootstrap()->barrier();
  });
  sim::install({});
  return lines.str();
}

}  // namespace

TEST_CASE("the library chooses what it did") {
  std::string now;
  for (auto const& setting : settings) {
    for (int ranks : {1, 2, 3, 4, 6, 8, 16, 72}) now += choicesOf(setting, ranks);
  }
  if (auto const* const path = std::getenv("MSCCLPP_WRITE_CHOICES")) {
    std::ofstream(path) << now;
    return;
  }
  std::ifstream file(std::string(TEST_SOURCES) + "/collectives/choices.txt");
  std::ostringstream expected;
  expected << file.rdbuf();
  std::istringstream is(now);
  std::istringstream was(expected.str());
  std::string a;
  std::string b;
  while (std::getline(is, a) && std::getline(was, b)) CHECK(a == b);
  CHECK(now == expected.str());
}
