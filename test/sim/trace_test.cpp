// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The timeline of a small run, read back.
#include "mscclpp/host/trace.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "mscclpp/device/device_handle.hpp"
#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/memory_channel.hpp"
#include "mscclpp/host/port_channel.hpp"
#include "mscclpp/launch/launch.hpp"
#include "mscclpp/sim/run.hpp"

using namespace mscclpp;

namespace {

struct TracedKernel {
  MSCCLPP_DEVICE void operator()(PortChannelDeviceHandle const& channel) const {
    channel.putWithSignalAndFlush(0, 0, 48);
    channel.wait();
  }
};

void swapOnce() {
  sim::run({.ranks = 2}, [](sim::RankContext& context) {
    Communicator communicator(context.bootstrap(), Device{DeviceKind::sim, context.device()});
    GpuBuffer<std::byte> const buffer(communicator.device(), 64);
    auto const mine = communicator.registerMemory(buffer.data(), buffer.bytes());
    auto const all = communicator.exchangeMemory(mine);
    int const peer = 1 - communicator.rank();
    ProxyService service(communicator);
    auto const semaphore = service.buildAndAddSemaphore(communicator.connect(peer));
    auto const target = service.addMemory(all[static_cast<std::size_t>(peer)]);
    auto const channel = service.portChannel(semaphore, target, service.addMemory(mine));
    service.startProxy();
    Stream const stream(communicator.device());
    launch(stream, {.blocks = 1, .threads = 1}, TracedKernel{}, channel.deviceHandle());
    communicator.synchronize(stream);
    service.stopProxy();
    communicator.bootstrap()->barrier();
  });
}

}  // namespace

TEST_CASE("a trace holds triggers, transfers, waits and kernels of every rank") {
  auto const file = "/tmp/mscclpp_trace_test_" + std::to_string(::getpid()) + ".json";
  Trace::start();
  swapOnce();
  Trace::stopAndWrite(file);
  CHECK(!Trace::on());
  std::ifstream in(file);
  auto const document = nlohmann::json::parse(in);
  std::remove(file.c_str());
  std::map<std::string, int> seen;
  for (auto const& event : document.at("traceEvents")) {
    auto const name = event.at("name").get<std::string>();
    auto const phase = event.at("ph").get<std::string>();
    int const rank = event.at("pid").get<int>();
    CHECK((rank == 0 || rank == 1));
    ++seen[phase + " " + (phase == "M" ? event.at("args").at("name").get<std::string>() : name)];
    if (phase != "X") continue;
    CHECK(event.at("dur").get<double>() > 0);
    CHECK(event.at("ts").get<double>() >= 0);
    if (name != "putWithSignalAndFlush") continue;
    CHECK(event.at("args").at("bytes") == 48);
    CHECK(event.at("args").at("peer") == 1 - rank);
    CHECK(event.at("args").at("channel") == 0);
  }
  CHECK(seen["i trigger: putWithSignalAndFlush"] == 2);
  CHECK(seen["X putWithSignalAndFlush"] == 2);
  CHECK(seen["X wait: synchronize"] == 2);
  CHECK(seen["X (anonymous namespace)::TracedKernel"] == 2);
  for (auto const* track : {"proxy 0", "host", "kernels"}) CHECK(seen[std::string("M ") + track] == 2);
}

// Rank 1 waits for rank 0.
struct RelayKernel {
  MSCCLPP_DEVICE void operator()(BaseMemoryChannelDeviceHandle const& channel, int rank) const {
    allowNextKernel();
    waitForPreviousKernel();
    if (thisGrid().rank() == 0 && rank == 0) channel.signal();
    if (thisGrid().rank() == 0 && rank == 1) channel.wait();
    thisBlock().sync();
  }
};

TEST_CASE("a timed run is traced by its own clocks: kernels, copies, blocks and what they wait for") {
  constexpr int calls = 3;
  auto const file = "/tmp/mscclpp_trace_test_" + std::to_string(::getpid()) + ".json";
  Trace::start();
  auto const summary = sim::run({.ranks = 2, .timing = sim::TimingModel::h200()}, [](sim::RankContext& context) {
    Device const device{DeviceKind::sim, context.device()};
    Communicator communicator(context.bootstrap(), device);
    BaseMemoryChannel const channel(communicator.buildSemaphore(1 - context.rank()));
    GpuBuffer<std::byte> const from(device, 4096), to(device, 4096);
    Stream const stream(device);
    stream.copy(to.data(), from.data(), 4096);
    for (int call = 0; call < calls; ++call) {
      launch(stream, {.blocks = 2, .threads = 64, .overlapPrevious = call > 0}, RelayKernel{}, channel.deviceHandle(),
             context.rank());
    }
    communicator.synchronize(stream);
    communicator.bootstrap()->barrier();
  });
  Trace::stopAndWrite(file);
  std::ifstream in(file);
  auto const document = nlohmann::json::parse(in);
  std::remove(file.c_str());
  std::map<std::string, int> seen;
  std::map<std::pair<int, int>, std::vector<std::pair<long long, long long>>> spans;  // by rank and track
  long long first = std::numeric_limits<long long>::max(), last = 0;
  auto const nanoseconds = [](nlohmann::json const& microseconds) {
    return std::llround(microseconds.get<double>() * 1e3);
  };
  for (auto const& event : document.at("traceEvents")) {
    auto const name = event.at("name").get<std::string>();
    if (event.at("ph") == "M") {
      ++seen[event.at("args").at("name")];
      continue;
    }
    ++seen[fmt::format("{} {}", event.at("pid").get<int>(), name.substr(0, name.find(" on channel")))];
    auto const begin = nanoseconds(event.at("ts")), end = begin + nanoseconds(event.at("dur"));
    spans[{event.at("pid"), event.at("tid")}].emplace_back(begin, end);
    first = std::min(first, begin);
    last = std::max(last, end);
  }
  // Each kernel as a whole and by its two blocks.
  for (int rank : {0, 1}) {
    CHECK(seen[fmt::format("{} RelayKernel", rank)] == 3 * calls);
    CHECK(seen[fmt::format("{} copy of 4096 bytes", rank)] == 1);
    CHECK(seen[fmt::format("{} waits for the previous kernel", rank)] >= calls - 1);
  }
  CHECK(seen["0 waits for a signal of rank 1"] == 0);
  CHECK(seen["1 waits for a signal of rank 0"] >= 1);
  for (auto const* track : {"kernels", "kernels, overlapping 1", "block 0", "block 1", "copies"})
    CHECK(seen[track] == 2);
  CHECK(static_cast<double>(last - first) <= summary.nanoseconds);  // not the simulator's own time
  // A viewer draws spans of one track one behind the other or one in the other.
  for (auto const& [track, all] : spans) {
    for (auto const& [begin, end] : all) {
      for (auto const& [other, otherEnd] : all) CHECK_FALSE((begin < other && other < end && end < otherEnd));
    }
  }
}

TEST_CASE("nothing is recorded unless asked for, and a file that cannot be written is an error") {
  swapOnce();
  Trace::start();
  auto const file = "/tmp/mscclpp_trace_test_" + std::to_string(::getpid()) + ".json";
  Trace::stopAndWrite(file);
  std::ifstream in(file);
  CHECK(nlohmann::json::parse(in).at("traceEvents").empty());
  std::remove(file.c_str());
  CHECK_THROWS_WITH_AS(Trace::stopAndWrite("/no/such/folder/trace.json"),
                       doctest::Contains("cannot write the trace to \"/no/such/folder/trace.json\""), Error);
}
