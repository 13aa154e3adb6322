// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Programs and plans in a collection: chosen, run with what is kept between calls, refused where they do not fit.
#include "mscclpp/dsl/algorithm.hpp"

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "dsl/channel_programs.hpp"
#include "dsl/programs.hpp"
#include "mscclpp/collectives/algorithm_collection.hpp"
#include "mscclpp/collectives/contexts.hpp"
#include "support/reference.hpp"
#include "support/world.hpp"

using namespace dsl_test;
using namespace mscclpp_test;

namespace {

auto compiled() {
  return dsl::programAlgorithm<OneShotPackets<4>, dsl::Types<float, BFloat16>, dsl::Operations<Sum, Max>>();
}

struct OfItsOwn {
  static constexpr dsl::Spec spec{.name = "of_its_own", .collective = dsl::custom(2, 1, 1)};
  static constexpr void define(dsl::Builder& p) {
    for (int r = 0; r < 2; ++r) {
      p.rank(r).copy(p.rank(r).output()[0], p.rank(r).input()[0]);
      p.expect(p.rank(r).output()[0], {p.rank(r).input()[0]});
    }
  }
};

// An all-reduce in place of numbers whose sum is exact, its results compared. No doctest CAPTURE: ranks take turns, and
// it keeps one stack for all.
template <class T, class Op>
void checkAllReduce(Rank& rank, AlgorithmCollection const& algorithms, std::size_t count, std::uint64_t seed,
                    GpuBuffer<T> const* buffer = nullptr) {
  std::vector<std::vector<T>> inputs;
  for (std::size_t r = 0; r < static_cast<std::size_t>(rank.size); ++r) {
    auto& input = inputs.emplace_back(count);
    for (std::size_t i = 0; i < count; ++i)
      input[i] = convertNumber<T>(static_cast<float>((7 * i + 5 * r + seed) % 16));
  }
  std::optional<GpuBuffer<T>> own;
  if (buffer == nullptr) buffer = &own.emplace(rank.device, count);
  copyToDevice(*buffer, std::span<T const>(inputs[static_cast<std::size_t>(rank.rank)]));
  algorithms.execute(mscclpp::Collective::allReduce, rank.communicator, rank.stream,
                     {.in = buffer->data(),
                      .out = buffer->data(),
                      .inBytes = count * sizeof(T),
                      .outBytes = count * sizeof(T),
                      .type = dataTypeOf<T>(),
                      .op = reduceOpOf<Op>(),
                      .symmetric = true});
  rank.synchronize();
  std::vector<T> expected;
  for (auto const total : reduceInRankOrder<DefaultAccumulator<T>, Op>(inputs)) {
    expected.push_back(convertNumber<T>(total));
  }
  std::vector<T> found(count);
  copyToHost(std::span<T>(found), *buffer);
  CHECK(countDifferent(found, expected) == 0);
}

std::string refusalOf(Rank& rank, Algorithm const& algorithm, CollectiveCall const& call) {
  try {
    algorithm.execute(rank.communicator, rank.stream, call);
  } catch (Error const& error) {
    CHECK(error.code() == ErrorCode::invalidUsage);
    CHECK(std::string(error.what()).find(algorithm.name()) != std::string::npos);
    return algorithm.refusal(rank.communicator, call);
  }
  return {};
}

bool contains(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a selector chooses programs and plans like the library's algorithms") {
  if (!canRun(4)) return;
  dsl::ExecutionPlan const pull(dsl::build<PullPushAllReduce<4>>());
  forEachRank(4, [&](Rank& rank) {
    AlgorithmCollection algorithms;
    algorithms.add(compiled());
    algorithms.add(dsl::planAlgorithm(pull));
    CHECK(algorithms.names(mscclpp::Collective::allReduce) ==
          std::vector<std::string>{"oneshot_packets", "pull_push_allreduce"});
    std::vector<std::string> asked;
    algorithms.setSelector([&asked](SelectionRequest const& request) -> std::optional<Selection> {
      asked.push_back(request.bytes <= 4096 ? "oneshot_packets" : "pull_push_allreduce");
      return Selection{.algorithm = asked.back()};
    });
    checkAllReduce<float, Sum>(rank, algorithms, 1000, 1);
    checkAllReduce<BFloat16, Max>(rank, algorithms, 77, 2);
    checkAllReduce<float, Max>(rank, algorithms, 3, 3);
    checkAllReduce<float, Sum>(rank, algorithms, 3000, 4);
    CHECK(asked.size() == 4);
    CHECK(asked.back() == "pull_push_allreduce");
    releaseContexts(rank.communicator);
  });
}

TEST_CASE("what calls need is kept by size, and by buffer where ranks touch each other's") {
  if (!canRun(4)) return;
  dsl::ExecutionPlan const pull(dsl::build<PullPushAllReduce<4>>());
  forEachRank(4, [&](Rank& rank) {
    AlgorithmCollection scratch;
    scratch.add(compiled());
    scratch.setSelector([](SelectionRequest const&) { return Selection{.algorithm = "oneshot_packets"}; });
    checkAllReduce<float, Sum>(rank, scratch, 1000, 1);
    checkAllReduce<float, Sum>(rank, scratch, 900, 2);
    CHECK(contextCounts(rank.communicator).native == 1);
    checkAllReduce<float, Sum>(rank, scratch, 1025, 3);
    CHECK(contextCounts(rank.communicator).native == 2);
    releaseContexts(rank.communicator);

    AlgorithmCollection direct;
    direct.add(dsl::planAlgorithm(pull));
    direct.setSelector([](SelectionRequest const&) { return Selection{.algorithm = "pull_push_allreduce"}; });
    std::optional<GpuBuffer<float>> data(std::in_place, rank.device, 500u);
    checkAllReduce<float, Sum>(rank, direct, 500, 4, &*data);
    checkAllReduce<float, Sum>(rank, direct, 500, 5, &*data);
    CHECK(contextCounts(rank.communicator).native == 1);
    // Other memory, wherever it lies.
    data.reset();
    rank.communicator.bootstrap()->barrier();
    GpuBuffer<float> const between(rank.device, 500u * (1u + static_cast<unsigned>(rank.rank) % 2u));
    data.emplace(rank.device, 500u);
    checkAllReduce<float, Sum>(rank, direct, 500, 6, &*data);
    CHECK(contextCounts(rank.communicator).native == 2);
    releaseContexts(rank.communicator);
  });
}

TEST_CASE("calls that do not fit are refused with the reason") {
  if (!canRun(2)) return;
  dsl::ExecutionPlan const pull(dsl::build<PullPushAllReduce<2>>());
  forEachRank(2, [&](Rank& rank) {
    auto const four = compiled();
    auto const two = dsl::programAlgorithm<OneShotPackets<2>, dsl::Types<float>>();
    auto const direct = dsl::planAlgorithm(pull);
    GpuBuffer<float> const data(rank.device, 64);
    CollectiveCall const right{.in = data.data(),
                               .out = data.data(),
                               .inBytes = 256,
                               .outBytes = 256,
                               .type = DataType::float32,
                               .op = ReduceOp::sum,
                               .symmetric = true};
    CHECK(two->refusal(rank.communicator, right).empty());
    CHECK(contains(refusalOf(rank, *four, right), "4 ranks, the communicator has 2"));
    auto call = right;
    call.type = DataType::float16;
    CHECK(contains(refusalOf(rank, *two, call), "other types than float16"));
    CHECK(direct->refusal(rank.communicator, call).empty());
    call = right;
    call.op = ReduceOp::max;
    CHECK(contains(refusalOf(rank, *two, call), "other operations than max"));
    CHECK(direct->refusal(rank.communicator, call).empty());
    call = right;
    call.symmetric = false;
    CHECK(two->refusal(rank.communicator, call).empty());
    CHECK(contains(refusalOf(rank, *direct, call), "`symmetric`"));
    call = right;
    call.blocks = 3;
    CHECK(contains(refusalOf(rank, *two, call), "leave them 0"));
    call = right;
    call.rankOrder = true;
    CHECK(contains(refusalOf(rank, *two, call), "in the order of its steps"));
    call = right;
    call.outBytes = 128;
    CHECK(contains(refusalOf(rank, *two, call), "256 bytes of output"));
  });
}

TEST_CASE("a collective of one's own has no place in a collection") {
  try {
    (void)dsl::programAlgorithm<OfItsOwn>();
    FAIL("it was taken");
  } catch (Error const& error) {
    CHECK(error.code() == ErrorCode::invalidUsage);
    CHECK(contains(error.what(), "of_its_own"));
  }
}

#if !defined(__CUDACC__)
namespace {

// Hosts of the simulated machine with so many ranks each, the last one with what is left.
void onHosts(int ranks, int perHost, std::function<void(Rank&)> const& body) {
  sim::install({.devices = (ranks + perHost - 1) / perHost * perHost, .devicesPerNode = perHost});
  forEachRank(ranks, body);
  sim::install({.devices = 2});
}

AlgorithmCollection withTwoHosts() {
  auto algorithms = AlgorithmCollection::defaults();
  algorithms.prefer(dsl::planAlgorithm(dsl::ExecutionPlan(dsl::build<TwoHostsAllReduce>())));
  algorithms.prefer(dsl::programAlgorithm<TwoHostsAllGather, dsl::Types<float, std::int32_t>>());
  return algorithms;
}

// All-gather apart of small whole numbers, its results and what lies behind them compared.
void checkAllGather(Rank& rank, AlgorithmCollection const& algorithms, std::size_t count, std::int32_t seed) {
  auto const ranks = static_cast<std::size_t>(rank.size);
  auto const value = [&](std::size_t r, std::size_t i) { return static_cast<std::int32_t>(1000 * r + i) + seed; };
  GpuBuffer<std::int32_t> const in(rank.device, count), out(rank.device, ranks * count + 8);
  std::vector<std::int32_t> input, expected;
  for (std::size_t i = 0; i < count; ++i) input.push_back(value(static_cast<std::size_t>(rank.rank), i));
  for (std::size_t i = 0; i < ranks * count; ++i) expected.push_back(value(i / count, i % count));
  expected.resize(out.size(), -1);
  copyToDevice(in, std::span<std::int32_t const>(input));
  out.fill(0xff);
  algorithms.execute(mscclpp::Collective::allGather, rank.communicator, rank.stream,
                     {.in = in.data(),
                      .out = out.data(),
                      .inBytes = in.bytes(),
                      .outBytes = ranks * in.bytes(),
                      .type = DataType::int32,
                      .symmetric = true});
  rank.synchronize();
  CHECK(countDifferent(copyToHost(out), expected) == 0);
}

// What the collection takes for an all-reduce of 64 floats in place.
std::string chosen(Rank& rank, AlgorithmCollection const& algorithms, GpuBuffer<float> const& data) {
  return algorithms
      .choose(mscclpp::Collective::allReduce, rank.communicator,
              {.in = data.data(),
               .out = data.data(),
               .inBytes = data.bytes(),
               .outBytes = data.bytes(),
               .type = DataType::float32,
               .op = ReduceOp::sum,
               .symmetric = true})
      .algorithm;
}

// Ranks 0 and 1 have a memory channel; rank 2 has none.
struct NeighboursMeet {
  static constexpr dsl::Spec spec{.name = "neighbours_meet", .collective = dsl::custom(3, 1, 1), .threads = 64};
  static constexpr void define(dsl::Builder& p) {
    for (int rank = 0; rank < 2; ++rank) {
      auto channel = p.memoryChannel(1 - rank, rank);
      channel.signal({.relaxed = true});
      channel.wait({.relaxed = true});
    }
    p.rank(2).copy(p.rank(2).output()[0], p.rank(2).input()[0]);
    p.expect(p.rank(2).output()[0], {p.rank(2).input()[0]});
  }
};

}  // namespace

TEST_CASE("programs and plans of two hosts are chosen and run on two hosts, and on one") {
  auto const body = [](Rank& rank) {
    auto const algorithms = withTwoHosts();
    GpuBuffer<float> const data(rank.device, 64);
    CHECK(chosen(rank, algorithms, data) == "two_hosts_allreduce");
    std::uint64_t seed = 0;
    for (std::size_t const count : {1000, 7, 900, 3}) {
      checkAllReduce<float, Sum>(rank, algorithms, count, ++seed);
      checkAllReduce<BFloat16, Max>(rank, algorithms, count, ++seed);
      checkAllGather(rank, algorithms, count, static_cast<std::int32_t>(++seed));
    }
    releaseContexts(rank.communicator);
  };
  onHosts(4, 2, body);
  onHosts(4, 4, body);
}

TEST_CASE("plans for other hosts are refused in words, and the next algorithm is taken") {
  auto const body = [](Rank& rank, std::string const& why) {
    auto const algorithms = withTwoHosts();
    GpuBuffer<float> const data(rank.device, 64);
    auto const& plan = *algorithms.at(mscclpp::Collective::allReduce, "two_hosts_allreduce");
    auto const refusal = refusalOf(rank, plan,
                                   {.in = data.data(),
                                    .out = data.data(),
                                    .inBytes = data.bytes(),
                                    .outBytes = data.bytes(),
                                    .type = DataType::float32,
                                    .op = ReduceOp::sum});
    CHECK_MESSAGE(contains(refusal, why), refusal);
    CHECK(chosen(rank, algorithms, data) == "two_level");
  };
  auto const apart = [](char const* ranks) {
    return "it has a memory channel between " + std::string(ranks) +
           ", which are on different hosts; use a port channel there";
  };
  onHosts(4, 1, [&](Rank& rank) { body(rank, apart("rank 0 and rank 1")); });
  onHosts(4, 3, [&](Rank& rank) { body(rank, apart("rank 2 and rank 3")); });
  onHosts(6, 2, [&](Rank& rank) { body(rank, "it is for 4 ranks, the communicator has 6"); });
}

TEST_CASE("programs whose switch channels or steps join two hosts are refused") {
  std::vector<int> const apart{0, 1};
  CHECK(dsl::hostsRefusal(dsl::build<SwitchAllReduce<2>>(), {0, 0}).empty());
  CHECK(dsl::hostsRefusal(dsl::build<SwitchAllReduce<2>>(), {}).empty());
  CHECK(contains(dsl::hostsRefusal(dsl::build<PullPushAllReduce<2>>(), apart), "memory channel between rank 0 and"));
  CHECK(dsl::hostsRefusal(dsl::build<PortAllGather<2>>(), apart).empty());
  auto program = dsl::build<SwitchAllReduce<2>>();
  // Without the memory channels, of which it has some as well.
  for (auto& rank : program.ranks) {
    std::erase_if(rank.channels, [](auto const& channel) { return channel.kind == dsl::ChannelKind::memory; });
  }
  CHECK(contains(dsl::hostsRefusal(program, apart), "it has a switch channel of rank 0 and rank 1"));
  for (auto& rank : program.ranks) rank.channels.clear();
  CHECK(contains(dsl::hostsRefusal(program, apart), "it has a step that moves data between rank 0 and rank 1"));
}

// A rank that has no such channel itself would wait for the others.
TEST_CASE("every rank refuses a context of a program that joins two hosts") {
  onHosts(3, 1, [](Rank& rank) {
    CHECK_THROWS_WITH_AS(dsl::PlanContext(rank.communicator, dsl::build<NeighboursMeet>(), 64),
                         doctest::Contains("memory channel between rank 0 and rank 1"), Error);
  });
}
#endif
