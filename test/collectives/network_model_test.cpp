// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The model of collectives in two levels: figures that can be seen, growth, one node, what it refuses; its files, and
// what follows from them.
#include "mscclpp/collectives/network_model.hpp"

#include <cstdlib>
#include <limits>
#include <string>

#include "collectives/call/two_level.hpp"
#include "collectives/ranks.hpp"
#include "support/temporary_folder.hpp"

using namespace mscclpp_test;

namespace {

constexpr std::uint64_t mega = 1'000'000;

// Round figures: 16 us around a call, a barrier of 4, 100 GB/s to the peers of the node from many blocks, 50 from them.
MachineModel roundModel() {
  MachineModel model;
  model.device = "Round";
  model.multiprocessors = 1000;
  model.kernelTime = 6e-6;
  model.launchGap = 2e-6;
  model.barrierTime = 4e-6;
  model.storeRate = 100e9;
  model.storeRamp = 0;
  model.loadRate = 50e9;
  model.blockRate = 1000e9;
  model.memoryRate = 1e18;
  return model;
}
NetworkModel const network{.messageTime = 10e-6, .transferTime = 1e-6, .railRate = 10e9};

TwoLevelTime of(Collective collective, int nodes, int rails, std::uint64_t bytes) {
  auto const time = predictTwoLevel(
      roundModel(), network,
      {.nodes = nodes, .rails = rails, .collective = collective, .bytes = bytes, .blocks = 1000, .threads = 512});
  REQUIRE(time.has_value());
  return *time;
}

}  // namespace

TEST_CASE("times that can be added up") {
  // 8 ranks, parts of 1 MB: rendezvous and message 20, two more transfers 2, 3 MB at 10 GB/s 300; to the node 10
  // and 30.
  auto const gather = of(Collective::allGather, 4, 2, 8 * mega);
  CHECK(gather.seconds * 1e6 == doctest::Approx(16 + 322 + 4 + 30));
  CHECK(gather.network * 1e6 == doctest::Approx(322 - 10));
  // Shards of 4 MB: loaded 80; twice 3 nodes' pieces of 1 MB 300, message and transfers 12, two barriers; stored 40.
  auto const reduce = of(Collective::allReduce, 4, 2, 8 * mega);
  CHECK(reduce.seconds * 1e6 == doctest::Approx(16 + 80 + 2 * (4 + 312 + 4) + 40));
  CHECK(reduce.network * 1e6 == doctest::Approx(624));
  // Shards of 4 KB in one exchange: 3 nodes' 12 KB 1.2, message and transfers 12.
  auto const small = of(Collective::allReduce, 4, 2, 8000);
  CHECK(small.network * 1e6 == doctest::Approx(13.2));
  // The node's 4 MB of each rail loaded 80, between two barriers 3 times 1 MB.
  auto const scattered = of(Collective::reduceScatter, 4, 2, 8 * mega);
  CHECK(scattered.seconds * 1e6 == doctest::Approx(16 + 80 + 8 + 312 + 0.005));
  // 4 MB to the other rank of the node 40, then 3 times 2 MB.
  auto const all = of(Collective::allToAll, 4, 2, 8 * mega);
  CHECK(all.seconds * 1e6 == doctest::Approx(16 + 40 + 12 + 612 + 0.008));
  CHECK(all.network * 1e6 == doctest::Approx(612));
}

TEST_CASE("all-reduce by each schedule between nodes, of which the fastest is taken") {
  auto const by = [](std::optional<NodeSchedule> schedule, int nodes, std::uint64_t bytes) {
    auto const time = predictTwoLevel(
        roundModel(), network,
        {.nodes = nodes, .rails = 2, .bytes = bytes, .blocks = 1000, .threads = 512, .schedule = schedule});
    REQUIRE(time.has_value());
    if (schedule) CHECK(time->schedule == *schedule);
    return *time;
  };
  // Around it 16, shards of 4 MB loaded 80 and stored 40; each barrier 4.
  auto const seconds = [&](NodeSchedule schedule) { return by(schedule, 4, 8 * mega).seconds * 1e6 - 136; };
  CHECK(seconds(NodeSchedule::oneExchange) == doctest::Approx(2 * 4 + 12 + 1200));
  CHECK(seconds(NodeSchedule::twoExchanges) == doctest::Approx(4 * 4 + 2 * (12 + 300)));
  // Six messages of 1 MB; two of 4 MB; two of 2 MB and of 1 MB.
  CHECK(seconds(NodeSchedule::ring) == doctest::Approx(7 * 4 + 6 * (10 + 100)));
  CHECK(seconds(NodeSchedule::doubling) == doctest::Approx(5 * 4 + 2 * (10 + 400)));
  CHECK(seconds(NodeSchedule::halving) == doctest::Approx(5 * 4 + 4 * 10 + 2 * (200 + 100)));
  for (int const nodes : {1, 2, 3, 16, 100, 128}) {
    for (std::uint64_t bytes = 1 << 10; bytes <= std::uint64_t{1} << 30; bytes *= 32) {
      auto const taken = by(std::nullopt, nodes, bytes);
      REQUIRE(taken.schedule.has_value());
      for (auto const schedule : nodeSchedules) CHECK(by(schedule, nodes, bytes).seconds >= taken.seconds);
      CHECK(by(*taken.schedule, nodes, bytes).seconds == taken.seconds);
    }
  }
  CHECK(by(std::nullopt, 4, 1 << 10).schedule == NodeSchedule::oneExchange);
  CHECK(by(std::nullopt, 128, 1 << 10).schedule == NodeSchedule::doubling);
}

TEST_CASE("one node has no network") {
  for (auto collective :
       {Collective::allGather, Collective::allReduce, Collective::reduceScatter, Collective::allToAll}) {
    auto const time = of(collective, 1, 8, 8 * mega);
    CHECK(time.network == 0);
    CHECK(time.seconds > 16e-6);
  }
  CHECK(of(Collective::allGather, 1, 8, 8 * mega).seconds * 1e6 == doctest::Approx(16 + 70));
}

TEST_CASE("up to 1,024 ranks: more bytes and more nodes take longer") {
  for (auto collective :
       {Collective::allGather, Collective::allReduce, Collective::reduceScatter, Collective::allToAll}) {
    double fewer = 0;
    for (int nodes : {1, 2, 4, 16, 128}) {
      double less = 0;
      for (std::uint64_t bytes = 1 << 10; bytes <= std::uint64_t{1} << 30; bytes *= 32) {
        auto const now = of(collective, nodes, 8, bytes).seconds;
        CHECK(now > less);
        less = now;
      }
      CHECK(of(collective, nodes, 8, 1 << 10).seconds > fewer);
      fewer = of(collective, nodes, 8, 1 << 10).seconds;
    }
  }
}

TEST_CASE("what cannot be is refused, what there is not has no time") {
  auto const refused = [](NetworkModel const& figures, TwoLevelQuery const& query) {
    try {
      (void)predictTwoLevel(roundModel(), figures, query);
    } catch (Error const& error) {
      CHECK(error.code() == ErrorCode::invalidUsage);
      return std::string(error.what());
    }
    return std::string();
  };
  auto const has = [](std::string const& text, char const* part) { return text.find(part) != std::string::npos; };
  CHECK(has(refused(network, {.nodes = 0}), "the number of nodes is 0"));
  CHECK(has(refused(network, {.rails = 0}), "the number of ranks of a node is 0"));
  CHECK(has(refused(network, {.blocks = 0}), "the number of blocks is 0"));
  CHECK(has(refused(network, {.threads = 1025}), "the number of threads is 1025"));
  CHECK(has(refused({10e-6, 1e-6, 0}, {}), "railRate is 0"));
  CHECK(has(refused({-1, 1e-6, 1}, {}), "messageTime is -1"));
  CHECK(has(refused({1, std::numeric_limits<double>::quiet_NaN(), 1}, {}), "transferTime is nan"));
  CHECK_FALSE(predictTwoLevel(roundModel(), network, {.collective = Collective::broadcast}).has_value());
}

namespace {

NetworkModel const ofTcp{.messageTime = 20e-6, .transferTime = 5e-6, .railRate = 2.5e9, .transport = "tcp"};

}  // namespace

// Before the next: the files are read once in a process.
TEST_CASE("the exchange is chosen by what was measured, unless the user says otherwise") {
  TemporaryFolder const folder;
  ofTcp.save(folder.file("tcp.json"));
  NetworkModel const ofNodes{.messageTime = 3e-6, .transferTime = 1e-6, .railRate = 1e9, .transport = "memory"};
  ofNodes.save(folder.file("nodes.json"));
  ::setenv("MSCCLPP_MODEL", (folder.file("tcp.json") + ":" + folder.file("missing.json")).c_str(), 1);
  checkContains(errorOf([] { (void)NetworkModel::of(Transport::tcp); }, ErrorCode::invalidUsage),
                "MSCCLPP_MODEL names " + folder.file("missing.json") + ", which is not there");
  ::setenv("MSCCLPP_MODEL", (folder.file("tcp.json") + ":" + folder.file("nodes.json")).c_str(), 1);
  REQUIRE(NetworkModel::of(Transport::tcp) != nullptr);
  CHECK(NetworkModel::of(Transport::tcp)->messageBytes() == 50'000);
  CHECK(NetworkModel::of(Transport::ib) == nullptr);
  CHECK(MachineModel::of("NVIDIA H200") == *MachineModel::builtIn("NVIDIA H200"));

  sim::install({.devices = 4, .devicesPerNode = 2});
  forEachRankOn(DeviceKind::sim, 4, [](Communicator& communicator) {
    auto const bytes = collectives_impl::networkBytes(communicator);
    CHECK(bytes.message == 3000);
    CHECK(bytes.transfer == 1000);
  });
  ::setenv("MSCCLPP_MESSAGE_BYTES", "1234", 1);
  forEachRankOn(DeviceKind::sim, 4, [](Communicator& communicator) {
    auto const bytes = collectives_impl::networkBytes(communicator);
    CHECK(bytes.message == 1234);
    CHECK(bytes.transfer == 1000);
  });
  ::setenv("MSCCLPP_MESSAGE_BYTES", "much", 1);
  forEachRankOn(DeviceKind::sim, 4, [](Communicator& communicator) {
    checkContains(errorOf([&] { (void)collectives_impl::networkBytes(communicator); }, ErrorCode::invalidUsage),
                  "MSCCLPP_MESSAGE_BYTES");
  });
  ::unsetenv("MSCCLPP_MESSAGE_BYTES");
  // One node has no network.
  sim::install({.devices = 2});
  forEachRankOn(DeviceKind::sim, 2, [](Communicator& communicator) {
    CHECK_FALSE(collectives_impl::networkBytes(communicator).message.has_value());
  });
}

TEST_CASE("a network's file is read as it was written") {
  TemporaryFolder const folder;
  ofTcp.save(folder.file("tcp.json"));
  auto const again = NetworkModel::load(folder.file("tcp.json"));
  CHECK(again.transport == "tcp");
  CHECK(again.messageTime == doctest::Approx(20e-6));
  CHECK(again.transferTime == doctest::Approx(5e-6));
  CHECK(again.railRate == doctest::Approx(2.5e9));
  CHECK(again.json() == ofTcp.json());
  CHECK(NetworkModel{.messageTime = 1e3, .transferTime = 0, .railRate = 1e18}.messageBytes() == std::uint64_t{1} << 40);
  checkContains(errorOf([&] { ofTcp.save(folder.file("none/tcp.json")); }, ErrorCode::systemError),
                "none/tcp.json: it cannot be written");
}

TEST_CASE("a network's file that cannot be right is refused with the place and what is allowed") {
  auto const refused = [](std::string const& old, std::string const& text) {
    auto json = ofTcp.json();
    auto const at = json.find(old);
    REQUIRE(at != std::string::npos);
    json.replace(at, old.size(), text);
    return errorOf([&] { (void)NetworkModel::parse(json, "x.json"); }, ErrorCode::invalidUsage);
  };
  checkContains(refused("{", "["), "model x.json: it is no JSON");
  checkContains(refused("\"version\": 1", "\"version\": 2"), "version is 2; allowed is a whole number from 1 to 1");
  checkContains(refused("\"network\"", "\"device\""),
                "model x.json: the file has no \"network\"; mscclpp-bench --limits=FILE writes one");
  checkContains(refused("\"tcp\"", "\"pigeons\""), "network is \"pigeons\"; allowed is memory, ib or tcp");
  checkContains(refused("\"message_us\"", "\"message\""), "parameters has no \"message_us\"");
  checkContains(refused("20.0", "-1"), "message_us is -1; allowed is a number from 0 to 1e+09");
  checkContains(refused("2.5", "0"), "rail_gbps is 0; allowed is a number above 0 and at most 1e+09");
  checkContains(refused("2.5", "2.5, \"more\": 1"), "there is no parameter \"more\", but message_us, transfer_us");
}
