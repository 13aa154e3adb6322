// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tokens to their experts and home by calls from the host: the same results as by kernels of one's own, and what is
// refused.
#include "mscclpp/collectives/expert_parallel.hpp"

#include <functional>

#include "support/experts_from_host.hpp"

using namespace mscclpp_test;

namespace {

template <class T, class W = T>
void checkFromHost(ExpertsCase const& test) {
  checkExperts<T, W, FromHost<T, W>>(test);
}

layout::ExpertLimits const few{.experts = 6, .topK = 3, .tokens = 7, .hidden = 150, .blocks = 3};

// What the first rank is told of a call, or of making it.
std::string refusal(std::function<void(ExpertParallel const&, Stream const&)> const& call,
                    DataType wire = DataType::float8E4M3) {
  std::string text;
  forEachRank(1, [&](Rank& rank) {
    try {
      ExpertParallel const experts(rank.communicator, few, DataType::bfloat16, wire);
      call(experts, rank.stream);
    } catch (Error const& error) {
      CHECK(error.code() == ErrorCode::invalidUsage);
      text = error.what();
    }
  });
  return text;
}

}  // namespace

TEST_CASE("every type and order of rows") {
  for (int const ranks : {1, 3}) {
    ExpertsCase test{.ranks = ranks, .limits = few, .alignment = 4};
    checkFromHost<float>(test);
    checkFromHost<Half>(test);
    checkFromHost<BFloat16>(test);
    checkFromHost<Half, Float8E4M3>(test);
    checkFromHost<BFloat16, Float8E4M3>(test);
    checkFromHost<Half, std::int8_t>(test);
    checkFromHost<BFloat16, std::int8_t>(test);
    test.byToken = true;
    checkFromHost<BFloat16>(test);
    test.byToken = false;
    test.weights = ExpertWeights::none;
    checkFromHost<float>(test);
    test.weights = ExpertWeights::asRouted;
    test.rowsOfExpert = 2;
    checkFromHost<float>(test);
    test.limits.partOfEach = true;
    checkFromHost<float>(test);
  }
}

TEST_CASE("without a rank that has failed, by calls from the host") {
  ExpertsCase test{.ranks = 4, .limits = few, .layers = 3, .failed = 2, .failedLayer = 1};
  for (bool const between : {false, true}) {
    test.failsBetween = between;
    checkFromHost<BFloat16>(test);
    checkFromHost<Half, Float8E4M3>(test);
    test.byToken = !test.byToken;
  }
}

TEST_CASE("of many tokens some blocks send while the others place, a single block does both") {
  for (unsigned const blocks : {1u, 2u, 5u}) {
    ExpertsCase test{
        .ranks = 3, .limits = {.experts = 7, .topK = 3, .tokens = 700, .hidden = 16, .blocks = blocks}, .alignment = 4};
    checkFromHost<BFloat16>(test);
    checkFromHost<BFloat16, Float8E4M3>(test);
    test.byToken = true;
    checkFromHost<float>(test);
  }
}

TEST_CASE("of a communicator on several nodes") {
  for (int const nodes : {2, 3}) {
    ExpertsCase test{.ranks = 2 * nodes, .nodes = nodes, .limits = few, .alignment = 4};
    checkFromHost<float>(test);
    checkFromHost<BFloat16, Float8E4M3>(test);
    checkFromHost<Half, std::int8_t>(test);
    test.byToken = true;
    checkFromHost<BFloat16>(test);
  }
}

TEST_CASE("over several nodes no rank is left out, and all ranks ask for the same") {
  sim::install({.devices = 4, .devicesPerNode = 2});
  std::string text, different, unweighted;
  forEachRank(4, [&](Rank& rank) {
    std::int32_t const failed = 0;
    ExpertParallel const experts(rank.communicator, few, DataType::bfloat16, DataType::bfloat16);
    CHECK(experts.rank() == rank.rank);
    CHECK(experts.size() == 4);
    CHECK(experts.limits().tokens == few.tokens);
    CHECK(experts.expertsOfRank() == 2);
    try {
      static_cast<void>(experts.deviceHandle(&failed));
    } catch (Error const& error) {
      if (rank.rank == 0) text = error.what();
    }
    auto limits = few;
    limits.tokens += rank.rank == 3 ? 1 : 0;
    try {
      ExpertParallel const wrong(rank.communicator, limits, DataType::bfloat16, DataType::bfloat16);
    } catch (Error const& error) {
      if (rank.rank == 0) different = error.what();
    }
    limits = few;
    limits.partOfEach = true;
    ExpertParallel const parts(rank.communicator, limits, DataType::bfloat16, DataType::bfloat16);
    std::byte memory[16];
    try {
      parts.combine(rank.stream, {.experts = reinterpret_cast<std::int64_t const*>(memory),
                                  .weights = reinterpret_cast<float const*>(memory),
                                  .tokens = 1,
                                  .y = memory});
    } catch (Error const& error) {
      if (rank.rank == 0) unweighted = error.what();
    }
  });
  CHECK(unweighted ==
        "rank 0: combine by weights, of a dispatch without: over several nodes a node's parts are added there, by the "
        "weights that were dispatched");
  CHECK(text ==
        "rank 0: ExpertParallel over several nodes without ranks that have failed; that there is within one node");
  CHECK(different.find("rank 3 for 6 experts, topK 3, 8 tokens of 150 elements") != std::string::npos);
  CHECK(different.find("all ranks must ask for the same") != std::string::npos);
  sim::install({});
}

TEST_CASE("what cannot be is refused in words, and nothing is started") {
  std::byte memory[16];
  auto const* const indices = reinterpret_cast<std::int64_t const*>(memory);
  CHECK(refusal([](auto const&, auto const&) {}).empty());
  CHECK(refusal([](auto const&, auto const&) {}, DataType::float32) ==
        "rank 0: ExpertParallel of bfloat16 that travels as float32; there are float32 as it is, float16 and bfloat16 "
        "as they are, as float8_e4m3 and as int8");
  CHECK(refusal([&](auto const& experts, auto const& stream) {
          experts.dispatch(stream, {.x = memory, .experts = indices, .tokens = 8});
        }) == "rank 0: dispatch of 8 tokens; ExpertParallel was made for at most 7");
  CHECK(refusal([&](auto const& experts, auto const& stream) {
          experts.dispatch(stream, {.x = memory, .tokens = 1});
        }) == "rank 0: dispatch of 1 tokens without a table of their experts");
  CHECK(refusal([&](auto const& experts, auto const& stream) {
          experts.dispatch(stream, {.experts = indices, .tokens = 1});
        }) == "rank 0: dispatch without the tokens' rows (x)");
  CHECK(refusal([&](auto const& experts, auto const& stream) { experts.dispatch(stream, {.room = 1}); }) ==
        "rank 0: dispatch without memory for the rows that come (rows)");
  CHECK(refusal([&](auto const& experts, auto const& stream) {
          experts.dispatch(stream, {.rows = memory, .room = 1});
        }) == "rank 0: dispatch without memory for the scales of quantised rows");
  CHECK(refusal([&](auto const& experts, auto const& stream) { experts.dispatch(stream, {.orderRows = 0}); }) ==
        "rank 0: dispatch without orderRows, which is 1 at least");
  CHECK(refusal([&](auto const& experts, auto const&) { experts.deviceHandle(nullptr); }).empty());
  CHECK(refusal([&](auto const& experts, auto const& stream) { experts.combine(stream, {.rows = 1}); }) ==
        "rank 0: combine without the rows that go home (results)");
  CHECK(refusal([&](auto const& experts, auto const& stream) {
          experts.combine(stream, {.experts = indices, .tokens = 1});
        }) == "rank 0: combine without memory for the sums (y)");
}

TEST_CASE("ranks that mean different types are told") {
  std::string text;
  forEachRank(2, [&](Rank& rank) {
    try {
      ExpertParallel const experts(rank.communicator, few, DataType::bfloat16,
                                   rank.rank == 0 ? DataType::int8 : DataType::bfloat16);
    } catch (Error const& error) {
      CHECK(error.code() == ErrorCode::invalidUsage);
      if (rank.rank == 0) text = error.what();
    }
  });
  CHECK(text.find("all members must ask for the same") != std::string::npos);
}
