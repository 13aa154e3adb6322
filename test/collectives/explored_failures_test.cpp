// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Calls from the host under faults that schedules choose: a rank's kernel is late, its launch fails, or a wait of it is
// aborted. Each call is right or throws, and two calls behind the first that throws all are right again.
// MSCCLPP_CHECK_SCHEDULES is the number of schedules of each algorithm and rank count.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "collectives/every_collective.hpp"
#include "mscclpp/sim/explore.hpp"
#include "support/quiet_log.hpp"

using namespace mscclpp_test;

namespace {

constexpr int calls = 6;
constexpr int schedulesHere = 3;

// Copies that stand in a stream behind a kernel which gives up are made nevertheless: with a broadcast from rank to
// rank they race, on ranks that report. And without the checker's hooks bulk copies and reductions by the switch do not
// see each other's bytes.
bool isLeftOut(Algorithm const& algorithm) {
  auto const name = algorithm.name();
  if (algorithm.collective() == Collective::broadcast && name == "copy_engine") return true;
  return name == "copy" || name == "nvls_warp_pipeline" || name == "nvls_block_pipeline";
}

// How many were right.
std::size_t makeCalls(sim::RankContext& rank, Algorithm const& algorithm) {
  Communicator const communicator(rank.bootstrap(), Device{DeviceKind::sim, rank.device()});
  Stream const stream(communicator.device());
  std::vector<std::unique_ptr<Exchange>> made;  // what peers may still write to stays
  bool const inTurn = algorithm.collective() == Collective::reduce && algorithm.name() == "chain";
  int firstFailure = calls;
  std::size_t right = 0;
  for (int i = 0; i < calls; ++i) {
    made.push_back(std::make_unique<Exchange>(communicator, algorithm.collective(), 130, 0, true,
                                              static_cast<std::uint64_t>(i), inTurn));
    auto const call = made.back()->call(true);
    if (!algorithm.refusal(communicator, call).empty()) return 0;
    try {
      algorithm.execute(communicator, stream, call);
      communicator.synchronize(stream);
    } catch (Error const& error) {
      if (error.code() == ErrorCode::invalidUsage) throw;
      firstFailure = std::min(firstFailure, i);
      if (i > firstFailure + 2) throw std::runtime_error(std::string("not right again: ") + error.what());
      stream.synchronize();
      continue;
    }
    if (made.back()->wrong() != 0) throw std::runtime_error("a wrong result without a report");
    ++right;
  }
  try {
    communicator.rejoin();  // nobody's memory goes while a kernel may use it
  } catch (Error const&) {
  }
  return right;
}

}  // namespace

TEST_CASE("calls from the host are right or throw, whatever rank is late, absent or aborted") {
  auto const* const text = std::getenv("MSCCLPP_CHECK_SCHEDULES");
  int const schedules = text == nullptr ? schedulesHere : std::max(1, std::atoi(text));
  auto const algorithms = AlgorithmCollection::defaults();
  std::size_t right = 0;
  for (auto const& algorithm : algorithms.algorithms()) {
    if (algorithm->collective() == Collective::barrier || isLeftOut(*algorithm)) continue;
    for (int ranks : {2, 3}) {
      auto const result =
          sim::explore({.ranks = ranks}, [&](sim::RankContext& rank) { right += makeCalls(rank, *algorithm); },
                       {.schedules = schedules, .stopAtFirst = true, .faults = 1});
      CHECK_MESSAGE(result.ok(), nameOf(algorithm->collective()), " by ", algorithm->name(), " on ", ranks,
                    " ranks: ", sim::toText(result));
    }
  }
  CHECK(right > 40u * static_cast<std::size_t>(schedules) * calls);
}
