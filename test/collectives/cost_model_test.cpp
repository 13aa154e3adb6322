// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The cost model: known limits, growth with bytes, what it refuses, and the choice by it.
#include "mscclpp/collectives/cost_model.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "collectives/ranks.hpp"
#include "mscclpp/collectives/kernel_table.hpp"
#include "mscclpp/collectives/selection.hpp"

using namespace mscclpp_test;

namespace {

constexpr std::uint64_t gibi = std::uint64_t{1} << 30;

// Round figures, so that expected times can be seen.
MachineModel roundModel() {
  return {.device = "Round",
          .multiprocessors = 100,
          .kernelTime = 1e-6,
          .launchGap = 0.5e-6,
          .packetTime = 2e-6,
          .barrierTime = 4e-6,
          .stageTime = 8e-6,
          .bulkTime = 16e-6,
          .copyTime = 32e-6,
          .copyCallTime = 64e-6,
          .copyChunkTime = 128e-6,
          .storeRate = 100e9,
          .storeRamp = 1,
          .loadRate = 50e9,
          .copyRate = 200e9,
          .blockRate = 10e9,
          .memoryRate = 1000e9};
}

double microsecondsOf(MachineModel const& model, CostQuery const& query) {
  auto const seconds = predict(model, query);
  REQUIRE_MESSAGE(seconds.has_value(), nameOf(query.collective), " by ", query.algorithm);
  return *seconds * 1e6;
}

double microsecondsOf(Collective collective, std::string_view algorithm, std::uint64_t bytes, unsigned blocks = 100,
                      unsigned threads = 256, int ranks = 4) {
  return microsecondsOf(roundModel(), {ranks, collective, algorithm, bytes, blocks, threads});
}

SelectionRequest requestOf(Collective collective, std::uint64_t bytes, int ranks, std::string device = "NVIDIA H200") {
  return {.collective = collective,
          .ranks = ranks,
          .bytes = bytes,
          .type = DataType::bfloat16,
          .op = reduces(collective) ? ReduceOp::sum : ReduceOp::none,
          .symmetric = true,
          .machine = DeviceKind::sim,
          .device = std::move(device)};
}

}  // namespace

TEST_CASE("a call without bytes takes its latencies") {
  auto const at = [](Collective collective, std::string_view algorithm) {
    return microsecondsOf(collective, algorithm, 0);
  };
  CHECK(at(Collective::allGather, "ll16") == doctest::Approx(1 + 2));
  CHECK(at(Collective::allGather, "memory") == doctest::Approx(1 + 4 + 8));
  CHECK(at(Collective::allGather, "push") == doctest::Approx(1 + 2 * 4));
  CHECK(at(Collective::allGather, "push_bulk") == doctest::Approx(1 + 2 * 4 + 16));
  CHECK(at(Collective::allGather, "copy_engine") == doctest::Approx(64 + 3 * 32));
  CHECK(at(Collective::reduceScatter, "pull") == doctest::Approx(1 + 2 * 4));
  CHECK(at(Collective::reduceScatter, "copy_engine") == doctest::Approx(64 + 3 * 32 + 128));
  CHECK(at(Collective::allReduce, "oneshot_ll8") == doctest::Approx(1 + 2));
  CHECK(at(Collective::allReduce, "oneshot_memory") == doctest::Approx(1 + 4 + 8));
  CHECK(at(Collective::allReduce, "twoshot_ll128") == doctest::Approx(1 + 2 * 2));
  CHECK(at(Collective::allReduce, "twoshot_memory_wide") == doctest::Approx(1 + 2 * (4 + 8)));
  CHECK(at(Collective::allReduce, "twoshot_push") == doctest::Approx(1 + (4 + 8) + 4));
  CHECK(at(Collective::allReduce, "copy_engine") == doctest::Approx(64 + 2 * 3 * 32 + 128));
  CHECK(at(Collective::scatter, "copy_engine") == doctest::Approx(64 + 3 * 32));
  CHECK(at(Collective::gather, "copy_engine") == doctest::Approx(64 + 32));
  CHECK(at(Collective::broadcast, "copy_engine") == doctest::Approx(64 + (1 + 2 * 2) * 32));
  CHECK(at(Collective::reduce, "copy_engine") == doctest::Approx(64 + 3 * 32 + 128));
  CHECK(at(Collective::broadcast, "chain") == doctest::Approx(1 + 4 * 4));
  CHECK(at(Collective::broadcast, "chain_staged") == doctest::Approx(1 + 4 * 4 + 4));
  CHECK(at(Collective::reduce, "chain") == doctest::Approx(1 + 4 * 4 + 4));
}

TEST_CASE("a broadcast by copy engines takes as many copies as chunks, and two for each rank on the way") {
  auto const at = [](int ranks, std::uint64_t bytes) {
    return microsecondsOf(Collective::broadcast, "copy_engine", bytes, 1, 32, ranks);
  };
  double const perByte = 1e6 / 200e9;
  CHECK(at(2, gibi) == doctest::Approx(64 + 32 + gibi * perByte));
  CHECK(at(3, gibi) == doctest::Approx(64 + (32 + 2) * (32 + (gibi >> 5) * perByte)));
  CHECK(at(4, gibi) == doctest::Approx(64 + (64 + 4) * (32 + (gibi >> 6) * perByte)));
  // No chunk is shorter than 4 MiB.
  CHECK(at(4, 8 << 20) == doctest::Approx(64 + (2 + 4) * (32 + (4 << 20) * perByte)));
}

TEST_CASE("a launch that may not overlap takes longer by the gap") {
  CostQuery query{4, Collective::allGather, "ll16", 0, 100, 256};
  query.overlapped = false;
  CHECK(microsecondsOf(roundModel(), query) == doctest::Approx(1.5 + 2));
}

TEST_CASE("very large messages take the time of their bytes on the links") {
  auto const rate = [](Collective collective, std::string_view algorithm, double bytesOnLink) {
    return bytesOnLink / (microsecondsOf(collective, algorithm, 64 * gibi) * 1e-6);
  };
  double const whole = 64.0 * gibi;
  // 100 blocks reach 100 / 101 of the rate, and packets carry their flags.
  double const stores = 100e9 * 100 / 101;
  CHECK(rate(Collective::allGather, "push", whole * 3 / 4) == doctest::Approx(stores).epsilon(1e-3));
  CHECK(rate(Collective::allToAll, "push_bulk", whole * 3 / 4) == doctest::Approx(stores).epsilon(1e-3));
  CHECK(rate(Collective::reduceScatter, "pull", whole * 3 / 4) == doctest::Approx(50e9).epsilon(1e-3));
  CHECK(rate(Collective::allReduce, "pull", whole * 3 / 2) == doctest::Approx(50e9).epsilon(1e-3));
  CHECK(rate(Collective::allGather, "copy_engine", whole * 3 / 4) == doctest::Approx(200e9).epsilon(1e-3));
  CHECK(rate(Collective::scatter, "copy_engine", whole * 3 / 4) == doctest::Approx(200e9).epsilon(1e-3));
  CHECK(rate(Collective::gather, "copy_engine", whole * 3 / 4) == doctest::Approx(200e9).epsilon(1e-3));
  CHECK(rate(Collective::broadcast, "push", whole) == doctest::Approx(50e9).epsilon(1e-3));
  CHECK(rate(Collective::gather, "push", whole * 3 / 4) == doctest::Approx(stores).epsilon(1e-3));
  CHECK(rate(Collective::broadcast, "chain", whole) == doctest::Approx(stores).epsilon(1e-3));
  CHECK(rate(Collective::broadcast, "chain_staged", whole) == doctest::Approx(stores).epsilon(1e-3));
  CHECK(rate(Collective::reduce, "chain", whole) == doctest::Approx(stores).epsilon(1e-3));
  // Through the workspace they cannot be faster than that.
  CHECK(rate(Collective::allGather, "ll16", whole * 3 / 4) < stores / 2);
  CHECK(rate(Collective::allGather, "ll128", whole * 3 / 4) < stores * 15 / 16);
  CHECK(rate(Collective::allReduce, "twoshot_push", whole * 3 / 2) < stores);
}

TEST_CASE("few blocks are bound by what one multiprocessor stores") {
  // Three stores to peers and one at home for each byte of a part.
  auto const bytes = 4 * gibi;
  auto const seconds = microsecondsOf(Collective::allGather, "push", bytes, 2) * 1e-6;
  CHECK(seconds == doctest::Approx(4.0 * gibi / (2 * 10e9)).epsilon(1e-3));
  double before = std::numeric_limits<double>::infinity();
  for (unsigned blocks : {1u, 2u, 4u, 8u, 16u, 64u, 100u}) {
    auto const now = microsecondsOf(Collective::allGather, "push", bytes, blocks);
    CHECK(now < before);
    before = now;
  }
}

TEST_CASE("waiting between rounds is hidden where blocks share a multiprocessor") {
  auto const bytes = gibi;
  auto const alone = microsecondsOf(Collective::allGather, "memory", bytes, 100, 256);
  auto const shared = microsecondsOf(Collective::allGather, "memory", bytes, 200, 256);
  auto const large = microsecondsOf(Collective::allGather, "memory", bytes, 100, 512);
  CHECK(shared < large);
  CHECK(large < alone);
  // Of 1,024 threads two are resident, whatever the grid.
  CHECK(microsecondsOf(Collective::allGather, "memory", bytes, 400, 1024) ==
        doctest::Approx(microsecondsOf(Collective::allGather, "memory", bytes, 200, 1024)).epsilon(0.01));
}

TEST_CASE("predictions of the library's algorithms are positive and grow with bytes, for 1 to 72 ranks") {
  auto const& model = *MachineModel::builtIn("NVIDIA H200");
  int known = 0;
  for (auto collective : collectives) {
    for (auto const& name : KernelTable::instance().algorithms(collective)) {
      for (int ranks : {1, 2, 3, 4, 8, 72}) {
        CostQuery query{ranks, collective, name, 0, 132, 256};
        if (!predict(model, query)) continue;
        ++known;
        double before = 0;
        for (std::uint64_t bytes = 1024; bytes <= 64 * gibi; bytes *= 4) {
          query.bytes = bytes;
          auto const seconds = predict(model, query);
          REQUIRE(seconds.has_value());
          CHECK_MESSAGE(*seconds >= before, nameOf(collective), " by ", name, ", ", ranks, " ranks, ", bytes, " bytes");
          CHECK(std::isfinite(*seconds));
          before = *seconds;
        }
        CHECK(before > 0);
      }
    }
  }
  CHECK(known >= 6 * 50);
}

TEST_CASE("what the model does not know has no prediction") {
  CHECK_FALSE(predict(roundModel(), {4, Collective::allReduce, "somebody's", 1024, 1, 32}));
  CHECK_FALSE(predict(roundModel(), {4, Collective::allReduce, "push", 1024, 1, 32}));
  CHECK_FALSE(predict(roundModel(), {4, Collective::allGather, "pull", 1024, 1, 32}));
  CHECK_FALSE(predict(roundModel(), {4, Collective::sendRecv, "memory", 1024, 1, 32}));
  CHECK_FALSE(predict(roundModel(), {4, Collective::barrier, "ll16", 0, 1, 32}));
}

TEST_CASE("a launch that cannot be is refused") {
  auto const refusal = [](CostQuery const& query) {
    return errorOf([&] { (void)predict(roundModel(), query); }, ErrorCode::invalidUsage);
  };
  CHECK(contains(refusal({0, Collective::allReduce, "pull", 1024, 1, 32}), "0 ranks; allowed is 1 or more"));
  CHECK(contains(refusal({4, Collective::allReduce, "pull", 1024, 0, 32}), "0 blocks; allowed is 1 or more"));
  CHECK(contains(refusal({4, Collective::allReduce, "pull", 1024, 1, 0}), "0 threads; allowed is 1 to 1024"));
  CHECK(contains(refusal({4, Collective::allReduce, "pull", 1024, 1, 1025}),
                 "cost model of Round: allreduce by pull: 1025 threads"));
}

TEST_CASE("the choice follows the model's figures") {
  auto model = *MachineModel::builtIn("NVIDIA H200");
  auto const first = [&](Collective collective, std::uint64_t bytes, int ranks) {
    return preferredAlgorithms(requestOf(collective, bytes, ranks), model).front();
  };
  CHECK(first(Collective::allReduce, 1024, 8).starts_with("oneshot_ll"));
  CHECK(first(Collective::allReduce, 4 << 20, 8) == "twoshot_ll128");
  CHECK(first(Collective::allReduce, gibi, 8) == "copy_engine");
  CHECK(first(Collective::allGather, 16 << 20, 8) == "push");
  CHECK(first(Collective::broadcast, 64 << 20, 8) == "push");

  model.copyRate = 100e9;  // slow copy engines
  CHECK(first(Collective::allReduce, gibi, 8) != "copy_engine");
  model.storeRate = 50e9;  // slow stores
  CHECK(first(Collective::allGather, gibi, 8) == "copy_engine");
  CHECK(first(Collective::reduceScatter, gibi, 8).starts_with("pull"));
}

TEST_CASE("the choice has every algorithm once, those without a prediction last") {
  auto const request = requestOf(Collective::allReduce, 1 << 20, 8);
  auto& table = KernelTable::instance();
  auto kernel = *table.find({DeviceKind::sim, Collective::allReduce, "pull", DataType::bfloat16, ReduceOp::sum, 0});
  table.add({DeviceKind::sim, Collective::allReduce, "a_new_one", DataType::bfloat16, ReduceOp::sum, 0}, kernel);
  auto const names = preferredAlgorithms(request, roundModel());
  auto there = table.algorithms(DeviceKind::sim, Collective::allReduce, DataType::bfloat16, ReduceOp::sum);
  CHECK(names.back() == "a_new_one");
  auto sorted = names;
  std::sort(sorted.begin(), sorted.end());
  std::sort(there.begin(), there.end());
  CHECK(sorted == there);
  double before = 0;
  for (auto const& prediction : predictions(request, roundModel())) {
    CHECK(prediction.seconds >= before);
    before = prediction.seconds;
  }
}

TEST_CASE("the model chooses where the library's table was not measured") {
  auto const bytes = std::uint64_t{1} << 20;
  auto const& h200 = *MachineModel::builtIn("NVIDIA H200");
  for (int ranks : {2, 8}) {
    auto const request = requestOf(Collective::allReduce, bytes, ranks);
    CHECK(preferredAlgorithms(request) == preferredAlgorithms(request, h200));
  }
  // Measured: 512 KiB from rank to rank go by packets on 4 GPUs, whatever the model says.
  auto const measured = preferredAlgorithms(requestOf(Collective::allGather, 4 << 20, 4));
  CHECK(measured.front() == "ll128");
}

TEST_CASE("large messages between buffers that are not symmetric go from rank to rank") {
  struct Case {
    Collective collective;
    std::string_view direct, chain;
  };
  for (std::uint64_t const bytes : {2 << 20, 16 << 20, 1 << 30}) {
    for (Case const& test :
         {Case{Collective::reduce, "pull", "chain"}, Case{Collective::broadcast, "push", "chain_staged"}}) {
      auto const order = preferredAlgorithms(requestOf(test.collective, bytes, 4));
      auto const place = [&](std::string_view name) { return std::find(order.begin(), order.end(), name); };
      CAPTURE(bytes);
      CAPTURE(test.chain);
      REQUIRE(place(test.chain) != order.end());
      CHECK(place(test.chain) < place("memory"));
      if (bytes <= std::uint64_t{16} << 20) CHECK(place(test.direct) < place(test.chain));
    }
  }
}
