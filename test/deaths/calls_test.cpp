// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A rank is killed at every stage of its work, ranks being processes with simulated GPUs: every wait of every other
// one, in kernels too, ends within a second and names it, and those that are left go on with a communicator of theirs.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "collectives/allreduce.hpp"
#include "host/ranks.hpp"
#include "mscclpp/host/bootstrap/tcp_bootstrap.hpp"
#include "mscclpp/host/port_channel.hpp"
#include "support/ending.hpp"
#include "support/quiet_log.hpp"

using namespace mscclpp_test;
using namespace std::chrono_literals;
using mscclpp::test::Clock;
using mscclpp::test::Ending;
using mscclpp::test::noticed;
using mscclpp::test::runProcesses;

namespace {

// What one rank has, in the order in which it is made.
class Rank {
 public:
  Rank(UniqueId const& id, int rank, int ranks) : bootstrap(std::make_shared<TcpBootstrap>(rank, ranks)) {
    bootstrap->initialize(id, 20s);
  }
  // Calls that were queued before the one that failed still use what is freed here.
  ~Rank() {
    try {
      if (stream) stream->synchronize();
    } catch (Error const&) {
    }
  }
  Rank(Rank const&) = delete;
  Rank& operator=(Rank const&) = delete;

  // Whoever returns knows that all ranks have made theirs.
  void make() {
    communicator = std::make_unique<Communicator>(bootstrap, device());
    stream.emplace(device());
    bootstrap->barrier();
  }
  Device device() const { return {DeviceKind::sim, bootstrap->getRank()}; }

  void start() {
    if (!sums) sums.emplace(*communicator, 200, 1);
    algorithms.execute(Collective::allReduce, *communicator, *stream, sums->call());
  }
  void finish() const {
    communicator->synchronize(*stream);
    if (sums->wrong() != 0) throw Error(ErrorCode::internalError, "a wrong sum");
  }
  void allReduce() {
    start();
    finish();
  }

  std::shared_ptr<TcpBootstrap> bootstrap;
  std::unique_ptr<Communicator> communicator;
  std::optional<Stream> stream;
  std::optional<Sums<float, Sum>> sums;
  AlgorithmCollection algorithms = AlgorithmCollection::defaults();
};

// Ends the process where it is the victim's.
using Die = std::function<void()>;

struct Stage {
  char const* name;
  std::function<void(Rank&, int victim, Die const& die)> body;  // throws where the victim died
};

void awaitFault(Rank const& rank) {
  auto const start = Clock::now();
  while (!rank.communicator->fault() && Clock::now() - start < 5s) std::this_thread::sleep_for(1ms);
}

std::vector<Stage> const stages{
    {"while making a communicator",
     [](Rank& rank, int, Die const& die) {
       die();
       rank.make();
     }},
    {"before the first call",
     [](Rank& rank, int, Die const& die) {
       rank.make();
       die();
       rank.allReduce();
     }},
    {"before a call",
     [](Rank& rank, int, Die const& die) {
       rank.make();
       rank.allReduce();
       die();
       rank.allReduce();
     }},
    {"before calls that wait one behind the other, the host in the stream's own synchronize()",
     [](Rank& rank, int, Die const& die) {
       rank.make();
       rank.allReduce();
       die();
       for (int call = 0; call < 4; ++call) rank.start();
       rank.stream->synchronize();
       rank.communicator->checkReports();
     }},
    {"before a call, the host in the program's own code",
     [](Rank& rank, int, Die const& die) {
       rank.make();
       rank.allReduce();
       die();
       rank.start();
       awaitFault(rank);
       rank.finish();
     }},
    {"noticed before a call",
     [](Rank& rank, int, Die const& die) {
       rank.make();
       rank.allReduce();
       die();
       awaitFault(rank);
       rank.start();
     }},
    {"while its kernel runs",
     [](Rank& rank, int, Die const& die) {
       rank.make();
       rank.allReduce();
       for (int call = 0;; ++call) {
         rank.start();
         if (call == 20) die();
         rank.finish();
       }
     }},
    {"while memory is exchanged",
     [](Rank& rank, int, Die const& die) {
       rank.make();
       GpuBuffer<int> const buffer(rank.device(), 64);
       die();
       rank.communicator->exchangeMemory(rank.communicator->registerMemory(buffer.data(), buffer.bytes()));
     }},
    {"while semaphores are made",
     [](Rank& rank, int victim, Die const& die) {
       rank.make();
       die();
       (void)rank.communicator->buildSemaphore(victim);
     }},
    {"while one waits to be connected by another that has given up",
     [](Rank& rank, int victim, Die const& die) {
       rank.make();
       die();
       int const first = victim == 0 ? 1 : 0;
       int const second = victim == first + 1 ? first + 2 : first + 1;
       if (rank.bootstrap->getRank() == first) {
         (void)rank.communicator->connect(second < rank.communicator->size() ? second : victim);
       }
       awaitFault(rank);
       rank.communicator->checkReports();
     }},
    {"while port channels are made",
     [](Rank& rank, int victim, Die const& die) {
       rank.make();
       ProxyService service(*rank.communicator);
       die();
       service.buildAndAddSemaphore(rank.communicator->connect(victim));
     }},
};

// What is wrong with what those that are left do next.
std::string goOn(Rank& rank, int victim) {
  std::vector<int> expected;
  for (int one = 0; one < rank.communicator->size(); ++one) {
    if (one != victim) expected.push_back(one);
  }
  auto const left = rank.communicator->survivors();
  if (left != expected) {
    std::string text = "other survivors:";
    for (int const one : left) text += " " + std::to_string(one);
    return text;
  }
  auto const group = rank.communicator->shrink(left);
  Stream const stream(rank.device());
  for (std::uint64_t call = 0; call < 3; ++call) {
    Sums<float, Sum> const sums(*group, 200, 7 + call);
    rank.algorithms.execute(Collective::allReduce, *group, stream, sums.call());
    group->synchronize(stream);
    if (sums.wrong() != 0) return "a wrong sum of those that are left";
    group->bootstrap()->barrier();
  }
  return "";
}

// What is wrong with an error by which a rank has learned of the victim's end.
std::string judge(std::optional<Error> const& error, int victim, Clock::duration after) {
  if (!error) return "no error";
  auto const text = std::string(error->what());
  if (error->code() != ErrorCode::remoteError) return "another kind of error: " + text;
  auto const named = text.find(" is gone");
  auto const name = "rank " + std::to_string(victim);
  if (named == std::string::npos || !std::string_view(text).substr(0, named).ends_with(name)) {
    return "another name: " + text;
  }
  if (after > noticed) {
    return "after " + std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(after).count()) + " ms";
  }
  return "";
}

// What is wrong with what each rank finds.
std::vector<std::string> lose(Stage const& stage, int ranks, int victim) {
  Ending const ending;
  UniqueId const id = TcpBootstrap::createUniqueId("127.0.0.1:0");
  return runProcesses(ranks, [&](int number) -> std::string {
    Rank rank(id, number, ranks);
    auto const error = mscclpp::test::errorOf([&] {
      stage.body(rank, victim, [&] {
        if (number == victim) ending.kill();
      });
    });
    auto wrong = judge(error, victim, ending.since(ending.time()));
    if (wrong.empty() && rank.communicator != nullptr) wrong = goOn(rank, victim);
    ending.stay(ranks - 1);
    return wrong;
  });
}

}  // namespace

// First, while this process has no threads.
TEST_CASE("a rank is killed: all waits of the others end within a second, by its name, and they go on") {
  for (auto const& stage : stages) {
    for (auto const& job : {std::pair{2, 1}, {3, 0}, {4, 2}, {6, 5}}) {
      int const ranks = job.first;
      int const victim = job.second;
      CAPTURE(std::string(stage.name));
      CAPTURE(ranks);
      CAPTURE(victim);
      auto texts = lose(stage, ranks, victim);
      // On a machine that has much else to do; what only a limit ends is late again.
      auto const late = [](std::string const& text) { return text.starts_with("after "); };
      if (std::any_of(texts.begin(), texts.end(), late)) texts = lose(stage, ranks, victim);
      for (int rank = 0; rank < ranks; ++rank) {
        CAPTURE(rank);
        CHECK(texts[static_cast<std::size_t>(rank)] == (rank == victim ? "killed by signal 9" : ""));
      }
    }
  }
}

TEST_CASE("a second rank is killed while those that are left find together") {
  constexpr int ranks = 5;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    CAPTURE(seed);
    Ending const first;
    Ending const second;
    UniqueId const id = TcpBootstrap::createUniqueId("127.0.0.1:0");
    int const two = static_cast<int>(seed % (ranks - 1));
    auto const texts = runProcesses(ranks, [&](int number) -> std::string {
      Rank rank(id, number, ranks);
      rank.make();
      auto const learned = mscclpp::test::errorOf([&] {
        rank.allReduce();
        if (number == ranks - 1) first.kill();
        rank.allReduce();
      });
      auto wrong = judge(learned, ranks - 1, first.since(first.time()));
      std::thread killer;
      if (number == two) {
        std::mt19937_64 random(seed);
        std::chrono::microseconds const moment(std::uniform_int_distribution(0, 20000)(random));
        killer = std::thread([&, moment] {
          std::this_thread::sleep_for(moment);
          second.kill();
        });
      }
      for (bool done = false; !done && wrong.empty();) {
        auto const start = Clock::now();
        std::string what = "right";
        try {
          auto const left = rank.communicator->survivors();
          auto const group = rank.communicator->shrink(left);
          Stream const stream(rank.device());
          Sums<float, Sum> const sums(*group, 200, 7);
          rank.algorithms.execute(Collective::allReduce, *group, stream, sums.call());
          group->synchronize(stream);
          if (sums.wrong() != 0) wrong = "a wrong sum";
          done = std::find(left.begin(), left.end(), two) == left.end();
        } catch (Error const& error) {
          what = error.what();
          if (error.code() != ErrorCode::remoteError) wrong = what;
        }
        auto const passed = std::chrono::duration_cast<std::chrono::milliseconds>(second.since(start));
        if (second.time() != Clock::time_point() && passed > noticed) {
          wrong += "after " + std::to_string(passed.count()) + " ms: " + what;
        }
      }
      second.stay(ranks - 2);
      if (killer.joinable()) killer.join();
      return wrong;
    });
    for (int rank = 0; rank < ranks - 1; ++rank) {
      CHECK(texts[static_cast<std::size_t>(rank)] == (rank == two ? "killed by signal 9" : ""));
    }
  }
}

TEST_CASE("a rank's device is lost, and its process lives on: the others hear of it as of a death") {
  for (auto const& job : {std::pair{2, 0}, {4, 1}}) {
    int const ranks = job.first;
    int const victim = job.second;
    CAPTURE(ranks);
    Ending const ending;
    UniqueId const id = TcpBootstrap::createUniqueId("127.0.0.1:0");
    auto const texts = runProcesses(ranks, [&](int number) -> std::string {
      Rank rank(id, number, ranks);
      rank.make();
      rank.allReduce();
      rank.bootstrap->barrier();
      if (number == victim) {
        std::this_thread::sleep_for(20ms);  // the others' kernels wait
        ending.mark();
        rank.device().runtime().lose(number, "an illegal address");
      }
      auto const error = mscclpp::test::errorOf([&] { rank.allReduce(); });
      auto const after = ending.since(ending.time());
      std::string wrong;
      if (number != victim) {
        wrong = judge(error, victim, after);
        if (wrong.empty()) wrong = goOn(rank, victim);
      } else if (!error || error->code() != ErrorCode::deviceError ||
                 std::string(error->what()).find("an illegal address") == std::string::npos) {
        wrong = error ? error->what() : "no error";
      }
      ending.stay(ranks);
      return wrong;
    });
    for (auto const& text : texts) CHECK(text == "");
  }
}

TEST_CASE("a rank that has done its part and calls exit() ends no wait of the others") {
  Ending const ending;
  UniqueId const id = TcpBootstrap::createUniqueId("127.0.0.1:0");
  auto const texts = runProcesses(3, [&](int number) -> std::string {
    auto& rank = *new Rank(id, number, 3);
    rank.make();
    rank.allReduce();
    auto const group = number == 0 ? nullptr : rank.communicator->shrink({1, 2});
    if (number == 0) std::exit(0);
    // A kernel of the group, and one that waits for a rank that is there, are waiting when it ends.
    Stream const stream(rank.device());
    Sums<float, Sum> const sums(*group, 200, 7);
    if (number == 1) std::this_thread::sleep_for(300ms);
    rank.algorithms.execute(Collective::allReduce, *group, stream, sums.call());
    group->synchronize(stream);
    rank.communicator->checkReports();
    group->bootstrap()->barrier();
    return sums.wrong() == 0 ? "" : "a wrong sum";
  });
  for (auto const& text : texts) CHECK(text == "");
}
