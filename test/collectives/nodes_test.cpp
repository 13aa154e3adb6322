// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Collectives of ranks on several simulated nodes, started from the host as on one.
#include <atomic>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "collectives/every_collective.hpp"
#include "mscclpp/collectives/reduce_op_type.hpp"
#include "mscclpp/collectives/world.hpp"
#include "mscclpp/layout/node_schedule.hpp"

using namespace mscclpp_test;

namespace {

struct Shape {
  int nodes;
  int rails;
  int largestHost = rails;
};
// The last two are hosts of 2 and 1, and of 4 and 2 ranks.
constexpr Shape shapes[] = {{2, 1}, {2, 2}, {3, 1}, {2, 3}, {3, 1, 2}, {3, 2, 4}};

void onNodes(Shape const& shape, std::function<void(Communicator&)> const& body) {
  int const ranks = shape.nodes * shape.rails;
  sim::install({.devices = (ranks + shape.largestHost - 1) / shape.largestHost * shape.largestHost,
                .devicesPerNode = shape.largestHost});
  forEachRankOn(DeviceKind::sim, ranks, body);
}

// Small numbers, of which every type has all sums and products.
template <class T, class Op>
void checkOperation(Communicator const& communicator, Stream const& stream, AlgorithmCollection const& algorithms,
                    std::size_t count = 37) {
  std::vector<std::vector<T>> inputs;
  for (int r = 0; r < communicator.size(); ++r) {
    inputs.emplace_back();
    for (std::size_t i = 0; i < count; ++i) {
      inputs.back().push_back(convertNumber<T>(static_cast<float>((i + static_cast<std::size_t>(r)) % 3)));
    }
  }
  std::vector<T> expected;
  for (auto const& total : reduceInRankOrder<DefaultAccumulator<T>, Op>(inputs)) {
    expected.push_back(convertNumber<T>(total));
  }
  GpuBuffer<T> const data(communicator.device(), count);
  copyToDevice(data, std::span<T const>(inputs[static_cast<std::size_t>(communicator.rank())]));
  algorithms.execute(Collective::allReduce, communicator, stream,
                     {.in = data.data(),
                      .out = data.data(),
                      .inBytes = data.bytes(),
                      .outBytes = data.bytes(),
                      .type = dataTypeOf<T>(),
                      .op = reduceOpOf<Op>()});
  communicator.synchronize(stream);
  CHECK_MESSAGE(countDifferent(copyToHost(data), expected) == 0, nameOf(reduceOpOf<Op>()), " of ",
                nameOf(dataTypeOf<T>()));
}

}  // namespace

TEST_CASE("every collective, in place and apart, in one round and in several") {
  for (auto const& shape : shapes) {
    onNodes(shape, [&](Communicator& communicator) {
      auto const algorithms = AlgorithmCollection::defaults();
      CHECK(World::of(communicator).nodes == shape.nodes);
      Stream const stream(communicator.device());
      std::uint64_t seed = 0;
      for (auto collective : collectives) {
        if (collective == Collective::barrier) continue;
        for (std::size_t const count : {1, 333, 5000}) {
          for (bool separate : {true, false}) {
            int const root = static_cast<int>(++seed % static_cast<std::uint64_t>(communicator.size()));
            Exchange const exchange(communicator, collective, count, root, separate, seed, false,
                                    static_cast<std::size_t>(shape.rails));
            auto call = exchange.call(false);
            call.rankOrder = !reduces(collective);  // what is moved is not rounded
            CHECK(algorithms.choose(collective, communicator, call).algorithm == "two_level");
            for (int again = 0; again < (separate ? 2 : 1); ++again) {
              algorithms.execute(collective, communicator, stream, call);
            }
            communicator.synchronize(stream);
            CHECK_MESSAGE(exchange.wrong() == 0, nameOf(collective), " count ", count,
                          separate ? " apart" : " in place", " root ", root, " of ", shape.nodes, " x ", shape.rails,
                          " on hosts of up to ", shape.largestHost);
            communicator.bootstrap()->barrier();
          }
        }
      }
    });
  }
}

TEST_CASE("nodes that NVLink joins are one, whose ranks use each other's memory") {
  ::setenv("MSCCLPP_SIM_FABRIC", "rack", 1);
  onNodes({2, 2}, [](Communicator& communicator) {
    auto const algorithms = AlgorithmCollection::defaults();
    CHECK(World::of(communicator).nodes == 1);
    CHECK(World::of(communicator).hosts == std::vector{0, 0, 0, 0});
    CHECK(communicator.mappedKind() == MemoryKind::standard);  // of one process, which needs no handle
    Stream const stream(communicator.device());
    for (auto collective : collectives) {
      if (collective == Collective::barrier) continue;
      for (bool symmetric : {false, true}) {
        Exchange const exchange(communicator, collective, 333, 1, true, 5, false);
        auto call = exchange.call(symmetric);
        call.rankOrder = reduces(collective);
        CHECK(algorithms.choose(collective, communicator, call).algorithm != "two_level");
        algorithms.execute(collective, communicator, stream, call);
        communicator.synchronize(stream);
        CHECK_MESSAGE(exchange.wrong() == 0, nameOf(collective));
        communicator.bootstrap()->barrier();
      }
    }
  });
  ::unsetenv("MSCCLPP_SIM_FABRIC");
}

TEST_CASE("every operation over every type") {
  onNodes({2, 2}, [](Communicator& communicator) {
    auto const algorithms = AlgorithmCollection::defaults();
    Stream const stream(communicator.device());
    for (auto type : dataTypes) {
      for (auto op : reduceOps) {
        withDataType(type, [&]<class T>(std::type_identity<T>) {
          withReduceOp(
              op, [&]<class Op>(std::type_identity<Op>) { checkOperation<T, Op>(communicator, stream, algorithms); });
        });
      }
    }
  });
}

TEST_CASE("all-reduce by each schedule between nodes that the user names") {
  for (auto const schedule : nodeSchedules) {
    ::setenv("MSCCLPP_NODE_SCHEDULE", std::string(nameOf(schedule)).c_str(), 1);
    for (auto const& shape : {Shape{2, 2}, Shape{3, 1}, Shape{5, 1}}) {
      onNodes(shape, [](Communicator& communicator) {
        auto const algorithms = AlgorithmCollection::defaults();
        Stream const stream(communicator.device());
        for (auto const op : reduceOps) {
          withReduceOp(op, [&]<class Op>(std::type_identity<Op>) {
            checkOperation<float, Op>(communicator, stream, algorithms);
            checkOperation<BFloat16, Op>(communicator, stream, algorithms);
            checkOperation<std::int8_t, Op>(communicator, stream, algorithms);
          });
        }
        checkOperation<float, Sum>(communicator, stream, algorithms, 12000);  // in rounds
        communicator.bootstrap()->barrier();
      });
    }
  }
  // What lies between them goes out where the first two meet at last.
  for (bool const rankOrder : {false, true}) {
    ::setenv("MSCCLPP_NODE_SCHEDULE", "doubling", 1);
    onNodes({3, 1}, [&](Communicator& communicator) {
      constexpr float large = 1e8f;
      std::vector<float> const inputs{large, -large, 1};
      GpuBuffer<float> const data(communicator.device(), 1);
      copyToDevice(data, std::span(&inputs[static_cast<std::size_t>(communicator.rank())], 1));
      Stream const stream(communicator.device());
      AlgorithmCollection::defaults().execute(Collective::allReduce, communicator, stream,
                                              {.in = data.data(),
                                               .out = data.data(),
                                               .inBytes = data.bytes(),
                                               .outBytes = data.bytes(),
                                               .type = DataType::float32,
                                               .op = ReduceOp::sum,
                                               .rankOrder = rankOrder});
      communicator.synchronize(stream);
      CHECK(copyToHost(data)[0] == (rankOrder ? 1.0f : 0.0f));
      communicator.bootstrap()->barrier();
    });
  }
  ::setenv("MSCCLPP_NODE_SCHEDULE", "star", 1);
  onNodes({2, 1}, [](Communicator& communicator) {
    Stream const stream(communicator.device());
    checkContains(
        errorOf([&] { AlgorithmCollection::defaults().execute(Collective::barrier, communicator, stream, {}); },
                ErrorCode::invalidUsage),
        "MSCCLPP_NODE_SCHEDULE is \"star\"; allowed are one_exchange, two_exchanges, ring, doubling, halving");
    communicator.bootstrap()->barrier();
  });
  ::unsetenv("MSCCLPP_NODE_SCHEDULE");
}

TEST_CASE("a barrier holds all ranks of all nodes") {
  for (auto const& shape : shapes) {
    static std::atomic<int> came;
    came = 0;
    onNodes(shape, [](Communicator& communicator) {
      auto const algorithms = AlgorithmCollection::defaults();
      Stream const stream(communicator.device());
      for (int turn = 1; turn <= 3; ++turn) {
        ++came;
        algorithms.execute(Collective::barrier, communicator, stream, {});
        communicator.synchronize(stream);
        CHECK(came >= turn * communicator.size());
      }
      communicator.bootstrap()->barrier();
    });
  }
}

TEST_CASE("streams side by side") {
  onNodes({2, 2}, [](Communicator& communicator) {
    auto const algorithms = AlgorithmCollection::defaults();
    Stream const first(communicator.device()), second(communicator.device());
    Exchange const one(communicator, Collective::allReduce, 3000, 0, true, 1, false, 2);
    Exchange const two(communicator, Collective::allReduce, 4000, 0, true, 2, false, 2);
    for (int turn = 0; turn < 3; ++turn) {
      algorithms.execute(Collective::allReduce, communicator, first, one.call(false));
      algorithms.execute(Collective::allReduce, communicator, second, two.call(false));
    }
    communicator.synchronize(first);
    communicator.synchronize(second);
    CHECK(one.wrong() + two.wrong() == 0);
    communicator.bootstrap()->barrier();
  });
}

TEST_CASE("what cannot be over nodes is refused in words") {
  onNodes({2, 2}, [](Communicator& communicator) {
    auto const algorithms = AlgorithmCollection::defaults();
    Stream const stream(communicator.device());
    Exchange const exchange(communicator, Collective::allReduce, 10, 0, true, 1, false, 2);
    auto call = exchange.call(false);
    auto const refused = [&](char const* name) {
      return algorithms.at(Collective::allReduce, name)->refusal(communicator, call);
    };
    checkContains(refused("oneshot_ll16"), "several nodes; choose two_level");
    CHECK(refused("two_level").empty());
    call.blocks = 3;
    checkContains(refused("two_level"), "a shape of their own");
    call.blocks = 0;
    call.rankOrder = true;
    checkContains(refused("two_level"), "rounds each node's sums");
    checkContains(
        errorOf([&] { algorithms.execute(Collective::allReduce, communicator, stream, call); }, ErrorCode::unsupported),
        "two_level: it rounds");
    Exchange const ring(communicator, Collective::sendRecv, 10, 0, true, 1, false);
    checkContains(algorithms.at(Collective::sendRecv, "messages")->refusal(communicator, ring.call(false)),
                  "on several nodes two_level sends round the ring");
    communicator.bootstrap()->barrier();
  });
  // A rank for each node has the bits of rank order.
  onNodes({3, 1}, [](Communicator& communicator) {
    Exchange const exchange(communicator, Collective::allReduce, 10, 0, true, 1, false);
    auto call = exchange.call(false);
    call.rankOrder = true;
    CHECK(AlgorithmCollection::defaults().at(Collective::allReduce, "two_level")->refusal(communicator, call).empty());
    communicator.bootstrap()->barrier();
  });
  sim::install({.devices = 8});
  forEachRankOn(DeviceKind::sim, 2, [](Communicator& communicator) {
    Exchange const exchange(communicator, Collective::allReduce, 10, 0, true, 1, false);
    checkContains(AlgorithmCollection::defaults()
                      .at(Collective::allReduce, "two_level")
                      ->refusal(communicator, exchange.call(false)),
                  "all of these map each other's memory");
  });
}
