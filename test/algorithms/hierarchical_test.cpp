// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Collectives in two levels, on as many nodes as the machine has: one of GPUs, several of simulated ones.
#include "mscclpp/algorithms/hierarchical.hpp"

#include <string>
#include <vector>

#include "mscclpp/host/hierarchy.hpp"
#include "support/reference.hpp"
#include "support/world.hpp"

using namespace mscclpp_test;

namespace {

struct Shape {
  int nodes;
  int rails;
};

// Runs `body` on all ranks of so many nodes; GPUs are one node.
void forEachShape(std::vector<Shape> const& shapes, std::function<void(Rank&, Shape const&)> const& body) {
  for (auto const& shape : shapes) {
    CAPTURE(shape.nodes);
    CAPTURE(shape.rails);
    int const ranks = shape.nodes * shape.rails;
#if defined(__CUDACC__)
    if (shape.nodes != 1 || !canRun(ranks)) continue;
#else
    sim::install({.devices = ranks, .devicesPerNode = shape.rails});
#endif
    forEachRank(ranks, [&](Rank& rank) { body(rank, shape); });
  }
}

std::vector<Shape> const everyShape{{1, 2}, {2, 1}, {2, 2}, {3, 2}, {2, 4}};

struct GatherKernel {
  MSCCLPP_DEVICE void operator()(DeviceHierarchy const& h, std::uint64_t bytes, unsigned times) const {
    for (unsigned i = 0; i < times; ++i) hierarchicalAllGather(h, thisGrid(), bytes);
  }
};

template <class T, class Op>
struct ReduceKernel {
  MSCCLPP_DEVICE void operator()(DeviceHierarchy const& h, std::uint64_t count, unsigned times) const {
    for (unsigned i = 0; i < times; ++i) hierarchicalAllReduce<T, Op>(h, thisGrid(), count);
  }
};

}  // namespace

TEST_CASE("all-gather: every rank has every part") {
  for (std::size_t const bytes : {1, 100, 4096}) {
    CAPTURE(bytes);
    forEachShape(everyShape, [&](Rank& rank, Shape const& shape) {
      auto const size = static_cast<std::size_t>(rank.size);
      HierarchicalTeam const team(rank.communicator, {.blocks = 3, .bytes = bytes * size});
      CHECK(team.nodes() == shape.nodes);
      CHECK(team.rails() == shape.rails);
      auto const mine = randomInput<std::uint8_t>(1, rank.rank, bytes);
      auto* const data = reinterpret_cast<std::uint8_t*>(team.data());
      copyToDevice(rank.device, data + bytes * static_cast<std::size_t>(rank.rank), std::span(mine));
      for (int launches = 0; launches < 2; ++launches) {
        launch(rank.stream, {.blocks = 3, .threads = 64}, GatherKernel{}, team.deviceHandle(), bytes, 2u);
      }
      rank.synchronize();
      std::vector<std::uint8_t> result(bytes * size), expected;
      copyToHost(rank.device, std::span(result), data);
      for (int r = 0; r < rank.size; ++r) {
        auto const part = randomInput<std::uint8_t>(1, r, bytes);
        expected.insert(expected.end(), part.begin(), part.end());
      }
      CHECK(result == expected);
      rank.communicator.bootstrap()->barrier();
    });
  }
}

TEST_CASE_TEMPLATE("all-reduce: the sum of all ranks, again and again", T, std::int32_t, std::uint8_t, double) {
  for (std::size_t const count : {1, 7, 1000, 4099}) {
    CAPTURE(count);
    forEachShape(everyShape, [&](Rank& rank, Shape const&) {
      HierarchicalTeam const team(rank.communicator, {.blocks = 2, .bytes = count * sizeof(T)});
      std::vector<T> input(count), expected(count);
      for (std::size_t i = 0; i < count; ++i) {
        T sum = 0;
        for (int r = 0; r < rank.size; ++r) sum = static_cast<T>(sum + static_cast<T>(r + i % 5));
        input[i] = static_cast<T>(static_cast<std::size_t>(rank.rank) + i % 5);
        // The second and third time all ranks add up the same.
        expected[i] = static_cast<T>(sum * static_cast<T>(rank.size) * static_cast<T>(rank.size));
      }
      auto* const data = reinterpret_cast<T*>(team.data());
      copyToDevice(rank.device, data, std::span<T const>(input));
      launch(rank.stream, {.blocks = 2, .threads = 64}, ReduceKernel<T, Sum>{}, team.deviceHandle(), count, 2u);
      launch(rank.stream, {.blocks = 1, .threads = 96}, ReduceKernel<T, Sum>{}, team.deviceHandle(), count, 1u);
      rank.synchronize();
      std::vector<T> result(count);
      copyToHost(rank.device, std::span(result), data);
      CHECK(result == expected);
      rank.communicator.bootstrap()->barrier();
    });
  }
}

TEST_CASE("all-reduce: the average counts all ranks of all nodes") {
  forEachShape({{2, 2}}, [&](Rank& rank, Shape const&) {
    HierarchicalTeam const team(rank.communicator, {.blocks = 1, .bytes = 64});
    std::vector<float> const input(16, static_cast<float>(rank.rank));
    auto* const data = reinterpret_cast<float*>(team.data());
    copyToDevice(rank.device, data, std::span<float const>(input));
    launch(rank.stream, {.blocks = 1, .threads = 32}, ReduceKernel<float, Avg>{}, team.deviceHandle(), 16u, 1u);
    rank.synchronize();
    std::vector<float> result(16);
    copyToHost(rank.device, std::span(result), data);
    CHECK(result == std::vector<float>(16, 1.5f));
    rank.communicator.bootstrap()->barrier();
  });
}

TEST_CASE("what does not fit is refused") {
  forEachShape({{1, 2}, {2, 1}}, [&](Rank& rank, Shape const&) {
    auto const refused = [&](auto&& act) {
      try {
        act();
      } catch (Error const& error) {
        CHECK(error.code() == ErrorCode::invalidUsage);
        return std::string(error.what());
      }
      return std::string();
    };
    auto const has = [](std::string const& text, char const* part) { return text.find(part) != std::string::npos; };
    CHECK(has(refused([&] { HierarchicalTeam(rank.communicator, {.blocks = 0, .bytes = 8}); }), "at least 1"));
    auto const uneven = static_cast<std::size_t>(rank.rank) + 8;
    CHECK(has(refused([&] { HierarchicalTeam(rank.communicator, {.blocks = 1, .bytes = uneven}); }), "the same"));
    HierarchicalTeam const team(rank.communicator, {.blocks = 1, .bytes = 256});
    launch(rank.stream, {.blocks = 1, .threads = 32}, GatherKernel{}, team.deviceHandle(), 129u, 1u);
    CHECK(has(refused([&] { rank.communicator.synchronize(rank.stream); }), "a view up to byte 258"));
    rank.communicator.bootstrap()->barrier();
  });
}
