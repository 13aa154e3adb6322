// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Calls captured into the simulated machine's graphs, on one node and on several.
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "collectives/captured/captured_calls.hpp"
#include "collectives/every_collective.hpp"
#include "mscclpp/host/wait.hpp"
#include "mscclpp/sim/graph.hpp"

using namespace mscclpp_test;

TEST_CASE("a captured call makes what it needs and keeps it for replays") {
  sim::install({.devices = 8});
  forEachRankOn(DeviceKind::sim, 4, [](Communicator& communicator) {
    checkCapturedCalls<sim::Graph>(communicator,
                                   [](Stream const& stream, auto&& work) { sim::Graph const graph(stream, work); });
  });
}

TEST_CASE("over nodes, too, where calls of another stream want room for what they need") {
  for (int const nodes : {2, 3}) {
    sim::install({.devices = 2 * nodes, .devicesPerNode = 2});
    forEachRankOn(DeviceKind::sim, 2 * nodes, [](Communicator& communicator) {
      setContextLimits(communicator, {.native = 1});
      auto const algorithms = AlgorithmCollection::defaults();
      Stream const stream(communicator.device()), other(communicator.device());
      std::vector<std::unique_ptr<Exchange>> exchanges;
      std::vector<Collective> which;
      for (auto const collective : collectives) {
        if (collective == Collective::barrier) continue;
        which.push_back(collective);
        exchanges.push_back(std::make_unique<Exchange>(communicator, collective, 100, 1, true, which.size(), false, 2));
      }
      // Nothing has been made yet.
      sim::Graph const graph(stream, [&] {
        for (std::size_t i = 0; i < which.size(); ++i) {
          algorithms.execute(which[i], communicator, stream, exchanges[i]->call(false));
        }
      });
      CHECK(contextCounts(communicator).native == which.size());
      Exchange const beside(communicator, Collective::allReduce, 3000, 0, true, 50, false, 2);
      for (int turn = 0; turn < 3; ++turn) {
        graph.launch(stream);
        algorithms.execute(Collective::allReduce, communicator, other, beside.call(false));
        algorithms.execute(Collective::barrier, communicator, other, {});
        communicator.synchronize(stream);
        communicator.synchronize(other);
        CHECK(contextCounts(communicator).native == which.size() + 1);
        for (std::size_t i = 0; i < which.size(); ++i) {
          CHECK_MESSAGE(exchanges[i]->wrong() == 0, nameOf(which[i]), " at replay ", turn);
        }
        CHECK(beside.wrong() == 0);
      }
      communicator.bootstrap()->barrier();
    });
  }
}

TEST_CASE("a graph of before a failure refuses, on one node and on two, and one captured anew is right") {
  using namespace std::chrono_literals;
  constexpr int ranks = 4;
  for (int const perNode : {ranks, 2}) {
    sim::install({.devices = ranks, .devicesPerNode = perNode});
    int done = 0;
    sim::run({.ranks = ranks, .waitsExpire = true}, [&](sim::RankContext& context) {
      Communicator communicator(context.bootstrap(), Device{DeviceKind::sim, context.device()});
      communicator.setTimeLimit(1s);
      auto const algorithms = AlgorithmCollection::defaults();
      Stream const stream(communicator.device());
      Exchange const exchange(communicator, Collective::allReduce, 100, 0, true, 1, false, ranks / perNode);
      auto const execute = [&] {
        algorithms.execute(Collective::allReduce, communicator, stream, exchange.call(false));
      };
      // What it throws, and then whether the result is right.
      auto const failureOf = [&](auto&& act) -> std::string {
        try {
          act();
          communicator.synchronize(stream);
        } catch (Error const& error) {
          return error.what();
        }
        return exchange.wrong() == 0 ? "" : "wrong";
      };
      auto const replay = [&](sim::Graph const& graph) { return failureOf([&] { graph.launch(stream); }); };
      sim::Graph const before(stream, execute);
      CHECK(replay(before).empty());
      if (context.rank() == 3) hostWait([] { return false; }, 3s);  // the others give up
      CHECK_FALSE(replay(before).empty());
      std::string last = "none";
      for (int i = 0; i < 4; ++i) last = failureOf(execute);
      CHECK_MESSAGE(last.empty(), last);
      auto const refused = replay(before);
      checkContains(refused, "refused to go on");
      for (int i = 0; i < 2; ++i) last = failureOf(execute);
      CHECK_MESSAGE(last.empty(), last);
      sim::Graph const after(stream, execute);
      for (int i = 0; i < 2; ++i) {
        last = replay(after);
        CHECK_MESSAGE(last.empty(), last);
      }
      // Nobody unmaps what others may still use.
      ++done;
      CHECK(hostWait([&] { return done == ranks; }, 1000s));
    });
  }
}
