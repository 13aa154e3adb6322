// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <doctest/doctest.h>

#include "mscclpp/host/stream.hpp"
#include "mscclpp/sim/graph.hpp"
#include "sim/sim_fixture.hpp"

using namespace simtest;

namespace {

mscclpp::Stream newStream(int device = 0) { return mscclpp::Stream(Device{DeviceKind::sim, device}); }

// Puts a kernel into the stream that adds `more` to a word.
void add(mscclpp::Stream const& stream, std::uint32_t* word, std::uint32_t more) {
  sim::enqueueKernel(stream.native(), {.threads = 1}, "add", [word, more] {
    store<Order::relaxed, Scope::device>(word, load<Order::relaxed, Scope::device>(word) + more);
  });
}

}  // namespace

TEST_CASE("what is captured runs when it is launched, as often, beside other work of the stream") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    sim::run({.ranks = 1, .seed = seed, .preemption = 0.3}, [](sim::RankContext&) {
      DeviceArray<std::uint32_t> words(0, 2);
      auto const stream = newStream();
      auto* const p = words.data();
      CHECK(stream.capture() == 0);
      sim::Graph const graph(stream, [&] {
        CHECK(stream.capturing());
        add(stream, p, 1);
        stream.copy(p + 1, p, 4);
        add(stream, p, 10);
      });
      CHECK(!stream.capturing());
      stream.synchronize();
      CHECK(words[0] == 0);
      for (std::uint32_t i = 0; i < 5; ++i) {
        graph.launch(stream);
        add(stream, p, 100);
      }
      stream.synchronize();
      CHECK(words[0] == 5 * 111);
      CHECK(words[1] == 4 * 111 + 1);
      auto const other = newStream();
      graph.launch(other);
      other.synchronize();
      CHECK(words[0] == 5 * 111 + 11);
    });
  }
}

TEST_CASE("streams that are put behind the captured one take part") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    sim::run({.ranks = 1, .seed = seed, .preemption = 0.3}, [](sim::RankContext&) {
      DeviceArray<std::uint32_t> words(0, 3);
      auto const stream = newStream();
      auto* const p = words.data();
      std::unique_ptr<sim::Graph> graph;
      {
        auto const side = newStream();
        graph = std::make_unique<sim::Graph>(stream, [&] {
          add(stream, p, 1);
          side.runAfter(stream);
          CHECK(side.capture() == stream.capture());
          side.copy(p + 1, p, 4);
          // Held until the side stream has run: they go on side by side.
          sim::enqueueKernel(stream.native(), {.threads = 1}, "wait", [p] { waitUntil(p + 2, 1); });
          sim::enqueueKernel(side.native(), {.threads = 1}, "let go",
                             [p] { store<Order::release, Scope::device>(p + 2, 1u); });
        });
        CHECK(!side.capturing());
      }
      for (std::uint32_t i = 1; i <= 3; ++i) {
        graph->launch(stream);
        stream.synchronize();
        CHECK(words[1] == i);
        words[2] = 0;
      }
      // As part of another one.
      sim::Graph const twice(stream, [&] {
        graph->launch(stream);
        stream.copy(p + 2, p + 1, 0);
      });
      twice.launch(stream);
      stream.synchronize();
      CHECK(words[1] == 4);
    });
  }
}

TEST_CASE("what cannot be done in a capture is refused in words, and what breaks one off keeps nothing") {
  DeviceArray<std::uint32_t> words(0, 1);
  auto* const p = words.data();
  auto const stream = newStream();
  auto const other = newStream();
  auto const refused = [&](std::function<void()> const& act, std::string const& why) {
    CHECK_MESSAGE(contains(errorText(act, ErrorCode::invalidUsage), why), why);
  };
  sim::Graph const graph(stream, [&] {
    refused([&] { stream.synchronize(); }, "synchronize: the stream of simulated device 0 is being captured");
    refused([&] { (void)stream.idle(); }, "idle: the stream of simulated device 0 is being captured");
    refused([&] { sim::Graph const inner(stream, [] {}); },
            "Graph: the stream of simulated device 0 is being captured");
    refused([&] { stream.runAfter(other); }, "where the first is captured and the second is not");
    refused([&] { sim::Graph const second(other, [&] { other.runAfter(stream); }); }, "which are not of one capture");
    CHECK(!machine().synchronizeDevice(0));
    CHECK(machine().synchronizeDevice(1));
    CHECK(!other.capturing());
    add(stream, p, 1);
  });
  CHECK(machine().synchronizeDevice(0));
  refused([&] { graph.launch(newStream(1)); }, "a graph of simulated device 0 into a stream of device 1");
  refused(
      [&] {
        sim::Graph const broken(stream, [&] {
          add(stream, p, 100);
          throw Error(ErrorCode::invalidUsage, "broken off");
        });
      },
      "broken off");
  CHECK(!stream.capturing());
  graph.launch(stream);
  stream.synchronize();
  CHECK(words[0] == 1);
}
