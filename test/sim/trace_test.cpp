// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The timeline of a small run, read back.
#include "mscclpp/host/trace.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "mscclpp/device/device_handle.hpp"
#include "mscclpp/host/error.hpp"
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
