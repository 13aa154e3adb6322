// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Collectives in two levels, on as many nodes as the machine has: one of GPUs, several of simulated ones.
#include "mscclpp/algorithms/collective/hierarchical.hpp"

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "mscclpp/algorithms/collective/hierarchical_alltoall.hpp"
#include "mscclpp/algorithms/collective/hierarchical_rooted.hpp"
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

// The same over another network.
MSCCLPP_DEVICE DeviceHierarchy over(DeviceHierarchy h, std::uint64_t messageBytes) {
  h.messageBytes = messageBytes;
  return h;
}

struct GatherKernel {
  MSCCLPP_DEVICE void operator()(DeviceHierarchy const& h, std::uint64_t bytes, unsigned times) const {
    for (unsigned i = 0; i < times; ++i) hierarchicalAllGather(h, thisGrid(), bytes);
  }
};

template <class T, class Op>
struct ReduceKernel {
  MSCCLPP_DEVICE void operator()(DeviceHierarchy const& h, std::uint64_t count, unsigned times,
                                 std::uint64_t messageBytes) const {
    for (unsigned i = 0; i < times; ++i) hierarchicalAllReduce<T, Op>(over(h, messageBytes), thisGrid(), count);
  }
};

template <class T, class Op>
struct ReduceScatterKernel {
  MSCCLPP_DEVICE void operator()(DeviceHierarchy const& h, T* out, std::size_t count, unsigned times) const {
    for (unsigned i = 0; i < times; ++i) hierarchicalReduceScatter<T, Op>(h, thisGrid(), View{out, count});
  }
};

struct BroadcastKernel {
  MSCCLPP_DEVICE void operator()(DeviceHierarchy const& h, std::uint64_t bytes, int root) const {
    hierarchicalBroadcast(h, thisGrid(), bytes, root);
  }
};

struct GatherToRootKernel {
  MSCCLPP_DEVICE void operator()(DeviceHierarchy const& h, std::uint64_t bytes, int root) const {
    hierarchicalGather(h, thisGrid(), bytes, root);
  }
};

struct ScatterKernel {
  MSCCLPP_DEVICE void operator()(DeviceHierarchy const& h, std::uint64_t bytes, int root) const {
    hierarchicalScatter(h, thisGrid(), bytes, root);
  }
};

struct ReduceToRootKernel {
  MSCCLPP_DEVICE void operator()(DeviceHierarchy const& h, std::uint64_t count, int root,
                                 std::uint64_t messageBytes) const {
    hierarchicalReduce<std::int32_t, Sum>(over(h, messageBytes), thisGrid(), count, root);
  }
};

struct AllToAllKernel {
  MSCCLPP_DEVICE void operator()(DeviceHierarchy const& h, std::uint16_t const* in, std::uint16_t* out,
                                 std::size_t each) const {
    hierarchicalAllToAll(h, thisGrid(), in, EqualParts{each}, out, EqualParts{each});
  }
};

struct VariableAllToAllKernel {
  MSCCLPP_DEVICE void operator()(DeviceHierarchy const& h, std::uint16_t const* in, VariableParts const& inParts,
                                 std::uint16_t* out, VariableParts const& outParts) const {
    for (int i = 0; i < 2; ++i) hierarchicalAllToAll(h, thisGrid(), in, inParts, out, outParts);
  }
};

// What rank `from` has for rank `to`.
std::vector<std::uint16_t> partFor(int from, int to, std::size_t count, std::uint64_t call) {
  return randomInput<std::uint16_t>(call * 100 + static_cast<std::uint64_t>(to), from, count);
}
// What the rank's kernels had to complain of; empty: nothing.
std::string reportOf(Rank& rank) {
  try {
    rank.communicator.synchronize(rank.stream);
  } catch (Error const& error) {
    return error.what();
  }
  return {};
}
template <class T>
void append(std::vector<T>& to, std::vector<T> const& what) {
  to.insert(to.end(), what.begin(), what.end());
}

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
      rank.meet();
      for (int launches = 0; launches < 2; ++launches) {
        launch(rank.stream, {.blocks = 3, .threads = 64}, GatherKernel{}, team.deviceHandle(), bytes, 2u);
        rank.pace();
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
    forEachShape(everyShape, [&](Rank& rank, Shape const& shape) {
      // From 3 nodes on in one exchange and in two, in turn.
      auto const first = fastestSchedule(static_cast<std::uint64_t>(shape.nodes), count * sizeof(T) + 64, 0, 0);
      CHECK((first == NodeSchedule::twoExchanges) == (shape.nodes > 2));
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
      rank.meet();
      launch(rank.stream, {.blocks = 2, .threads = 64}, ReduceKernel<T, Sum>{}, team.deviceHandle(), count, 2u,
             std::uint64_t{0});
      rank.pace();
      launch(rank.stream, {.blocks = 1, .threads = 96}, ReduceKernel<T, Sum>{}, team.deviceHandle(), count, 1u,
             layout::usualMessageBytes);
      rank.synchronize();
      std::vector<T> result(count);
      copyToHost(rank.device, std::span(result), data);
      CHECK(result == expected);
      rank.communicator.bootstrap()->barrier();
    });
  }
}

TEST_CASE("all-reduce by each schedule that the team is made for") {
  for (auto const schedule : nodeSchedules) {
    CAPTURE(nameOf(schedule));
    for (std::size_t const count : {1, 1000, 4099}) {
      forEachShape(everyShape, [&](Rank& rank, Shape const&) {
        HierarchicalTeam const team(rank.communicator,
                                    {.blocks = 2, .bytes = count * sizeof(float), .schedule = schedule});
        auto* const data = reinterpret_cast<float*>(team.data());
        std::vector<double> expected(count, 0);
        for (int r = 0; r < rank.size; ++r) {
          std::vector<float> input;
          for (std::size_t i = 0; i < count; ++i) {
            input.push_back(0.1f * static_cast<float>((static_cast<std::size_t>(r) * 7 + i) % 13 + 1));
            expected[i] += static_cast<double>(input.back());
          }
          if (r == rank.rank) copyToDevice(rank.device, data, std::span<float const>(input));
        }
        rank.meet();
        launch(rank.stream, {.blocks = 2, .threads = 64}, ReduceKernel<float, Sum>{}, team.deviceHandle(), count, 1u,
               layout::usualMessageBytes);
        rank.synchronize();
        // Sums are rounded on the way, but for all ranks alike.
        auto const size = static_cast<std::size_t>(rank.size), own = static_cast<std::size_t>(rank.rank);
        std::vector<float> results(count * size);
        copyToHost(rank.device, std::span(results).subspan(count * own, count), data);
        rank.communicator.bootstrap()->allGather(results.data(), count * sizeof(float));
        std::size_t apart = 0, wrong = 0;
        for (std::size_t i = 0; i < results.size(); ++i) {
          if (bitCast<std::uint32_t>(results[i]) != bitCast<std::uint32_t>(results[i % count])) ++apart;
          if (std::abs(static_cast<double>(results[i]) - expected[i % count]) > 1e-5 * expected[i % count]) ++wrong;
        }
        CHECK(apart == 0);
        CHECK(wrong == 0);
      });
    }
  }
}

TEST_CASE("ranks that ask for different schedules are told so") {
  forEachShape({{2, 1}}, [&](Rank& rank, Shape const&) {
    auto const made = [&](std::optional<NodeSchedule> schedule) {
      return HierarchicalTeam(rank.communicator, {.blocks = 1, .bytes = 64, .schedule = schedule}).nodes();
    };
    std::string text;
    try {
      (void)made(rank.rank == 0 ? std::optional(NodeSchedule::ring) : std::nullopt);
    } catch (Error const& error) {
      CHECK(error.code() == ErrorCode::invalidUsage);
      text = error.what();
    }
    std::string const expected = rank.rank == 0 ? "the schedule ring between nodes, but rank 1 asks for none"
                                                : "the schedule none between nodes, but rank 0 asks for ring";
    CHECK(text.find(expected) != std::string::npos);
    CHECK(made(NodeSchedule::halving) == 2);
    rank.communicator.bootstrap()->barrier();
  });
}

TEST_CASE("all-reduce: the average counts all ranks of all nodes") {
  forEachShape({{2, 2}}, [&](Rank& rank, Shape const&) {
    HierarchicalTeam const team(rank.communicator, {.blocks = 1, .bytes = 64});
    std::vector<float> const input(16, static_cast<float>(rank.rank));
    auto* const data = reinterpret_cast<float*>(team.data());
    copyToDevice(rank.device, data, std::span<float const>(input));
    launch(rank.stream, {.blocks = 1, .threads = 32}, ReduceKernel<float, Avg>{}, team.deviceHandle(), 16u, 1u,
           layout::usualMessageBytes);
    rank.synchronize();
    std::vector<float> result(16);
    copyToHost(rank.device, std::span(result), data);
    CHECK(result == std::vector<float>(16, 1.5f));
    rank.communicator.bootstrap()->barrier();
  });
}

TEST_CASE_TEMPLATE("reduce-scatter: every rank has the sum of its part", T, std::int32_t, std::uint8_t, double) {
  for (std::size_t const count : {1, 7, 1000, 1031}) {
    CAPTURE(count);
    forEachShape(everyShape, [&](Rank& rank, Shape const&) {
      auto const stride = hierarchicalPartBytes<T>(count) / sizeof(T);
      auto const size = static_cast<std::size_t>(rank.size);
      HierarchicalTeam const team(rank.communicator, {.blocks = 3, .bytes = size * stride * sizeof(T)});
      GpuBuffer<T> const out(rank.device, count + 1);
      out.fill(0xff);
      auto const valueOf = [&](int from, std::size_t part, std::size_t i) {
        return static_cast<T>(static_cast<std::size_t>(from) + part * 2 + i % 5);
      };
      std::vector<T> input(size * stride, static_cast<T>(99)), expected(count);  // 99: between the parts
      for (std::size_t part = 0; part < size; ++part) {
        for (std::size_t i = 0; i < count; ++i) input[part * stride + i] = valueOf(rank.rank, part, i);
      }
      for (std::size_t i = 0; i < count; ++i) {
        T sum = 0;
        for (int r = 0; r < rank.size; ++r) {
          sum = static_cast<T>(sum + valueOf(r, static_cast<std::size_t>(rank.rank), i));
        }
        expected[i] = sum;
      }
      copyToDevice(rank.device, reinterpret_cast<T*>(team.data()), std::span<T const>(input));
      auto const behind = copyToHost(out).back();
      expected.push_back(behind);
      rank.meet();
      for (unsigned blocks : {3u, 1u}) {
        launch(rank.stream, {.blocks = blocks, .threads = 64}, ReduceScatterKernel<T, Sum>{}, team.deviceHandle(),
               out.data(), count, 2u);
        rank.pace();
      }
      rank.synchronize();
      CHECK(countDifferent(copyToHost(out), expected) == 0);
      rank.communicator.bootstrap()->barrier();
    });
  }
}

TEST_CASE("broadcast: everybody has the root's data") {
  for (std::size_t const bytes : {1, 100, 4099}) {
    CAPTURE(bytes);
    forEachShape(everyShape, [&](Rank& rank, Shape const&) {
      HierarchicalTeam const team(rank.communicator, {.blocks = 3, .bytes = bytes + 1});
      auto* const data = reinterpret_cast<std::uint8_t*>(team.data());
      for (int root = 0; root < rank.size; ++root) {
        auto const mine = randomInput<std::uint8_t>(3, rank.rank, bytes + 1);
        auto expected = randomInput<std::uint8_t>(3, root, bytes);
        expected.push_back(mine.back());  // is not touched
        copyToDevice(rank.device, data, std::span(mine));
        rank.meet();
        launch(rank.stream, {.blocks = root % 2 == 0 ? 3u : 1u, .threads = 64}, BroadcastKernel{}, team.deviceHandle(),
               bytes, root);
        rank.synchronize();
        std::vector<std::uint8_t> result(bytes + 1);
        copyToHost(rank.device, std::span(result), data);
        CHECK(result == expected);
        rank.communicator.bootstrap()->barrier();
      }
    });
  }
}

TEST_CASE("reduce: the root has the sum, everybody else what it had") {
  for (std::size_t const count : {1, 7, 4099}) {
    CAPTURE(count);
    forEachShape(everyShape, [&](Rank& rank, Shape const&) {
      HierarchicalTeam const team(rank.communicator, {.blocks = 2, .bytes = count * sizeof(std::int32_t)});
      auto* const data = reinterpret_cast<std::int32_t*>(team.data());
      for (int call = 0; call < 2 * rank.size; ++call) {
        int const root = call / 2;
        std::vector<std::int32_t> own(count), sum(count, 0);
        for (std::size_t i = 0; i < count; ++i) {
          auto const valueOf = [&](int r) { return r * 1000 + call + static_cast<std::int32_t>(i % 97); };
          own[i] = valueOf(rank.rank);
          for (int r = 0; r < rank.size; ++r) sum[i] += valueOf(r);
        }
        copyToDevice(rank.device, data, std::span<std::int32_t const>(own));
        rank.meet();
        // In two exchanges where there are three nodes, then in one.
        launch(rank.stream, {.blocks = root % 2 == 0 ? 2u : 1u, .threads = 64}, ReduceToRootKernel{},
               team.deviceHandle(), count, root, call % 2 == 0 ? std::uint64_t{0} : layout::usualMessageBytes);
        rank.synchronize();
        std::vector<std::int32_t> result(count);
        copyToHost(rank.device, std::span(result), data);
        CHECK(result == (rank.rank == root ? sum : own));
        rank.communicator.bootstrap()->barrier();
      }
    });
  }
}

TEST_CASE("gather and scatter: parts to the root, and from it") {
  for (std::size_t const bytes : {1, 100, 4099}) {
    CAPTURE(bytes);
    forEachShape(everyShape, [&](Rank& rank, Shape const&) {
      auto const size = static_cast<std::size_t>(rank.size), self = static_cast<std::size_t>(rank.rank);
      HierarchicalTeam const team(rank.communicator, {.blocks = 3, .bytes = bytes * size});
      auto* const data = reinterpret_cast<std::uint8_t*>(team.data());
      auto const partOf = [&](std::uint64_t call, int r) { return randomInput<std::uint8_t>(call, r, bytes); };
      for (int root = 0; root < rank.size; ++root) {
        LaunchShape const shape{.blocks = root % 2 == 0 ? 3u : 1u, .threads = 64};
        auto const call = static_cast<std::uint64_t>(2 * root);
        std::vector<std::uint8_t> all, result(bytes * size), toAll;
        for (int r = 0; r < rank.size; ++r) {
          append(all, partOf(call, r));
          append(toAll, partOf(call + 1, r));
        }
        auto const mine = partOf(call, rank.rank);
        copyToDevice(rank.device, data + self * bytes, std::span(mine));
        rank.meet();
        launch(rank.stream, shape, GatherToRootKernel{}, team.deviceHandle(), bytes, root);
        rank.synchronize();
        copyToHost(rank.device, std::span(result), data);
        if (rank.rank == root) CHECK(result == all);
        rank.communicator.bootstrap()->barrier();
        if (rank.rank == root) copyToDevice(rank.device, data, std::span<std::uint8_t const>(toAll));
        rank.meet();
        launch(rank.stream, shape, ScatterKernel{}, team.deviceHandle(), bytes, root);
        rank.synchronize();
        std::vector<std::uint8_t> part(bytes);
        copyToHost(rank.device, std::span(part), data + self * bytes);
        CHECK(part == partOf(call + 1, rank.rank));
        rank.communicator.bootstrap()->barrier();
      }
    });
  }
}

TEST_CASE("all-to-all: parts of one size, also in place") {
  for (std::size_t const each : {1, 60, 2051}) {
    CAPTURE(each);
    forEachShape(everyShape, [&](Rank& rank, Shape const&) {
      auto const size = static_cast<std::size_t>(rank.size);
      HierarchicalTeam const team(rank.communicator, {.blocks = 3, .bytes = 4104 * size, .allToAll = true});
      GpuBuffer<std::uint16_t> const in(rank.device, each * size), out(rank.device, each * size);
      for (std::uint64_t call = 0; call < 4; ++call) {
        std::vector<std::uint16_t> input, expected;
        for (int peer = 0; peer < rank.size; ++peer) {
          append(input, partFor(rank.rank, peer, each, call));
          append(expected, partFor(peer, rank.rank, each, call));
        }
        copyToDevice(in, std::span<std::uint16_t const>(input));
        auto const& target = call % 2 == 0 ? out : in;
        rank.meet();
        launch(rank.stream, {.blocks = call < 2 ? 3u : 1u, .threads = 64}, AllToAllKernel{}, team.deviceHandle(),
               in.data(), target.data(), each);
        rank.synchronize();
        CHECK(countDifferent(copyToHost(target), expected) == 0);
      }
      rank.communicator.bootstrap()->barrier();
    });
  }
}

TEST_CASE("all-to-all: parts of different sizes, some empty") {
  forEachShape(everyShape, [&](Rank& rank, Shape const&) {
    auto const size = static_cast<std::size_t>(rank.size);
    constexpr std::size_t largest = 333;
    auto const countOf = [](int from, int to) -> std::size_t {
      return (from + to) % 3 == 0 ? 0 : static_cast<std::size_t>(from * 131 + to * 37) % (largest + 1);
    };
    HierarchicalTeam const team(rank.communicator, {.blocks = 2, .bytes = 2 * (largest + 3) * size, .allToAll = true});
    std::vector<std::uint16_t> input, expected;
    std::vector<std::size_t> inCounts, inOffsets, outCounts, outOffsets;
    for (int peer = 0; peer < rank.size; ++peer) {
      inOffsets.push_back(input.size());
      outOffsets.push_back(expected.size());
      inCounts.push_back(countOf(rank.rank, peer));
      outCounts.push_back(countOf(peer, rank.rank));
      append(input, partFor(rank.rank, peer, inCounts.back(), 7));
      append(expected, partFor(peer, rank.rank, outCounts.back(), 7));
    }
    auto const onDevice = [&]<class T>(std::vector<T> const& values) {
      GpuBuffer<T> buffer(rank.device, std::max<std::size_t>(values.size(), 1));
      copyToDevice(buffer, std::span<T const>(values));
      return buffer;
    };
    auto const in = onDevice(input);
    GpuBuffer<std::uint16_t> const out(rank.device, expected.size() + 1);
    auto const ic = onDevice(inCounts), io = onDevice(inOffsets), oc = onDevice(outCounts), oo = onDevice(outOffsets);
    rank.meet();
    launch(rank.stream, {.blocks = 2, .threads = 96}, VariableAllToAllKernel{}, team.deviceHandle(), in.data(),
           VariableParts{ic.data(), io.data(), largest}, out.data(), VariableParts{oc.data(), oo.data(), largest});
    rank.synchronize();
    auto result = copyToHost(out);
    result.pop_back();
    CHECK(countDifferent(result, expected) == 0);
    rank.communicator.bootstrap()->barrier();
  });
}

TEST_CASE("of the ranks' figures of the network the least holds for all") {
  forEachShape({{1, 2}, {2, 2}}, [](Rank& rank, Shape const&) {
    HierarchicalTeam const measured(
        rank.communicator,
        {.blocks = 1, .bytes = 256, .messageBytes = 1000u + static_cast<unsigned>(rank.size - rank.rank)});
    CHECK(measured.deviceHandle().messageBytes == 1001);
    HierarchicalTeam const guessed(rank.communicator, {.blocks = 1, .bytes = 256});
    CHECK(guessed.deviceHandle().messageBytes == layout::usualMessageBytes);
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
  forEachShape({{1, 2}, {2, 1}}, [&](Rank& rank, Shape const&) {
    HierarchicalTeam const team(rank.communicator, {.blocks = 1, .bytes = 256});
    GpuBuffer<std::int32_t> const out(rank.device, 33);
    bool const reduces = rank.size == 2 && team.nodes() == 1;
    if (reduces) {
      launch(rank.stream, {.blocks = 1, .threads = 32}, ReduceScatterKernel<std::int32_t, Sum>{}, team.deviceHandle(),
             out.data(), std::size_t{33}, 1u);
    } else {
      launch(rank.stream, {.blocks = 1, .threads = 32}, BroadcastKernel{}, team.deviceHandle(), 4u, 2);
    }
    auto const told = reportOf(rank);
    CAPTURE(told);
    CHECK(told.find(reduces ? "a view up to byte 288" : "root 2") != std::string::npos);
    rank.communicator.bootstrap()->barrier();
  });
  // Parts that are larger than their slots, and a team that was not made for all-to-all.
  for (bool const allToAll : {true, false}) {
    forEachShape({{1, 2}, {2, 1}}, [&](Rank& rank, Shape const&) {
      HierarchicalTeam const team(rank.communicator, {.blocks = 1, .bytes = 256, .allToAll = allToAll});
      GpuBuffer<std::uint16_t> const buffer(rank.device, 2 * 65);
      launch(rank.stream, {.blocks = 1, .threads = 32}, AllToAllKernel{}, team.deviceHandle(), buffer.data(),
             buffer.data(), std::size_t{65});
      auto const told = reportOf(rank);
      CAPTURE(told);
      CHECK(told.find("a view up to byte 130") != std::string::npos);
      CHECK(told.find(allToAll ? "128" : " 0 ") != std::string::npos);
      rank.communicator.bootstrap()->barrier();
    });
  }
  forEachShape({{1, 2}}, [&](Rank& rank, Shape const&) {
    std::string told;
    try {
      HierarchicalTeam(rank.communicator, {.blocks = 1, .bytes = 64, .allToAll = rank.rank == 0});
    } catch (Error const& error) {
      told = error.what();
    }
    CHECK(told.find("without all-to-all") != std::string::npos);
  });
  // A team that was made without reductions.
  forEachShape({{1, 2}, {2, 1}}, [&](Rank& rank, Shape const&) {
    HierarchicalTeam const team(rank.communicator, {.blocks = 1, .bytes = 256, .reductions = false});
    launch(rank.stream, {.blocks = 1, .threads = 32}, ReduceKernel<float, Sum>{}, team.deviceHandle(),
           std::uint64_t{16}, 1u, std::uint64_t{0});
    auto const told = reportOf(rank);
    CAPTURE(told);
    CHECK(told.find("a view up to byte 64") != std::string::npos);
    rank.communicator.bootstrap()->barrier();
  });
  forEachShape({{1, 2}}, [&](Rank& rank, Shape const&) {
    std::string told;
    try {
      HierarchicalTeam(rank.communicator, {.blocks = 1, .bytes = 64, .reductions = rank.rank == 0});
    } catch (Error const& error) {
      told = error.what();
    }
    CHECK(told.find("without reductions") != std::string::npos);
  });
}
